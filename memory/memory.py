"""The one door to what was said: remember turns, see the window, find answers, turn pages."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memory.appending import path_of
from memory.conversation import ConversationId, LaneKey, Role, Turn
from memory.errors import typed_errors
from memory.store import ConversationStore, FileInfo
from memory.tail import Backwards
from memory.window import Window, WindowSettings, build_window


class Memory:
    """Conversations as the gateway uses them. Every coroutine may raise StoreError."""

    def __init__(self, workspace: Path, *, durability: str = "sync") -> None:
        self._store = ConversationStore(workspace, durability=durability)

    async def remember(self, conversation: ConversationId, turns: Sequence[Turn]) -> list[Turn]:
        """Appends turns in one step; returns those that were not in the file yet, with ordinal and epoch."""
        return await self._store.append(conversation, turns)

    async def window(
        self, conversation: ConversationId, settings: WindowSettings, *, question: Turn | None, room: int
    ) -> Window:
        """What the model sees before `question`, which may be in the file already, with turns behind it.

        Without a question: what it would see with the next one. `room` is in tokens.
        """
        return await self._store.run(lambda: self._window(conversation, settings, question, room))

    def _window(
        self, conversation: ConversationId, settings: WindowSettings, question: Turn | None, room: int
    ) -> Window:
        with typed_errors(path_of(conversation)):
            if question is not None:
                with self._store.backwards(conversation) as tail:
                    if any(question.id in (turn.id, *turn.ids) for turn in tail):
                        return _built(tail, settings, question, room)
            with self._store.backwards(conversation) as tail:
                return _built(tail, settings, question, room)

    async def answer_to(self, conversation: ConversationId, question: str) -> list[Turn]:
        """The turns that answer the user turn with this id, in order; [] if there are none yet."""
        return await self._store.answer_to(conversation, question)

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn]:
        """A page: the newest `limit` turns with an ordinal below `before` (None: of all), in the file's order."""
        return await self._store.history(conversation, before, limit)

    async def files_of(self, lane: LaneKey) -> list[ConversationId]:
        """The conversations of this lane that have a file, one per agent."""
        return await self._store.files_of(lane)

    async def scan(self) -> list[FileInfo]:
        """Every conversation file, to rebuild an index from."""
        return await self._store.scan()

    async def info(self, conversation: ConversationId) -> FileInfo | None:
        """One conversation file; None if there is none."""
        return await self._store.info(conversation)

    async def reset(self, conversation: ConversationId, id: str, at: str, reason: str = "new") -> None:
        """Begins afresh: nothing before is seen by the model again. Does nothing where there is nothing to end."""
        last = await self._store.last(conversation)
        if last is not None and last.role is not Role.RESET:
            await self._store.append(conversation, [Turn(role=Role.RESET, text=reason, id=id, at=at)])

    async def close(self) -> None:
        """Waits for what runs; what was remembered is on the disk then."""
        await self._store.close()


def _built(tail: Backwards, settings: WindowSettings, question: Turn | None, room: int) -> Window:
    """The window over the turns `tail` still has, told where reading stopped at its limits."""
    text = question.text if question is not None else None
    window = build_window(tail, question=text, settings=settings, room=room)
    if tail.capped and tail.last is not None and window.not_read_before is None:
        return replace(window, not_read_before=tail.last.id)
    return window
