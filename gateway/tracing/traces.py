"""Recording traces: steps are gathered in memory and written in batches in the background; asking for them.

A message never waits for its trace, and none of it goes wrong for a trace's sake: a kill costs the last second of
traces, a disk that takes none costs those of that time.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from channels.message import InboundMessage
from gateway.config.sections import TraceSettings
from gateway.logs import log_failure
from gateway.storage.database import Database, DatabaseBroken, DatabaseUnusable
from gateway.tracing import frames, store
from gateway.tracing.frames import Asked, Frame
from gateway.tracing.store import Gathered
from gateway.tracing.trace import (
    Fact,
    Kind,
    Rejected,
    Trace,
    TracePage,
    TraceQuery,
    outcome_after,
    trace_id,
)
from memory.conversation import ConversationId, LaneKey

log = logging.getLogger("sanqiao.trace")

TRACES = "trace.db"
"""The file's name in the workspace."""
FLUSH_SECONDS = 0.5
MOST_STEPS = 20_000
"""How many steps wait in memory at most; above that they are left out."""
_HOUSEKEEPING_SECONDS = 3600.0
_EXCERPT = 120
_READ = 400
_REASON = 300
_FORGOTTEN, _FORGOTTEN_SECONDS = 1000, 7200.0
_DAY = 86400.0
_MEGABYTE = 1 << 20

_EXPLAINS = (Kind.REFUSED, Kind.FAILED, Kind.UNSENT, Kind.EXPIRED, Kind.SHELVED, Kind.LEFT)
"""The steps whose reason is the trace's."""

T = TypeVar("T")
_Key = tuple[str, str, str]


