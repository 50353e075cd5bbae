"""Lanes: messages of one person in one chat are handled in order, lanes side by side; what waits may become one turn.

A lane without work costs no task. A lane keeps at most `_AT_HAND` waiting messages in memory; the rest stays in the
inbox until there is room.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace

from gateway.commands import Command
from gateway.logs import log_failure
from gateway.storage.inbox import Inbox
from gateway.storage.stored_message import Group, Stored
from memory.conversation import LaneKey

log = logging.getLogger("sanqiao.lanes")

_AT_HAND = 50
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_END_SECONDS = 10.0
RATE_LIMITED = "rate-limited"
"""The refusal that is told at once: a flood takes no place in its lane, and what waits there was let through."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stored message and what it is: a command, something to refuse (the name of a text), or talk.

    `rule` is the agent its words alone would choose; messages that would go to different agents are never merged.
    """

    stored: Stored
    command: Command | None = None
    refusal: str | None = None
    rule: str | None = None

    @property
    def overtakes(self) -> bool:
        """Whether it is handled at once: it reads, stops, or is refused for coming too fast."""
        if self.refusal:
            return self.refusal == RATE_LIMITED
        return self.command is not None and self.command.overtakes

    @property
    def is_talk(self) -> bool:
        """Whether an agent is to answer it."""
        return self.command is None and self.refusal is None


@dataclass(frozen=True, slots=True)
class Work:
    """What a lane does next: a group that is one turn, or a single message that is no talk."""

    group: Group
    command: Command | None = None
    refusal: str | None = None


@dataclass(slots=True)
class _Lane:
    waiting: deque[Waiting] = field(default_factory=deque)
    reruns: deque[Group] = field(default_factory=deque)
    more_after: int | None = None  # seq after which further messages wait in the inbox alone
    refilled: bool = False  # since the last fetch began, which may have read before
    busy: bool = False
    task: "asyncio.Task[None] | None" = None
    work: Work | None = None  # what is being handled


@dataclass(slots=True)
class _Held:
    """What is to be looked at again once a person is served again: lanes with messages of theirs, groups to rerun."""

    lanes: set[LaneKey] = field(default_factory=set)
    reruns: list[Group] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Merging:
    """How waiting messages become one turn: whether at all, after how long a pause (s), up to how many bytes."""

    enabled: bool
    debounce: float
    most_bytes: int


def next_group(waiting: deque[Waiting], merging: Merging) -> Work:
    """Takes the next piece of work off the front; talk of one speaker to one agent is joined. Needs one waiting."""
    first = waiting.popleft()
    if not first.is_talk:
        return Work(Group((first.stored,)), first.command, first.refusal)
    group = [first.stored]
    size = len(first.stored.message.text.encode())
    while merging.enabled and waiting and _joins(first, waiting[0]):
        size += 1 + len(waiting[0].stored.message.text.encode())
        if size > merging.most_bytes:
            break
        group.append(waiting.popleft().stored)
    return Work(Group(tuple(group)))


def _is_by(user: str, stored: Stored) -> bool:
    return stored.message.user == user


def _take_out(user: str, lane: _Lane) -> bool:
    """Takes what waits for a person out of a lane; whether there was anything."""
    waiting, reruns = len(lane.waiting), len(lane.reruns)
    lane.waiting = deque(each for each in lane.waiting if not _is_by(user, each.stored))
    lane.reruns = deque(each for each in lane.reruns if not _is_by(user, each.newest))
    return (len(lane.waiting), len(lane.reruns)) != (waiting, reruns)


def _joins(first: Waiting, then: Waiting) -> bool:
    one, other = first.stored.message, then.stored.message
    same = one.user == other.user and one.agent == other.agent and one.entry == other.entry
    return then.is_talk and same and then.rule in (None, first.rule)


class Lanes:
    """Runs `handle` on the work of each lane, one piece at a time; work it raises for is handled again, after a pause.

    `spawn` starts a task that the application owns; `examine` says what a message that comes from the inbox is.
    """

    def __init__(
        self,
        inbox: Inbox,
        handle: Callable[[Work], Awaitable[None]],
        examine: Callable[[Stored], Waiting],
        merging: Callable[[], Merging],
        *,
        spawn: Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._inbox = inbox
        self._handle = handle
        self._examine = examine
        self._merging = merging
        self._spawn = spawn
        self._clock = clock
        self._rng = rng
        self._lanes: dict[LaneKey, _Lane] = {}
        self._overtaking: dict[int, tuple[Waiting, asyncio.Task[None]]] = {}
        self._held: dict[str, _Held] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, waiting: Waiting) -> None:
        """A newly accepted message: handled after all that waits in its lane, unless it overtakes."""
        held = self._held.get(waiting.stored.message.user)
        if held is not None:
            held.lanes.add(waiting.stored.message.lane)
            return  # it is in the inbox, or deleted from it
        if waiting.overtakes and not self._closed:
            # now: a fetch from the inbox may be under way
            self._overtaking[waiting.stored.seq] = (waiting, self._start(self._overtake(waiting)))
            return
        key = waiting.stored.message.lane
        lane = self._lane(key)
        if lane.more_after is not None:
            self._wake(key, lane)
            return  # it will come from the inbox, in its turn
        if len(lane.waiting) >= _AT_HAND:
            lane.more_after = lane.waiting[-1].stored.seq
            return
        lane.waiting.append(waiting)
        self._wake(key, lane)

    def put_rerun(self, group: Group) -> None:
        """A group that was being handled when the process ended: handled before all that waits in its lane."""
        held = self._held.get(group.newest.message.user)
        if held is not None:
            held.reruns.append(group)
            return
        key = group.newest.message.lane
        lane = self._lane(key)
        lane.reruns.append(group)
        self._wake(key, lane)

    def refill(self, key: LaneKey) -> None:
        """Messages of this lane wait in the inbox alone (after a restart)."""
        lane = self._lane(key)
        lane.more_after, lane.refilled = 0, True
        self._wake(key, lane)

    def __len__(self) -> int:
        """How many lanes have work."""
        return len(self._lanes)

    async def drain(self, deadline: float) -> None:
        """Starts nothing new, lets what runs go on for `deadline` seconds at most, then cancels it."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=deadline)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _lane(self, key: LaneKey) -> _Lane:
        return self._lanes.setdefault(key, _Lane())

    @contextlib.asynccontextmanager
    async def closed_to(self, user: str) -> AsyncIterator[None]:
        """Ends all work for a person, waiting or begun, but the task that asks for it, and begins none meanwhile.

        Others' work goes on. All messages concerned stay in the inbox; afterwards those that are still there are
        handled, in their order, and the groups that `put_rerun` was given meanwhile before them.
        """
        held = self._held[user] = _Held()
        try:
            await self._end(user, held)
            yield
        finally:
            del self._held[user]
            for group in held.reruns:
                self.put_rerun(group)
            for key in held.lanes:
                self.refill(key)

    async def _end(self, user: str, held: _Held) -> None:
        mine, ended = asyncio.current_task(), []
        for waiting, task in self._overtaking.values():
            if _is_by(user, waiting.stored) and task is not mine:
                held.lanes.add(waiting.stored.message.lane)
                ended.append(task)
        for key, lane in self._lanes.items():
            if key.user != user and not key.is_shared:
                continue
            # Between two pieces of work it may be about to take one of theirs, and loses nothing by being ended.
            theirs = lane.work is None or _is_by(user, lane.work.group.newest)
            if lane.task is not None and lane.task is not mine and theirs:
                ended.append(lane.task)
            if _take_out(user, lane) or (lane.work is not None and theirs):
                held.lanes.add(key)
        for task in ended:
            task.cancel()
        if ended:
            await asyncio.wait(ended, timeout=_END_SECONDS)
        for seq in [seq for seq, (_, task) in self._overtaking.items() if task.done()]:
            del self._overtaking[seq]
        for key, lane in list(self._lanes.items()):
            if lane.task is not None and lane.task.done():  # ended before it began, so that it could not tidy up
                self._rest(key, lane)
            if key in self._lanes:
                self._wake(key, lane)

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _wake(self, key: LaneKey, lane: _Lane) -> None:
        if not lane.busy and not self._closed:
            lane.busy = True
            lane.task = self._start(self._run(key, lane))

    async def _overtake(self, waiting: Waiting) -> None:
        work, pause = Work(Group((waiting.stored,)), waiting.command, waiting.refusal), _FIRST_PAUSE
        try:
            while True:
                try:
                    await self._handle(work)
                    return
                except Exception as error:  # border of one message: tried again as a lane does
                    log_failure(log, f"command failed lane={waiting.stored.message.lane}", error)
                if self._closed:
                    return  # it stays in the inbox for the next start
                await asyncio.sleep(pause * (1 + self._rng.random()))
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._overtaking.pop(waiting.stored.seq, None)

    async def _run(self, key: LaneKey, lane: _Lane) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._closed:
                try:
                    if lane.work is None:
                        lane.work = await self._next(key, lane)
                    if lane.work is None:
                        break
                    await self._handle(lane.work)
                except Exception as error:  # border of the lane: it tries again, other lanes go on
                    log_failure(log, f"lane failed lane={key}", error)
                    if lane.work is not None:
                        lane.work = replace(lane.work, group=replace(lane.work.group, rerun=True))
                    await asyncio.sleep(pause * (1 + self._rng.random()))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                else:
                    lane.work, pause = None, _FIRST_PAUSE
        finally:
            self._rest(key, lane)

    def _rest(self, key: LaneKey, lane: _Lane) -> None:
        lane.busy, lane.work, lane.task = False, None, None
        if not (lane.waiting or lane.reruns or lane.more_after is not None):
            self._lanes.pop(key, None)

    async def _next(self, key: LaneKey, lane: _Lane) -> Work | None:
        if lane.reruns:
            return Work(lane.reruns.popleft())
        while not lane.waiting and lane.more_after is not None:
            await self._fetch(key, lane)
        if not lane.waiting:
            return None
        merging = self._merging()
        if lane.waiting[0].is_talk:
            await self._debounce(lane, merging.debounce)
        if self._closed:
            return None
        return next_group(lane.waiting, merging)

    async def _fetch(self, key: LaneKey, lane: _Lane) -> None:
        """Takes from the inbox what did not fit into memory; until it is empty, `put` adds nothing out of order."""
        after, lane.refilled = lane.more_after or 0, False
        stored = await self._inbox.waiting(str(key), after, _AT_HAND)
        if not lane.refilled:
            lane.more_after = stored[-1].seq if len(stored) == _AT_HAND else None
        for each in stored:
            held = self._held.get(each.message.user)
            if held is not None:
                held.lanes.add(key)
            elif each.seq not in self._overtaking:
                lane.waiting.append(self._examine(each))

    async def _debounce(self, lane: _Lane, pause: float) -> None:
        """Waits until the newest message is `pause` seconds old, so that a thought typed in pieces is one turn."""
        while pause > 0 and not self._closed:
            age = self._clock() - lane.waiting[-1].stored.accepted_at
            if not 0 <= age < pause:  # below 0: the clock was set back
                return
            await asyncio.sleep(pause - age)
