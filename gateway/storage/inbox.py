"""The inbox: what was accepted, what became of it, which parts of answers are still to be sent.

A message is claimed by (channel, account, message id) and stored in one step; when `accept` returns it is on disk. A
restart finds here what to run again and what to send again. Raw text stays only until its answer is delivered.
"""

import sqlite3
from collections.abc import Sequence

from channels.message import InboundMessage
from gateway.route import LaneState, Route
from gateway.storage import lane_states, link_codes, token_use
from gateway.storage.database import Database
from gateway.storage.lane_states import LaneStates
from gateway.storage.link_codes import LinkCodes
from gateway.storage.marks import SCHEMA as MARKS
from gateway.storage.marks import Marks, guard, keep_guards, remove_mark, was_forgotten
from gateway.storage.parts import SCHEMA as PARTS
from gateway.storage.parts import blank, drop_waiting, insert_parts
from gateway.storage.stored_message import (
    Duplicate,
    Group,
    Pending,
    State,
    Stored,
    as_json,
    asks_to_be_forgotten,
    group_in,
    is_of,
    message_in,
    readable,
    stored_in,
)
from gateway.storage.token_use import Spent
from memory.conversation import ConversationId, LaneKey

MESSAGES = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL, account TEXT NOT NULL, id TEXT NOT NULL,
    lane TEXT NOT NULL, user TEXT NOT NULL,
    message TEXT NOT NULL,           -- InboundMessage as JSON; '' once its answer is delivered
    state TEXT NOT NULL,
    accepted_at REAL NOT NULL, changed_at REAL NOT NULL,
    turn INTEGER,                    -- seq of the first message of the group this one was taken with
    conversation TEXT, reason TEXT,  -- what chose the agent, a blank, the reason in words
    UNIQUE (channel, account, id)
);
CREATE INDEX IF NOT EXISTS messages_waiting ON messages (lane, seq) WHERE state IN ('accepted', 'taken');
CREATE INDEX IF NOT EXISTS messages_turn ON messages (turn) WHERE turn IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_age ON messages (accepted_at);
"""

SCHEMA = MESSAGES + PARTS + MARKS + lane_states.SCHEMA + token_use.SCHEMA + link_codes.SCHEMA
"""All tables of the inbox."""


class Inbox:
    """Messages from their acceptance to their answer, and what lanes remember; times are unix seconds.

    Parts of answers are `gateway.storage.parts`'s once they are written with the answer here; what one forgotten turn left in
    these tables goes by `gateway.turn_forgetting`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.marks = Marks(database)
        self.link_codes = LinkCodes(database)
        self.lane_states = LaneStates(database)

    async def accept(self, message: InboundMessage, now: float) -> Stored | Duplicate:
        """Claims and stores a message in one step; a second claim changes nothing."""
        lane = message.lane
        key = (lane.channel, message.account, message.id)
        mark = guard(*key)
        row = (*key, str(lane), message.user, as_json(message), now, now, mark)

        def work(db: sqlite3.Connection) -> Stored | Duplicate:
            cursor = db.execute(
                "INSERT OR IGNORE INTO messages (channel, account, id, lane, user, message, state, accepted_at,"
                " changed_at) SELECT ?, ?, ?, ?, ?, ?, 'accepted', ?, ?"
                " WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE guard = ?)",
                row,
            )
            if cursor.rowcount and cursor.lastrowid:
                return Stored(cursor.lastrowid, now, message)
            if was_forgotten(db, mark):
                return Duplicate(State.FORGOTTEN)
            old = db.execute("SELECT state FROM messages WHERE channel = ? AND account = ? AND id = ?", key)
            return Duplicate(State(old.fetchone()["state"]))

        return await self._database.run(work)

    async def take(self, group: Group, conversation: ConversationId, route: Route, now: float) -> bool:
        """Freezes the group and its route before anything of it is written elsewhere: a crash cannot regroup it.

        False where the group is gone: it was forgotten meanwhile.
        """
        written = f"{route.by} {route.reason}"
        rows = [(group.turn, str(conversation), written, now, stored.seq) for stored in group.stored]

        def work(db: sqlite3.Connection) -> bool:
            changed = db.executemany(
                "UPDATE messages SET state = 'taken', turn = ?, conversation = ?, reason = ?, changed_at = ?"
                " WHERE seq = ? AND state != 'forgotten'",
                rows,
            )
            return changed.rowcount > 0

        return await self._database.run(work)

    async def finish(
        self,
        group: Group,
        state: State,
        parts: Sequence[str],
        now: float,
        lane: LaneState | None = None,
        *,
        spent: Spent | None = None,
    ) -> bool:
        """The group has its answer: its state, the parts to send, what the lane remembers, what it took, in one step.

        Nothing of it, and False, where the group is gone: its person, or this question, was forgotten meanwhile.
        """
        key = str(group.newest.message.lane)
        seqs = [stored.seq for stored in group.stored]
        if state is State.ANSWERED and not parts:
            state = State.DELIVERED  # stopped before its first word: nothing is to be sent

        def work(db: sqlite3.Connection) -> tuple[bool, bool]:
            changed = db.executemany(
                "UPDATE messages SET state = ?, turn = ?, changed_at = ? WHERE seq = ? AND state != 'forgotten'",
                [(state, group.turn, now, seq) for seq in seqs],
            )
            if not changed.rowcount:
                return False, False
            insert_parts(db, group.turn, key, parts)
            if lane is not None:
                lane_states.write(db, key, lane)
            if spent is not None:
                token_use.add(db, spent)
            return True, not parts and blank(db, group.turn)

        recorded, emptied = await self._database.run(work)
        if emptied:
            await self._database.empty_log()
        return recorded

    async def asked(self, message: InboundMessage) -> tuple[ConversationId, str] | None:
        """Where this message was taken to, and the id of its user turn there; None when it was not (yet)."""
        key = (message.lane.channel, message.account, message.id)

        def work(db: sqlite3.Connection) -> tuple[ConversationId, str] | None:
            row = db.execute(
                "SELECT f.id AS id, f.conversation AS conversation FROM messages m JOIN messages f ON f.seq = m.turn"
                " WHERE m.channel = ? AND m.account = ? AND m.id = ?",
                key,
            ).fetchone()
            if row is None or row["conversation"] is None:
                return None
            return ConversationId.parse(row["conversation"]), row["id"]

        return await self._database.run(work)

    async def expire(self, before: float, now: float) -> list[tuple[int, str]]:
        """What was accepted before `before` and not answered, or not sent, ever is expired; returns (seq, lane).

        Who asked to be forgotten is forgotten, however late.
        """

        def work(db: sqlite3.Connection) -> list[tuple[int, str]]:
            turns = drop_waiting(db, before)
            old = db.execute(
                "SELECT seq, lane, message FROM messages WHERE state IN ('accepted', 'taken') AND accepted_at < ?",
                (before,),
            )
            rows = [row for row in old.fetchall() if not asks_to_be_forgotten(row)]
            db.executemany(
                "UPDATE messages SET state = 'expired', changed_at = ?, message = '' WHERE seq = ?",
                [(now, row["seq"]) for row in rows],
            )
            for turn in turns:
                rows += db.execute(
                    "UPDATE messages SET state = 'expired', changed_at = ?, message = ''"
                    " WHERE turn = ? AND state = 'answered' RETURNING seq, lane",
                    (now, turn),
                )
                blank(db, turn)
            return [(row["seq"], row["lane"]) for row in rows]

        return await self._database.run(work)

    async def taken(self) -> list[Group]:
        """Groups that were being handled when the process ended, oldest first."""

        def work(db: sqlite3.Connection) -> list[Group]:
            rows = readable(
                db, db.execute("SELECT * FROM messages WHERE state = 'taken' ORDER BY turn, seq").fetchall()
            )
            groups: dict[int, list[sqlite3.Row]] = {}
            for row in rows:
                groups.setdefault(row["turn"], []).append(row)
            return [group_in(rows) for rows in groups.values()]

        return await self._database.run(work)

    async def is_taken(self, turn: int) -> bool:
        """Whether the turn with this number is being handled: its group and its route are frozen."""
        query = "SELECT 1 FROM messages WHERE turn = ? AND state = 'taken'"
        return await self._database.run(lambda db: db.execute(query, (turn,)).fetchone() is not None)

    async def waiting_lanes(self) -> list[str]:
        """Lanes with messages that nobody has taken yet."""

        def work(db: sqlite3.Connection) -> list[str]:
            rows = db.execute("SELECT lane, MIN(seq) AS first FROM messages WHERE state = 'accepted' GROUP BY lane")
            return [row["lane"] for row in sorted(rows, key=lambda row: row["first"])]

        return await self._database.run(work)

    async def asking_to_be_forgotten(self) -> list[Stored]:
        """Messages that ask for that and were not done with when the process ended, oldest first."""

        def work(db: sqlite3.Connection) -> list[Stored]:
            rows = db.execute("SELECT * FROM messages WHERE state = 'accepted' ORDER BY seq")
            return [stored_in(row) for row in rows if asks_to_be_forgotten(row)]

        return await self._database.run(work)

    async def waiting(self, lane: str, after: int, limit: int) -> list[Stored]:
        """Messages of a lane that nobody has taken yet, oldest first, with a seq above `after`."""

        def work(db: sqlite3.Connection) -> list[Stored]:
            rows = db.execute(
                "SELECT * FROM messages WHERE lane = ? AND state = 'accepted' AND seq > ? ORDER BY seq LIMIT ?",
                (lane, after, limit),
            )
            return [stored_in(row) for row in readable(db, rows.fetchall())]

        return await self._database.run(work)

    async def pending(self) -> list[Pending]:
        """Answers of which parts are still to be sent, oldest first."""

        def work(db: sqlite3.Connection) -> list[Pending]:
            rows = db.execute(
                "SELECT m.*, MAX(m.seq) FROM messages m JOIN"
                " (SELECT DISTINCT turn FROM parts WHERE state = 'waiting') p ON m.turn = p.turn"
                " GROUP BY m.turn ORDER BY m.turn"
            )
            return [Pending(row["turn"], stored_in(row)) for row in readable(db, rows.fetchall())]

        return await self._database.run(work)

    async def counts(self) -> dict[str, int]:
        """How many messages wait and how many parts are unsent, for the status page."""

        def work(db: sqlite3.Connection) -> dict[str, int]:
            waiting = db.execute("SELECT COUNT(*) FROM messages WHERE state IN ('accepted', 'taken')").fetchone()[0]
            unsent = db.execute("SELECT COUNT(*) FROM parts WHERE state = 'waiting'").fetchone()[0]
            return {"waiting": waiting, "unsent": unsent}

        return await self._database.run(work)

    async def tokens_used(self, accounts: Sequence[str], day: str) -> int:
        """How many tokens the answers to these accounts of one person took on that day (``2026-11-30``)."""
        return await self._database.run(lambda db: token_use.used(db, accounts, day))

    async def oldest(self) -> float | None:
        """When the oldest message was accepted that is not answered yet; None where none waits."""
        query = "SELECT MIN(accepted_at) FROM messages WHERE state IN ('accepted', 'taken')"
        found: float | None = await self._database.run(lambda db: db.execute(query).fetchone()[0])
        return found

    async def outline(self, seq: int) -> InboundMessage | None:
        """Who sent which message where, also when its text is blanked: no text, no way to reply."""
        query = "SELECT account, id, lane, user FROM messages WHERE seq = ?"
        row = await self._database.run(lambda db: db.execute(query, (seq,)).fetchone())
        if row is None:
            return None
        lane = LaneKey.parse(row["lane"])
        return InboundMessage(
            entry="", account=row["account"], id=row["id"], lane=lane, user=row["user"], platform_user="", text=""
        )

    async def purge(self, before: float) -> int:
        """Forgets ended messages accepted before `before`; their ids are no longer recognised as duplicates."""

        def work(db: sqlite3.Connection) -> int:
            rows = db.execute(
                "DELETE FROM messages WHERE accepted_at < ? AND state NOT IN ('accepted', 'taken', 'answered')"
                " AND (turn IS NULL OR turn NOT IN (SELECT turn FROM parts WHERE state IN ('waiting', 'shelved')))",
                (before,),
            )
            db.execute("DELETE FROM parts WHERE turn NOT IN (SELECT turn FROM messages WHERE turn IS NOT NULL)")
            db.execute("DELETE FROM forgotten WHERE at < ?", (before,))
            token_use.purge(db, before)
            return rows.rowcount

        return await self._database.run(work)

    async def forget(self, user: str, keep: Stored | None = None) -> tuple[int, list[Stored]]:
        """Deletes a person's messages with their parts, and what their lanes remember; only a hash of each id stays.

        `keep` is the message that asks for it: it becomes nobody's, and goes once its answer has arrived. The mark goes
        in the same step. Returns how many messages were deleted, and those of them that had no answer yet.
        """
        kept = keep.seq if keep else -1

        def work(db: sqlite3.Connection) -> tuple[int, list[Stored]]:
            rows = db.execute("SELECT * FROM messages WHERE user IN (?, '')", (user,)).fetchall()
            rows = [row for row in rows if row["user"] or is_of(user, row)]
            keep_guards(db, [(guard(row["channel"], row["account"], row["id"]), row["accepted_at"]) for row in rows])
            gone = [row for row in rows if row["seq"] != kept]
            db.executemany("DELETE FROM parts WHERE turn = ?", {(row["turn"],) for row in gone})
            db.executemany("DELETE FROM messages WHERE seq = ?", [(row["seq"],) for row in gone])
            db.execute("UPDATE messages SET user = '' WHERE seq = ?", (kept,))
            lane_states.forget(db, user)
            token_use.forget(db, user)
            link_codes.forget(db, user)
            remove_mark(db, user)
            waiting = [row for row in gone if row["state"] in (State.ACCEPTED, State.TAKEN)]
            return sum(row["user"] != "" for row in gone), [
                stored_in(row) for row in waiting if message_in(row) is not None
            ]

        return await self._database.run(work)

    async def empty_log(self) -> bool:
        """Puts all that was deleted out of every byte of the database's files; whether that was possible."""
        return await self._database.empty_log()
