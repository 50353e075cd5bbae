"""The outbox: parts of answers go out in order, lane by lane, each tried again within bounds."""

import asyncio
import logging
import random
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from channels.channel import Channel, SendDeferred, SendError, SendLimited, SendRefused, SendUncertain
from channels.message import Part
from gateway.logs import log_failure
from gateway.storage.parts import Parts, WaitingPart
from gateway.storage.stored_message import Stored
from gateway.tracing.trace import CHANNEL_OFF, Fact, Kind, Note, follow, untraced
from memory.conversation import LaneKey

log = logging.getLogger("sanqiao.outbox")

T = TypeVar("T")

_CALL_SECONDS = 30.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_AT_HAND = 20


@dataclass(slots=True)
class _Delivery:
    turn: int
    stored: Stored
    parts: list[WaitingPart] | None  # None: to be read from the inbox


@dataclass(slots=True)
class _LaneOut:
    waiting: deque[_Delivery] = field(default_factory=deque)
    current: _Delivery | None = None
    task: "asyncio.Task[None] | None" = None


class Outbox:
    """Sends the parts that wait. `patience()` is how long after acceptance (s) a part is still tried."""

    def __init__(
        self,
        parts: Parts,
        channels: Mapping[str, Channel],
        *,
        patience: Callable[[], float],
        spawn: Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"],
        clock: Callable[[], float],
        rng: random.Random,
        note: Note = untraced,
    ) -> None:
        self._parts = parts
        self._channels = channels
        self._patience = patience
        self._spawn = spawn
        self._clock = clock
        self._rng = rng
        self._note = note
        self._lanes: dict[LaneKey, _LaneOut] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, turn: int, stored: Stored, parts: list[str] | None = None) -> None:
        """An answer to `stored` is in the inbox, its parts ready to be sent."""
        key = stored.message.lane
        lane = self._lanes.setdefault(key, _LaneOut())
        at_hand = None
        if parts is not None and len(lane.waiting) < _AT_HAND:
            at_hand = [WaitingPart(number, len(parts), text) for number, text in enumerate(parts)]
        lane.waiting.append(_Delivery(turn, stored, at_hand))
        self._wake(key, lane)

    def _wake(self, key: LaneKey, lane: _LaneOut) -> None:
        if lane.waiting and lane.task is None:
            task = lane.task = self._spawn(self._run(key, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drop(self, user: str) -> list[Stored]:
        """Sends nothing more to a person of what is here now; returns the messages whose answers that concerns."""
        return await self._drop(lambda each: each.stored.message.user == user)

    async def drop_turns(self, turns: Collection[int]) -> list[Stored]:
        """Sends nothing more of these turns' answers; returns the messages that concerns. Other answers go on."""
        return await self._drop(lambda each: each.turn in turns)

    async def _drop(self, concerns: Callable[[_Delivery], bool]) -> list[Stored]:
        dropped, ended = [], []
        for lane in self._lanes.values():
            gone = [each for each in lane.waiting if concerns(each)]
            lane.waiting = deque(each for each in lane.waiting if not concerns(each))
            if lane.current is not None and concerns(lane.current):
                gone.append(lane.current)
                if lane.task is not None:
                    lane.task.cancel()
                    ended.append(lane.task)
            dropped += [each.stored for each in gone]
        if ended:
            await asyncio.wait(ended, timeout=_CALL_SECONDS)
        for key, lane in list(self._lanes.items()):
            self._wake(key, lane)
        return dropped

    async def drain(self, deadline: float) -> None:
        """Lets what is being sent go on for `deadline` seconds at most; the rest waits in the inbox."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=deadline)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, key: LaneKey, lane: _LaneOut) -> None:
        try:
            while lane.waiting:
                delivery = lane.current = lane.waiting.popleft()
                try:
                    await self._deliver(delivery)
                except Exception as error:  # border of one delivery: it stays in the inbox, the next one goes on
                    log_failure(log, f"delivery failed turn={delivery.turn} lane={key}", error)
        finally:
            lane.current = lane.task = None
            if not lane.waiting:
                self._lanes.pop(key, None)

    async def _deliver(self, delivery: _Delivery) -> None:
        message = delivery.stored.message
        follow(message)
        deadline = delivery.stored.accepted_at + self._patience()
        parts = delivery.parts
        if parts is None:
            parts = await self._persist(partial(self._parts.waiting, delivery.turn), deadline)
        channel = self._channels.get(message.entry)
        if channel is None:
            log.error("answer left in the inbox turn=%d entry=%s reason=channel-is-off", delivery.turn, message.entry)
            self._note(message, Kind.LEFT, reason=CHANNEL_OFF)
            return
        for waiting in parts:
            part = Part(
                message=message,
                text=waiting.text,
                number=waiting.number,
                total=waiting.total,
                key=f"{message.lane.channel}:{message.account}:{message.id}:{waiting.number}",
            )
            try:
                platform_id = await self._send(channel, part, deadline)
            except SendDeferred as error:
                log.info("shelved turn=%d from_part=%d reason=%s", delivery.turn, waiting.number, error)
                self._noted(part, Kind.SHELVED, reason=str(error))
                await self._persist(partial(self._parts.shelve, delivery.turn, waiting.number), deadline)
                return
            if platform_id is None:
                await self._persist(partial(self._parts.give_up, delivery.turn, self._clock()), deadline)
                return
            sent = partial(
                self._parts.sent,
                delivery.turn,
                waiting.number,
                platform_id,
                self._clock(),
                only=waiting.total == 1,
            )
            await self._persist(sent, deadline)

    async def _persist(self, work: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Reads or records, again and again until the database answers: a part is not sent twice or forgotten for that.

        Raises sqlite3.Error past the deadline (unix seconds).
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return await work()
            except sqlite3.Error as error:
                if self._clock() > deadline:
                    raise
                log_failure(log, "database does not answer yet", error)
            await asyncio.sleep(pause * (1 + self._rng.random()))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _send(self, channel: Channel, part: Part, deadline: float) -> str | None:
        """The platform's id of the part; None when it will never arrive. Raises SendDeferred.

        A part that may have arrived, on a platform that would show it twice, is repeated once; then it counts as sent.
        """
        attempt, uncertain, started = 0, 0, self._clock()
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    platform_id = await channel.send(part)
                    self._sent(part, attempt, started, platform_id=platform_id)
                    return platform_id
            except SendDeferred:
                raise
            except SendRefused as error:
                log.error("answer refused entry=%s lane=%s reason=%s", channel.name, part.message.lane, error)
                self._noted(part, Kind.UNSENT, reason=str(error))
                return None
            except SendLimited as error:
                pause, problem = error.retry_after, str(error)
            except (SendError, TimeoutError) as error:
                pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
                problem = str(error) or "time-out"
                cut = isinstance(error, TimeoutError) and not channel.repeatable
                uncertain += cut or isinstance(error, SendUncertain)
            if uncertain > 1:
                log.warning("counted as sent entry=%s lane=%s reason=%s", channel.name, part.message.lane, problem)
                self._sent(part, attempt, started, uncertain=True)
                return ""
            pause = min(pause, _LONGEST_PAUSE) * (1 + 0.25 * self._rng.random())
            if self._clock() + pause > deadline:
                log.error("answer given up entry=%s lane=%s reason=%s", channel.name, part.message.lane, problem)
                self._noted(part, Kind.UNSENT, reason=problem)
                return None
            self._noted(part, Kind.RETRIED, attempt=attempt, pause=round(pause, 2), reason=problem)
            log.warning("send again entry=%s in=%.1fs attempt=%d reason=%s", channel.name, pause, attempt, problem)
            await asyncio.sleep(pause)

    def _sent(self, part: Part, attempts: int, started: float, **facts: Fact) -> None:
        seconds = round(self._clock() - started, 3)
        self._noted(part, Kind.SENT, attempts=attempts, seconds=seconds, **facts)

    def _noted(self, part: Part, kind: Kind, **facts: Fact) -> None:
        self._note(part.message, kind, part=part.number + 1, parts=part.total, **facts)
