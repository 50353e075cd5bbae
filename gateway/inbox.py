"""The inbox: what was accepted, what became of it, which parts of answers are still to be sent.

A message is claimed by (channel, account, message id) and stored in one step; when `accept` returns it is on disk. A
restart finds here what to run again and what to send again. Raw text stays only until its answer is delivered.
"""

import contextlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from channels.message import InboundMessage, Notice
from gateway import link_codes, token_use
from gateway.commands import parse, said
from gateway.database import Database
from gateway.link_codes import LinkCodes
from gateway.marks import SCHEMA as MARKS
from gateway.marks import Marks, guard, keep_guards, remove_mark, was_forgotten
from gateway.parts import SCHEMA as PARTS
from gateway.parts import blank, drop_waiting, insert_parts
from gateway.router import By, LaneState, Route
from gateway.token_use import Spent
from memory.conversation import ConversationId, LaneKey

log = logging.getLogger("sanqiao.inbox")

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
CREATE TABLE IF NOT EXISTS lanes (
    lane TEXT PRIMARY KEY, agent TEXT NOT NULL, agent_at REAL NOT NULL, pinned INTEGER NOT NULL
) WITHOUT ROWID;
"""

SCHEMA = MESSAGES + PARTS + MARKS + token_use.SCHEMA + link_codes.SCHEMA
"""All tables of the inbox."""


class State(StrEnum):
    """What became of a message."""

    ACCEPTED = "accepted"
    TAKEN = "taken"
    ANSWERED = "answered"
    DELIVERED = "delivered"
    REFUSED = "refused"
    COMMAND = "command"
    EXPIRED = "expired"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Stored:
    """An accepted message with its place in the inbox and the time (unix seconds) it was accepted."""

    seq: int
    accepted_at: float
    message: InboundMessage


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was accepted before; what has become of it since."""

    state: State


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that are one turn. `rerun` after a restart, with the conversation and the route chosen before, if any."""

    stored: tuple[Stored, ...]
    rerun: bool = False
    conversation: ConversationId | None = None
    route: Route | None = None

    @property
    def turn(self) -> int:
        """The turn's number in the inbox."""
        return self.stored[0].seq

    @property
    def newest(self) -> Stored:
        """The message the answer goes to."""
        return self.stored[-1]

    @property
    def text(self) -> str:
        """What goes to the agent: all that was said, joined by line breaks."""
        return "\n".join(said(stored.message.text) for stored in self.stored)


_FIELDS = tuple(each.name for each in fields(InboundMessage))


def _to_json(message: InboundMessage) -> str:
    written = {name: getattr(message, name) for name in _FIELDS}
    written |= {"lane": str(message.lane), "reply": dict(message.reply)}
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode("utf-8")  # half an emoji cannot be stored


def _from_json(text: str) -> InboundMessage:
    fields = json.loads(text)
    notice = fields.pop("notice")
    lane = LaneKey.parse(fields.pop("lane"))
    return InboundMessage(lane=lane, notice=Notice(notice) if notice else None, **fields)


def _stored(row: sqlite3.Row) -> Stored:
    return Stored(row["seq"], row["accepted_at"], _from_json(row["message"]))


def _read(row: sqlite3.Row) -> InboundMessage | None:
    """The message of a row; None where another version wrote it, or its text is blanked."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return _from_json(row["message"])
    return None


def _is_of(user: str, row: sqlite3.Row) -> bool:
    """Whether this row of nobody is the message by which that person asked to be forgotten before."""
    message = _read(row)
    return message is not None and message.user == user


def _asks_to_be_forgotten(row: sqlite3.Row) -> bool:
    message = _read(row)
    command = parse(message.text) if message is not None else None
    return command is not None and command.name == "forget"


def _readable(db: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> list[sqlite3.Row]:
    """The rows this version can read; another one fails by itself and holds nobody up."""
    found = []
    for row in rows:
        if _read(row) is None:
            log.error("message unreadable, failed seq=%d", row["seq"])
            db.execute("UPDATE messages SET state = 'failed' WHERE seq = ?", (row["seq"],))
        else:
            found.append(row)
    return found


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer of which some parts are not sent yet."""

    turn: int
    stored: Stored


