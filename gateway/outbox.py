"""The outbox: parts of answers go out in order, lane by lane, each tried again within bounds."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

from channels.channel import Channel, SendDeferred, SendError, SendFailed, SendLimited, SendRefused
from channels.message import Part
from gateway.inbox import Stored
from gateway.parts import Parts, WaitingPart
from memory.conversation import LaneKey

log = logging.getLogger("sanqiao.outbox")

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
    ) -> None:
        self._parts = parts
        self._channels = channels
        self._patience = patience
        self._spawn = spawn
        self._clock = clock
        self._rng = rng
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
        dropped, ended = [], []
        for lane in self._lanes.values():
            theirs = [each for each in lane.waiting if each.stored.message.user == user]
            lane.waiting = deque(each for each in lane.waiting if each.stored.message.user != user)
            if lane.current is not None and lane.current.stored.message.user == user:
                theirs.append(lane.current)
                if lane.task is not None:
                    lane.task.cancel()
                    ended.append(lane.task)
            dropped += [each.stored for each in theirs]
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
                except Exception:  # border of one delivery: it stays in the inbox, the next one goes on
                    log.exception("delivery failed turn=%d lane=%s", delivery.turn, key)
        finally:
            lane.current = lane.task = None
            if not lane.waiting:
                self._lanes.pop(key, None)

    async def _deliver(self, delivery: _Delivery) -> None:
        message = delivery.stored.message
        parts = delivery.parts if delivery.parts is not None else await self._parts.waiting(delivery.turn)
        channel = self._channels.get(message.entry)
        if channel is None:
            log.error("answer dropped turn=%d entry=%s reason=channel-is-off", delivery.turn, message.entry)
            await self._parts.give_up(delivery.turn, self._clock())
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
                platform_id = await self._send(channel, part, delivery.stored.accepted_at)
            except SendDeferred as error:
                log.info("shelved turn=%d from_part=%d reason=%s", delivery.turn, waiting.number, error)
                await self._parts.shelve(delivery.turn, waiting.number)
                return
            if platform_id is None:
                await self._parts.give_up(delivery.turn, self._clock())
                return
            await self._parts.sent(delivery.turn, waiting.number, platform_id, self._clock())

    async def _send(self, channel: Channel, part: Part, accepted_at: float) -> str | None:
        """The platform's id of the part; None when it will never arrive. Raises SendDeferred."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    return await channel.send(part)
            except SendDeferred:
                raise
            except SendRefused as error:
                log.error("answer refused entry=%s lane=%s reason=%s", channel.name, part.message.lane, error)
                return None
            except SendLimited as error:
                pause, problem = error.retry_after, str(error)
            except (SendFailed, TimeoutError) as error:
                pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
                problem = str(error) or "time-out"
            except SendError as error:
                pause, problem = _LONGEST_PAUSE, str(error)
            pause = min(pause, _LONGEST_PAUSE) * (1 + 0.25 * self._rng.random())
            if self._clock() + pause > accepted_at + self._patience():
                log.error("answer given up entry=%s lane=%s reason=%s", channel.name, part.message.lane, problem)
                return None
            log.warning("send again entry=%s in=%.1fs attempt=%d reason=%s", channel.name, pause, attempt, problem)
            await asyncio.sleep(pause)
