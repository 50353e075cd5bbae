"""A rebuildable index of the conversations: the files are the truth, this only makes listing them quick."""

import asyncio
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.storage.database import Database
from memory.conversation import ConversationId
from memory.errors import StoreError
from memory.memory import Memory
from memory.store import FileInfo

log = logging.getLogger("sanqiao.index")

_AT_ONCE = 500
_Row = tuple[str, str, str, int, str, int, str]
_WRITE = (
    "INSERT INTO conversations (id, user, channel, turns, last, bytes, entry) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET turns = excluded.turns, last = excluded.last, bytes = excluded.bytes,"
    " entry = CASE excluded.entry WHEN '' THEN entry ELSE excluded.entry END"
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, user TEXT NOT NULL, channel TEXT NOT NULL,
    turns INTEGER NOT NULL, last TEXT NOT NULL, bytes INTEGER NOT NULL,
    entry TEXT NOT NULL DEFAULT ''     -- the channel entry it last went through, '' where that is not known
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS conversations_newest ON conversations (last DESC, id DESC);
"""


class BadCursor(ValueError):
    """A `before` cursor that no page of conversations ever named."""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """One conversation of the list: number of turns, time of the last (ISO 8601; None: unknown), size in bytes."""

    id: ConversationId
    turns: int
    last: str | None
    bytes: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Conversations, newest first; `before` is the cursor of the next page, None on the last."""

    items: Sequence[ConversationItem]
    before: str | None


class ConversationIndex:
    """`touch` what changes; what was touched is looked up in its file before the next listing."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self._database = database
        self._memory = memory
        self._touched: dict[ConversationId, str] = {}
        self._flushing = asyncio.Lock()

    def touch(self, conversation: ConversationId, entry: str = "") -> None:
        """The file of this conversation changes, or is about to, by a message through this channel entry."""
        self._touched[conversation] = entry or self._touched.get(conversation, "")

    async def entry_of(self, conversation: ConversationId) -> str:
        """The channel entry the conversation last went through; "" where that is not known."""
        await self.flush()

        def work(db: sqlite3.Connection) -> str:
            row = db.execute("SELECT entry FROM conversations WHERE id = ?", (str(conversation),)).fetchone()
            return str(row["entry"]) if row else ""

        return await self._database.run(work)

    async def flush(self) -> None:
        """Writes what was touched into the index."""
        async with self._flushing:
            touched, self._touched = self._touched, {}
            try:
                await self._write_touched(touched)
            except BaseException:  # cancelled, or the database does not answer: it is looked up again next time
                self._touched = touched | self._touched
                raise

    async def _write_touched(self, touched: Mapping[ConversationId, str]) -> None:
        generation = self._memory.generations.now()
        infos = []
        for each in touched:
            try:
                info = await self._memory.info(each)
            except StoreError as error:  # the others are listed all the same
                log.error("file_not_indexed conversation=%s reason=%s", each, error)
                continue
            if info is not None:
                infos.append(info)
        await self._write(infos, generation, touched)

    async def refresh(self) -> None:
        """Brings the index in line with the files: after a crash, or when a person copied or removed some."""
        generation = self._memory.generations.now()
        touched, self._touched = self._touched, {}
        infos = await self._memory.scan()
        there = [(str(info.id),) for info in infos]

        def work(db: sqlite3.Connection) -> None:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS there (id TEXT PRIMARY KEY)")
            db.execute("DELETE FROM there")
            db.executemany("INSERT INTO there VALUES (?)", there)
            db.execute("DELETE FROM conversations WHERE id NOT IN (SELECT id FROM there)")

        await self._database.run(work)
        await self._write(infos, generation, touched)

    async def page(
        self,
        *,
        channel: str | None = None,
        user: str | None = None,
        q: str | None = None,
        direct: bool = False,
        before: str | None = None,
        limit: int = 50,
    ) -> ConversationPage:
        """Conversations, newest first; `q` is part of an id, `direct` leaves groups out. Raises BadCursor."""
        await self.flush()
        where, values = _conditions(channel, user, q, before)
        if direct:  # the fourth part of an id; no other part of one is a single digit
            where += " AND id LIKE '%:0:%'"
        sql = f"SELECT * FROM conversations WHERE {where} ORDER BY last DESC, id DESC LIMIT ?"

        def work(db: sqlite3.Connection) -> list[ConversationItem]:
            rows = db.execute(sql, (*values, limit + 1))
            return [
                ConversationItem(ConversationId.parse(row["id"]), row["turns"], row["last"] or None, row["bytes"])
                for row in rows
            ]

        found = await self._database.run(work)
        items = tuple(found[:limit])
        return ConversationPage(items, f"{items[-1].last or ''}|{items[-1].id}" if len(found) > limit else None)

    async def forget(self, user: str) -> None:
        """Drops a person's conversations, whose files are gone; what was read of them before comes too late."""
        self._memory.generations.forget(user)
        self._touched = {each: entry for each, entry in self._touched.items() if each.lane.user != user}

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM conversations WHERE user = ?", (user,))

        await self._database.run(work)

    async def _write(self, infos: Sequence[FileInfo], generation: int, entries: Mapping[ConversationId, str]) -> None:
        """Writes what the files were like; not of those whose person was forgotten since they were read.

        That is looked at on the database's thread: a forgetting that begins between two batches, or while one waits
        there, deletes after those that were written and is seen by those that are not.
        """
        passed = self._memory.generations.passed
        rows = [
            (str(i.id), i.id.lane.user, i.id.lane.channel, i.turns, i.last, i.bytes, entries.get(i.id, ""))
            for i in infos
        ]

        def work(some: Sequence[_Row], db: sqlite3.Connection) -> None:
            db.executemany(_WRITE, [row for row in some if not passed(generation, row[1])])

        for start in range(0, len(rows), _AT_ONCE):  # accepted messages do not wait behind all of them
            await self._database.run(partial(work, rows[start : start + _AT_ONCE]))


def _conditions(
    channel: str | None, user: str | None, q: str | None, before: str | None
) -> tuple[str, tuple[str, ...]]:
    parts, values = ["1"], []
    if channel:
        parts.append("channel = ?")
        values.append(channel)
    if user:
        parts.append("user = ?")
        values.append(user)
    if q:
        parts.append("instr(id, ?) > 0")
        values.append(q)
    if before:
        last, bar, identity = before.rpartition("|")
        if not bar:
            raise BadCursor("before 不是本接口给出的游标")
        parts.append("(last, id) < (?, ?)")
        values += [last, identity]
    return " AND ".join(parts), tuple(values)
