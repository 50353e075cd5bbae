"""The shelf: parts that a platform only takes as the answer to the person's next contact."""

from collections.abc import Callable
from dataclasses import replace

from channels.channel import ShelvedPart
from channels.message import InboundMessage
from gateway.storage.inbox import Inbox
from gateway.storage.parts import Parts
from gateway.tracing.trace import Kind, Note, untraced
from memory.conversation import LaneKey, Role
from memory.memory import Memory

KEPT_SECONDS = 24 * 3600.0
"""How long after its question a part can still be fetched."""


class InboxShelf:
    """The shelf in the inbox's database (see channels.channel.Shelf)."""

    def __init__(
        self, inbox: Inbox, parts: Parts, memory: Memory, clock: Callable[[], float], note: Note = untraced
    ) -> None:
        self._inbox = inbox
        self._parts = parts
        self._memory = memory
        self._clock = clock
        self._note = note

    async def waiting(self, lane: LaneKey) -> list[ShelvedPart]:
        """The parts of this lane, oldest first."""
        return await self._parts.shelved(lane, self._clock() - KEPT_SECONDS)

    async def fetched(self, part: ShelvedPart) -> None:
        """The part reached the person."""
        await self._parts.sent(part.turn, part.number, "", self._clock())
        outline = await self._inbox.outline(part.turn)
        if outline is not None:
            message = replace(outline, id=part.message_id)
            self._note(message, Kind.SENT, part=part.number + 1, parts=part.total, fetched=True)

    async def answered(self, message: InboundMessage) -> str | None:
        """The whole answer that this message (or the turn it joined) got before; None if there is none (yet)."""
        asked = await self._inbox.asked(message)
        if asked is None:
            return None
        conversation, question = asked
        turns = await self._memory.answer_to(conversation, question)
        texts = [turn.text for turn in turns if turn.role is Role.ASSISTANT and not (turn.tool_calls or turn.removed)]
        return texts[0] if texts else None

    async def clear_old(self) -> None:
        """Drops what nobody fetched in time."""
        for turn in await self._parts.shelved_turns(self._clock() - KEPT_SECONDS):
            await self._parts.give_up(turn, self._clock())
            outline = await self._inbox.outline(turn)
            if outline is not None:
                self._note(outline, Kind.UNSENT, reason="24 小时内没有人来取")