class Traces:
    """What happened to messages. Nothing here raises but the questions (sqlite3.Error).

    `mask` makes a text fit to be kept before an agent is chosen ("": nothing of it may be). `listen` is told every
    step, for the metrics.
    """

    def __init__(
        self,
        path: Path,
        *,
        settings: Callable[[], TraceSettings],
        mask: Callable[[str], str],
        clock: Callable[[], float],
        listen: Callable[[InboundMessage, Kind, dict[str, Fact], Asked | None], None] | None = None,
    ) -> None:
        self._path = path
        self._settings = settings
        self._mask = mask
        self._clock = clock
        self._listen = listen
        self._database: Database | None = None
        self._gathered: dict[_Key, Gathered] = {}
        self._rejected: dict[tuple[int, str, int], int] = {}
        self._count = 0
        self._lost = 0
        self._forgotten: OrderedDict[str, tuple[float, set[_Key]]] = OrderedDict()
        self._failing = False

    # ---- recording

    def note(self, message: InboundMessage, kind: Kind, asked: Asked | None = None, /, **facts: Fact) -> None:
        """One step of this message (see Note). `conversation` and `reason` among the facts are also the trace's own."""
        try:
            self._take(message, kind, asked, facts)
        except Exception as error:  # border of the traces: no message is ever worse off for them
            log_failure(log, f"step not noted kind={kind}", error)

    def _take(self, message: InboundMessage, kind: Kind, asked: Asked | None, facts: dict[str, Fact]) -> None:
        if self._listen is not None:
            self._listen(message, kind, facts, asked)
        key = (message.lane.channel, message.account, message.id)
        gathered = self._gathered.get(key)
        if gathered is None:
            if self._database is None or not self._may_be_kept(
                key, kind, message.user, _message_name(message.lane, message.id)
            ):
                return
            gathered = self._gathered[key] = Gathered(
                trace_id(*key),
                message.id,
                message.entry,
                message.lane.channel,
                message.user,
                message.platform_user,
                str(message.lane),
            )
        if not self._may_be_kept(key, kind, message.lane.user, str(message.lane)):
            asked = None  # what a group's request quoted, or a summary told, may be forgotten by now
        if kind is Kind.RECEIVED:
            gathered.text = self._mask(message.text[:_READ])[:_EXCERPT]
        self._add(gathered, kind, facts, asked)

    def reject(self, route: str, status: int) -> None:
        """A request was turned away before anything of it was believed: it is counted."""
        key = (int(self._clock() // 60), route, status)
        self._rejected[key] = self._rejected.get(key, 0) + 1

    def _add(self, gathered: Gathered, kind: Kind, facts: dict[str, Fact], asked: Asked | None) -> None:
        if self._count >= MOST_STEPS:
            self._lost += 1
            return
        self._count += 1
        gathered.outcome = outcome_after(gathered.outcome, kind, facts)
        if (conversation := facts.pop("conversation", None)) is not None:
            gathered.conversation = str(conversation)
        if kind in _EXPLAINS and (reason := facts.get("reason") or facts.get("text")):
            gathered.reason = str(reason)[:_REASON]
        gathered.steps.append((kind, self._clock(), facts, asked))

    def _may_be_kept(self, key: _Key, kind: Kind, *names: str) -> bool:
        """Of what was forgotten (persons, messages), and of requests in such lanes, only what came after it."""
        if not self._forgotten:
            return True
        forgotten = [found[1] for name in names if (found := self._forgotten.get(name))]
        if kind is Kind.RECEIVED:
            for since in forgotten:
                since.add(key)
        return all(key in since for since in forgotten)

    # ---- life

    async def open(self) -> None:
        """Opens the file, or begins a new one where it cannot be read; without any the gateway goes on all the same."""
        try:
            self._database = await asyncio.to_thread(self._opened)
        except DatabaseUnusable as error:
            log.error("no traces reason=%s", error)
        except (sqlite3.Error, OSError) as error:
            log.error("no traces path=%s error=%s remedy=请检查磁盘和权限，然后重启", self._path, error)

    def _opened(self) -> Database:
        for last in (False, True):
            database = Database(self._path, store.SCHEMA, durable=False)
            try:
                database.open()
            except DatabaseBroken as error:
                if last:
                    raise
                log.error("traces begun anew path=%s error=%s", self._path, error.__cause__)
                for suffix in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            else:
                return database
        raise AssertionError("unreachable")

    async def run(self) -> None:
        """Writes what was gathered, again and again, and clears away what is too old; until cancelled."""
        cleared = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()
            if loop.time() - cleared > _HOUSEKEEPING_SECONDS or not cleared:
                cleared = loop.time()
                await self._clear()

    async def close(self) -> None:
        """Writes what is left."""
        await self.flush()
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    async def flush(self) -> None:
        """Writes what was gathered so far; what cannot be written is gone."""
        gathered, rejected, count, lost = self._gathered, self._rejected, self._count, self._lost
        if lost:
            log.warning("traces left out steps=%d", lost)
        self._gathered, self._rejected, self._count, self._lost = {}, {}, 0, 0
        if self._database is None or not (gathered or rejected):
            return
        most = self._settings().max_mb * _MEGABYTE

        def work(db: sqlite3.Connection) -> None:
            store.write(db, gathered.values())
            store.write_rejected(db, rejected)
            store.shrink(db, most)

        try:
            await self._database.run(work)
        except Exception as error:  # border of the traces: no message is ever worse off for them
            if not self._failing:
                log_failure(log, f"traces not written steps={count}", error)
            self._failing = True
        else:
            self._failing = False

    async def _clear(self) -> None:
        now = self._clock()
        while self._forgotten and now - next(iter(self._forgotten.values()))[0] > _FORGOTTEN_SECONDS:
            self._forgotten.popitem(last=False)
        before = now - self._settings().keep_days * _DAY
        gone = 1
        with contextlib.suppress(sqlite3.Error):  # `flush` tells of a disk that fails
            while gone and self._database is not None:
                gone = await self._database.run(lambda db: store.purge(db, before))

    # ---- asking

    async def find(self, query: TraceQuery, before: int | None = None, limit: int = 50) -> TracePage:
        """One page of traces without their steps, newest first. Raises sqlite3.Error."""
        return await self._ask(lambda db: store.find(db, query, before, limit), TracePage(()))

    async def get(self, id: str) -> Trace | None:
        """One trace with its steps; None for one there is not (any more). Raises sqlite3.Error."""
        return await self._ask(lambda db: store.get(db, id), None)

    async def frame(self, id: str) -> Frame | None:
        """What a request held beside the conversation. Raises sqlite3.Error."""
        return await self._ask(lambda db: frames.get(db, id), None)

    async def rejected(self, limit: int = 50) -> Sequence[Rejected]:
        """The newest minutes in which requests were turned away. Raises sqlite3.Error."""
        return await self._ask(lambda db: store.rejected(db, limit), ())

    async def _ask(self, work: Callable[[sqlite3.Connection], T], without: T) -> T:
        if self._database is None:
            return without
        await self.flush()  # so that what has just happened is found
        return await self._database.run(work)

    async def forget(self, user: str, groups: Sequence[LaneKey] = ()) -> int:
        """Removes a person's traces, now and of what is still under way; how many. Raises sqlite3.Error.

        `groups` are the shared lanes in which they spoke: the system messages kept of those may quote them.
        """
        owners = [lane.user for lane in groups]
        self._refuse(user, *owners)
        self._gathered = {key: each for key, each in self._gathered.items() if each.user != user}
        for gathered in self._gathered.values():
            if gathered.lane.partition(":")[0] in owners:
                gathered.steps = [(kind, at, facts, None) for kind, at, facts, _ in gathered.steps]
        return await self._removed(lambda db: store.forget(db, user, owners))

    async def forget_turn(self, conversation: ConversationId, messages: Sequence[str], n: int) -> int:
        """Removes the traces of these messages, which are one turn; how many. Raises sqlite3.Error.

        The system messages kept of requests that had a summary of the turn with ordinal `n` go too.
        """
        lane = str(conversation.lane)
        self._refuse(lane, *(_message_name(conversation.lane, each) for each in messages))
        theirs = [key for key, each in self._gathered.items() if each.lane == lane and each.message in messages]
        for key in theirs:
            del self._gathered[key]
        for gathered in self._gathered.values():
            if gathered.lane == lane:
                gathered.steps = [(kind, at, facts, None) for kind, at, facts, _ in gathered.steps]
        return await self._removed(lambda db: store.forget_turn(db, conversation, messages, n))

    def _refuse(self, *names: str) -> None:
        """What is noted of these from now on is kept only if it began after this."""
        for each in names:
            self._forgotten.pop(each, None)
            self._forgotten[each] = (self._clock(), set())
        while len(self._forgotten) > _FORGOTTEN:
            self._forgotten.popitem(last=False)

    async def _removed(self, work: Callable[[sqlite3.Connection], int]) -> int:
        """What `work` gives, with all that it deletes gone from every byte of the file. Raises sqlite3.Error."""
        self._count = sum(len(each.steps) for each in self._gathered.values())
        if self._database is None:
            if await asyncio.to_thread(self._path.exists):
                raise sqlite3.OperationalError(f"{self._path} 打不开，其中的轨迹没有删除；请停止网关，把这个文件移走")
            return 0
        gone = await self._database.run(work)
        await self._database.empty_log()
        return gone


def _message_name(lane: LaneKey, message: str) -> str:
    return f"{lane} {message}"
