"""The shelter in gateway.db: turns whose files could not take them, until they do. Their texts are masked already."""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from gateway.storage.database import Database
from memory.backlog import ShelterFailed
from memory.conversation import ConversationId, InvalidId, Turn
from memory.handwritten import NotAnItem
from memory.yamlform import read_item, write_item

log = logging.getLogger("sanqiao.memory")

SCHEMA = """
CREATE TABLE IF NOT EXISTS owed_turns (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL, id TEXT NOT NULL,
    user TEXT NOT NULL, speaker TEXT, question TEXT,    -- whose it is, who said it, what it answers
    item BLOB NOT NULL,                                 -- the turn as its file would hold it, without an ordinal
    UNIQUE (conversation, id)
);
"""

_T = TypeVar("_T")


class OwedTurns:
    """See memory.backlog.Shelter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return await self._database.run(work)
        except sqlite3.Error as error:
            raise ShelterFailed(f"gateway.db：{error}") from error

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        """Keeps turns behind those it has; an id it has already stays as it is. Raises ShelterFailed."""
        key, user = str(conversation), conversation.lane.user
        rows = [(key, turn.id, user, turn.user, turn.to, write_item(turn)) for turn in turns]
        sql = "INSERT OR IGNORE INTO owed_turns (conversation, id, user, speaker, question, item) VALUES (?,?,?,?,?,?)"
        await self._run(lambda db: db.executemany(sql, rows) and None)

    async def remove(self, conversation: ConversationId, ids: Sequence[str]) -> None:
        """Removes the turns with these ids. Raises ShelterFailed."""
        rows = [(str(conversation), id) for id in ids]
        sql = "DELETE FROM owed_turns WHERE conversation = ? AND id = ?"
        await self._run(lambda db: db.executemany(sql, rows) and None)

    async def load(self) -> list[tuple[ConversationId, Turn]]:
        """All turns it has, in the order in which they were kept. Raises ShelterFailed."""
        rows = await self._run(
            lambda db: db.execute("SELECT conversation, id, item FROM owed_turns ORDER BY seq").fetchall()
        )
        found = []
        for row in rows:
            try:
                found.append((ConversationId.parse(row["conversation"]), read_item(bytes(row["item"]))))
            except (InvalidId, NotAnItem) as error:
                log.error("owed_turn_unreadable conversation=%s id=%s error=%r", row["conversation"], row["id"], error)
        return found

    async def forget(self, user: str) -> None:
        """Removes what is a person's, what they said in shared groups, and what answers it. Raises ShelterFailed."""

        def work(db: sqlite3.Connection) -> None:
            said = "SELECT conversation, id FROM owed_turns WHERE speaker = ?"
            db.execute(f"DELETE FROM owed_turns WHERE (conversation, question) IN ({said})", (user,))
            db.execute("DELETE FROM owed_turns WHERE user = ? OR speaker = ?", (user, user))

        await self._run(work)
