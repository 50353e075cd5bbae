"""The way in: a message is stored durably, then looked at, then put into its lane."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from channels.message import Admission, GatewayClosed, InboundMessage, Notice
from channels.text import is_blank
from gateway.commands import parse
from gateway.lanes import RATE_LIMITED, Waiting
from gateway.limits import RateLimit, refused_by_policy
from gateway.logs import log_failure
from gateway.snapshot import Snapshots
from gateway.storage.inbox import Inbox
from gateway.storage.stored_message import Duplicate, State, Stored
from gateway.tracing.trace import Kind, Note, follow, untraced
from gateway.turns.router import by_rules
from memory.conversation import LaneKey
from memory.generations import Generations
from memory.sanitise import storable

log = logging.getLogger("sanqiao.intake")

MOST_AT_ONCE = 2000
"""Messages that may be under way into the inbox; platforms deliver what is above it later, as if the gateway were closed."""
_MANY, _PATIENCE = 64, 1.0
"""How many messages may be under way into the inbox while answers are begun; seconds an answer waits for that."""
_URGENT_PER_MINUTE = 3
"""Of who writes too fast."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Intake:
    """What channels hand messages to.

    `settled` waits while a person is being forgotten, `generations` tell whether one was; `person` gives the account by
    which all of a person's are counted; `put` and `refill` are the lanes'.
    """

    def __init__(
        self,
        inbox: Inbox,
        snapshots: Snapshots,
        *,
        settled: Callable[[str], Awaitable[None]],
        person: Callable[[str], str],
        generations: Generations,
        put: Callable[[Waiting], None],
        refill: Callable[[LaneKey], None],
        spawn: Spawn,
        clock: Callable[[], float],
        note: Note = untraced,
    ) -> None:
        self._inbox = inbox
        self._snapshots = snapshots
        self._settled = settled
        self._person = person
        self._generations = generations
        self._put = put
        self._refill = refill
        self._spawn = spawn
        self._clock = clock
        self._note = note
        self._rate = RateLimit()
        self._urgent = RateLimit()
        self._open = False
        self._storing = 0
        self._eased = asyncio.Event()
        self._eased.set()

    def open(self) -> None:
        """From now on messages are taken."""
        self._open = True

    def close(self) -> None:
        """From now on no message is taken; what is in the lanes goes on."""
        self._open = False

    async def eased(self) -> None:
        """Returns when few messages wait to be acknowledged, after `_PATIENCE` at the latest.

        Platforms give an acknowledgement a second or two: in a burst it comes before answers are begun.
        """
        if not self._eased.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._eased.wait()

    def _count(self, by: int) -> None:
        self._storing += by
        if self._storing > _MANY:
            self._eased.clear()
        else:
            self._eased.set()

    async def accept(self, message: InboundMessage) -> Admission:
        """Stores a message durably and puts it into its lane. Raises GatewayClosed when it was not stored.

        A caller that is cancelled meanwhile changes nothing: what is stored is also handled.
        """
        if not self._open or self._storing >= MOST_AT_ONCE:
            raise GatewayClosed
        outcome: list[Admission] = []
        await asyncio.shield(self._spawn(self._store_or_not(message, outcome)))
        if not outcome:
            raise GatewayClosed
        return outcome[0]

    async def _store_or_not(self, message: InboundMessage, outcome: list[Admission]) -> None:
        """What `accept` does, in a task of its own; `outcome` stays empty when the message was not stored."""
        self._count(1)
        try:
            outcome.append(await self._store(message))
        except Exception as error:  # border of one message: the platform may deliver it again
            log_failure(log, f"message not stored lane={message.lane}", error)
            self._note(message, Kind.FAILED, text="not-stored", error=type(error).__name__)
        finally:
            self._count(-1)

    async def _store(self, message: InboundMessage) -> Admission:
        await self._settled(message.user)
        if self._snapshots.now().settings.conversations.group_context == "shared":
            message = message.in_shared_lane()
        message = self._storable(message)
        follow(message)
        generation = self._generations.now()
        stored = await self._inbox.accept(message, self._clock())
        if isinstance(stored, Duplicate):
            log.info("duplicate entry=%s lane=%s state=%s", message.entry, message.lane, stored.state)
            if stored.state is not State.FORGOTTEN:  # of whom was forgotten nothing is kept
                self._note(message, Kind.DUPLICATE, state=stored.state)
            return Admission.DUPLICATE
        log.info("accepted entry=%s lane=%s seq=%d", message.entry, message.lane, stored.seq)
        self._note(message, Kind.RECEIVED, chars=len(message.text))
        waiting = self.examine(stored, fresh=True)
        if self._generations.passed(generation, message.user):
            self._refill(message.lane)  # stored before its person was forgotten, and then deleted, or after
        else:
            self._put(waiting)
        return Admission.ACCEPTED

    def _storable(self, message: InboundMessage) -> InboundMessage:
        text = storable(message.text)
        if len(text.encode()) > self._snapshots.now().settings.limits.max_text_bytes:
            return replace(message, text="", notice=Notice.TOO_LONG)
        notice = message.notice or (Notice.EMPTY if is_blank(text) else None)
        return replace(message, text=text, name=storable(message.name), notice=notice)

    def _is_too_fast(self, stored: Stored) -> bool:
        """Counts a message for the rate. Who writes too fast can still stop an answer or be forgotten, now and then."""
        message, at = stored.message, stored.accepted_at
        person = self._person(message.user)
        if self._rate.allows(person, self._snapshots.now().settings.limits.messages_per_minute, at):
            return False
        command = None if message.notice else parse(message.text)
        urgent = command is not None and command.urgent
        return not (urgent and self._urgent.allows(person, _URGENT_PER_MINUTE, at))

    def examine(self, stored: Stored, *, fresh: bool = False) -> Waiting:
        """What a message is: something to refuse, a command, or talk. Only a fresh one counts for the rate."""
        message, snapshot = stored.message, self._snapshots.now()
        if refused_by_policy(message, snapshot.entry(message.entry)):
            return Waiting(stored, refusal="refused-dm")
        if fresh and self._is_too_fast(stored):
            return Waiting(stored, refusal=RATE_LIMITED)
        if message.notice:
            return Waiting(stored, refusal=message.notice)
        command = parse(message.text)
        if command:
            return Waiting(stored, command=command)
        rule = by_rules(message.text, snapshot.rules)
        return Waiting(stored, rule=rule.agent if rule else None)
