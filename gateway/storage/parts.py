"""Parts of answers: which wait to be sent, which lie on the shelf for the person's next contact, which arrived."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from channels.channel import ShelvedPart
from gateway.storage.database import Database
from memory.conversation import LaneKey

SCHEMA = """
CREATE TABLE IF NOT EXISTS parts (
    turn INTEGER NOT NULL, number INTEGER NOT NULL, total INTEGER NOT NULL, lane TEXT NOT NULL,
    text TEXT NOT NULL,              -- '' once sent
    state TEXT NOT NULL,             -- waiting | shelved (for the next contact) | sent | dropped
    platform_id TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (turn, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_waiting ON parts (turn) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS parts_shelved ON parts (lane, turn, number) WHERE state = 'shelved';
"""


@dataclass(frozen=True, slots=True)
class WaitingPart:
    """One part not sent yet."""

    number: int
    total: int
    text: str


class Parts:
    """What becomes of the parts that the inbox wrote with an answer; a turn is named by its number in the inbox.

    With its last part an answered turn is delivered, or failed, and that is written to its messages in the same step.
    Times are unix seconds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._with_shelf: set[str] | None = None  # lanes that may have parts on the shelf; belongs to database's thread

    async def waiting(self, turn: int) -> list[WaitingPart]:
        """The parts of a turn's answer that are not sent yet, in order."""

        def work(db: sqlite3.Connection) -> list[WaitingPart]:
            rows = db.execute(
                "SELECT number, total, text FROM parts WHERE turn = ? AND state = 'waiting' ORDER BY number",
                (turn,),
            )
            return [WaitingPart(row["number"], row["total"], row["text"]) for row in rows]

        return await self._database.run(work)

    async def sent(self, turn: int, number: int, platform_id: str, now: float, *, only: bool = False) -> None:
        """A part arrived. With the last one an answered turn is delivered, and its texts are blanked.

        `only`: there are no others.
        """

        def work(db: sqlite3.Connection) -> bool:
            db.execute(
                "UPDATE parts SET state = 'sent', text = '', platform_id = ? WHERE turn = ? AND number = ?",
                (platform_id, turn, number),
            )
            if (
                not only
                and db.execute(
                    "SELECT 1 FROM parts WHERE turn = ? AND state IN ('waiting', 'shelved') LIMIT 1", (turn,)
                ).fetchone()
            ):
                return False
            rows = db.execute(
                "UPDATE messages SET message = '', changed_at = iif(state = 'answered', ?, changed_at),"
                " state = iif(state = 'answered', 'delivered', state) WHERE turn = ? RETURNING user",
                (now, turn),
            ).fetchall()
            return any(row["user"] == "" for row in rows) and blank(db, turn)

        if await self._database.run(work):
            await self._database.empty_log()

    async def give_up(self, turn: int, now: float) -> None:
        """What is left of an answer will never arrive."""

        def work(db: sqlite3.Connection) -> bool:
            db.execute(
                "UPDATE parts SET state = 'dropped', text = '' WHERE turn = ? AND state IN ('waiting', 'shelved')",
                (turn,),
            )
            db.execute(
                "UPDATE messages SET state = 'failed', changed_at = ? WHERE turn = ? AND state = 'answered'",
                (now, turn),
            )
            return blank(db, turn)

        if await self._database.run(work):
            await self._database.empty_log()

    async def shelve(self, turn: int, number: int) -> None:
        """The parts from `number` on wait for the person's next contact."""

        def work(db: sqlite3.Connection) -> None:
            rows = db.execute(
                "UPDATE parts SET state = 'shelved' WHERE turn = ? AND number >= ? AND state = 'waiting' RETURNING lane",
                (turn, number),
            ).fetchall()
            if self._with_shelf is not None:
                self._with_shelf.update(row["lane"] for row in rows)

        await self._database.run(work)

    async def shelved(self, lane: LaneKey, since: float) -> list[ShelvedPart]:
        """The parts of a lane on the shelf, oldest first, of messages accepted at `since` or later.

        Most lanes have none, and each contact asks: what is known of those costs nothing.
        """
        key = str(lane)
        if self._with_shelf is not None and key not in self._with_shelf:
            return []

        def work(db: sqlite3.Connection) -> list[ShelvedPart]:
            if self._with_shelf is None:
                found = db.execute("SELECT DISTINCT lane FROM parts WHERE state = 'shelved'")
                self._with_shelf = {row["lane"] for row in found}
            rows = db.execute(
                "SELECT p.*, (SELECT id FROM messages n WHERE n.turn = p.turn ORDER BY seq DESC LIMIT 1) AS message_id"
                " FROM parts p JOIN messages m ON m.seq = p.turn"
                " WHERE p.lane = ? AND p.state = 'shelved' AND m.accepted_at >= ? ORDER BY p.turn, p.number",
                (key, since),
            ).fetchall()
            if not rows:
                self._with_shelf.discard(key)
            return [ShelvedPart(r["turn"], r["number"], r["total"], r["text"], r["message_id"]) for r in rows]

        return await self._database.run(work)

    async def shelved_turns(self, before: float) -> list[int]:
        """Turns with parts on the shelf whose message was accepted before `before`."""

        def work(db: sqlite3.Connection) -> list[int]:
            rows = db.execute(
                "SELECT DISTINCT p.turn AS turn FROM parts p JOIN messages m ON m.seq = p.turn"
                " WHERE p.state = 'shelved' AND m.accepted_at < ?",
                (before,),
            )
            return [row["turn"] for row in rows]

        return await self._database.run(work)


def insert_parts(db: sqlite3.Connection, turn: int, lane: str, texts: Sequence[str]) -> None:
    """The parts of an answer, to be sent; those that are there already stay as they are."""
    db.executemany(
        "INSERT OR IGNORE INTO parts (turn, number, total, lane, text, state) VALUES (?, ?, ?, ?, ?, 'waiting')",
        [(turn, number, len(texts), lane, text) for number, text in enumerate(texts)],
    )


def drop_waiting(db: sqlite3.Connection, before: float) -> list[int]:
    """Drops unsent parts of messages accepted before `before` (those on the shelf stay); returns their turns."""
    rows = db.execute(
        "UPDATE parts SET state = 'dropped', text = '' WHERE state = 'waiting'"
        " AND turn IN (SELECT seq FROM messages WHERE accepted_at < ?) RETURNING turn",
        (before,),
    )
    return sorted({row["turn"] for row in rows})


def blank(db: sqlite3.Connection, turn: int) -> bool:
    """Removes the texts of a turn's messages: its answer has arrived, or never will.

    Of the message by which a person asked to be forgotten (a row of nobody) nothing stays; whether it was that.
    """
    if db.execute("DELETE FROM messages WHERE turn = ? AND user = ''", (turn,)).rowcount:
        db.execute("DELETE FROM parts WHERE turn = ?", (turn,))
        return True
    db.execute("UPDATE messages SET message = '' WHERE turn = ?", (turn,))
    return False
