"""Marks of forgetting in the inbox's database: who is being forgotten right now, and which messages were.

The first stand until nothing of the person is left, so that a kill in the midst is made good by the next start. One of
nobody then says that the file may hold bytes of what was deleted. The second are hashes: a message that a platform
repeats is known for one that was forgotten, and nothing else of it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable

from gateway.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS forgetting (user TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (
    guard BLOB PRIMARY KEY, at REAL NOT NULL     -- a hash of channel, account and id: still known as a duplicate
) WITHOUT ROWID;
"""


class Marks:
    """The persons who are being forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, users: Iterable[str]) -> None:
        """From now on, until each one's mark is removed, a start finishes it. Raises sqlite3.Error."""
        rows = [(user,) for user in users]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR IGNORE INTO forgetting (user) VALUES (?)", rows)

        await self._database.run(work)

    async def remove(self, users: Iterable[str]) -> None:
        """It is not to be finished: whoever asked was told that it failed. Raises sqlite3.Error."""
        names = tuple(users)

        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM forgetting WHERE user = ?", [(user,) for user in names])

        await self._database.run(work)

    async def all(self) -> list[str]:
        """Who is being forgotten, or was when the process ended. Raises sqlite3.Error."""

        def work(db: sqlite3.Connection) -> list[str]:
            return [row["user"] for row in db.execute("SELECT user FROM forgetting WHERE user != '' ORDER BY user")]

        return await self._database.run(work)

    async def unclean(self) -> bool:
        """Whether the file may hold bytes of what was deleted. Raises sqlite3.Error."""
        sql = "SELECT 1 FROM forgetting WHERE user = ''"
        return await self._database.run(lambda db: db.execute(sql).fetchone() is not None)


def remove_mark(db: sqlite3.Connection, user: str) -> None:
    """Nothing is left of the person, but perhaps in bytes that the file does not use any more."""
    db.execute("DELETE FROM forgetting WHERE user = ?", (user,))
    mark_unclean(db)


def mark_unclean(db: sqlite3.Connection) -> None:
    """The file may hold bytes of what was deleted: the next start writes it anew."""
    db.execute("INSERT OR IGNORE INTO forgetting (user) VALUES ('')")


def guard(channel: str, account: str, id: str) -> bytes:
    """What stays of a forgotten message, so that it is not handled again when a platform repeats it."""
    text = json.dumps([channel, account, id], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()[:16]


def was_forgotten(db: sqlite3.Connection, guard: bytes) -> bool:
    """Whether the message of this hash was."""
    return db.execute("SELECT 1 FROM forgotten WHERE guard = ?", (guard,)).fetchone() is not None


def keep_guards(db: sqlite3.Connection, guards: Iterable[tuple[bytes, float]]) -> None:
    """Keeps hashes with the time (unix seconds) at which each message was accepted."""
    db.executemany("INSERT OR IGNORE INTO forgotten (guard, at) VALUES (?, ?)", guards)