class Inbox:
    """Messages from their acceptance to their answer, and what lanes remember; times are unix seconds.

    Parts of answers are `gateway.parts`'s once they are written with the answer here; what one forgotten turn left in
    these tables goes by `gateway.turn_forgetting`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.marks = Marks(database)
        self.link_codes = LinkCodes(database)

    async def accept(self, message: InboundMessage, now: float) -> Stored | Duplicate:
        """Claims and stores a message in one step; a second claim changes nothing."""
        lane = message.lane
        key = (lane.channel, message.account, message.id)
        mark = guard(*key)
        row = (*key, str(lane), message.user, _to_json(message), now, now, mark)

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
                _set_lane_state(db, key, lane)
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
            rows = [row for row in old.fetchall() if not _asks_to_be_forgotten(row)]
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
            rows = _readable(
                db, db.execute("SELECT * FROM messages WHERE state = 'taken' ORDER BY turn, seq").fetchall()
            )
            groups: dict[int, list[sqlite3.Row]] = {}
            for row in rows:
                groups.setdefault(row["turn"], []).append(row)
            return [_group(rows) for rows in groups.values()]

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
            return [_stored(row) for row in rows if _asks_to_be_forgotten(row)]

        return await self._database.run(work)

    async def waiting(self, lane: str, after: int, limit: int) -> list[Stored]:
        """Messages of a lane that nobody has taken yet, oldest first, with a seq above `after`."""

        def work(db: sqlite3.Connection) -> list[Stored]:
            rows = db.execute(
                "SELECT * FROM messages WHERE lane = ? AND state = 'accepted' AND seq > ? ORDER BY seq LIMIT ?",
                (lane, after, limit),
            )
            return [_stored(row) for row in _readable(db, rows.fetchall())]

        return await self._database.run(work)

    async def pending(self) -> list[Pending]:
        """Answers of which parts are still to be sent, oldest first."""

        def work(db: sqlite3.Connection) -> list[Pending]:
            rows = db.execute(
                "SELECT m.*, MAX(m.seq) FROM messages m JOIN"
                " (SELECT DISTINCT turn FROM parts WHERE state = 'waiting') p ON m.turn = p.turn"
                " GROUP BY m.turn ORDER BY m.turn"
            )
            return [Pending(row["turn"], _stored(row)) for row in _readable(db, rows.fetchall())]

        return await self._database.run(work)

    async def lane_state(self, lane: LaneKey) -> LaneState:
        """What a lane remembers of its agent."""
        return await self._database.run(lambda db: _lane_state(db, str(lane)))

    async def set_lane_state(self, lane: LaneKey, state: LaneState) -> None:
        """Replaces what a lane remembers of its agent."""
        await self._database.run(lambda db: _set_lane_state(db, str(lane), state))

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
            rows = [row for row in rows if row["user"] or _is_of(user, row)]
            keep_guards(db, [(guard(row["channel"], row["account"], row["id"]), row["accepted_at"]) for row in rows])
            gone = [row for row in rows if row["seq"] != kept]
            db.executemany("DELETE FROM parts WHERE turn = ?", {(row["turn"],) for row in gone})
            db.executemany("DELETE FROM messages WHERE seq = ?", [(row["seq"],) for row in gone])
            db.execute("UPDATE messages SET user = '' WHERE seq = ?", (kept,))
            db.execute("DELETE FROM lanes WHERE lane >= ? AND lane < ?", (f"{user}:", f"{user};"))
            token_use.forget(db, user)
            link_codes.forget(db, user)
            remove_mark(db, user)
            waiting = [row for row in gone if row["state"] in (State.ACCEPTED, State.TAKEN)]
            return sum(row["user"] != "" for row in gone), [_stored(row) for row in waiting if _read(row) is not None]

        return await self._database.run(work)

    async def empty_log(self) -> bool:
        """Puts all that was deleted out of every byte of the database's files; whether that was possible."""
        return await self._database.empty_log()


def _group(rows: Iterable[sqlite3.Row]) -> Group:
    rows = list(rows)
    stored, chosen = tuple(_stored(row) for row in rows), rows[0]["conversation"]
    if not chosen:
        return Group(stored, rerun=True)
    conversation = ConversationId.parse(chosen)
    return Group(
        stored, rerun=True, conversation=conversation, route=_route(conversation.agent, rows[0]["reason"] or "")
    )


def _route(agent: str, written: str) -> Route:
    by, _, reason = written.partition(" ")
    try:
        return Route(agent, By(by), reason)
    except ValueError:  # taken by an older version, which wrote the reason alone
        return Route(agent, By.DEFAULT, written)


def _lane_state(db: sqlite3.Connection, lane: str) -> LaneState:
    row = db.execute("SELECT agent, agent_at, pinned FROM lanes WHERE lane = ?", (lane,)).fetchone()
    return LaneState(row["agent"], row["agent_at"], bool(row["pinned"])) if row else LaneState()


def _set_lane_state(db: sqlite3.Connection, lane: str, state: LaneState) -> None:
    db.execute(
        "INSERT OR REPLACE INTO lanes (lane, agent, agent_at, pinned) VALUES (?, ?, ?, ?)",
        (lane, state.agent, state.at, int(state.pinned)),
    )
