"""Traces on disk: one row per message, its steps as JSON, to which each batch adds a line; bounded in size and age.

The file is its own (``trace.db``), so that losing it harms nothing. All functions run on the database's thread.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.tracing import frames
from gateway.tracing.frames import Asked, checksum
from gateway.tracing.trace import (
    UNDELIVERED,
    Fact,
    Kind,
    Outcome,
    Rejected,
    SeenMessage,
    SeenWindow,
    Step,
    Trace,
    TracePage,
    TraceQuery,
    lane_of,
)
from memory.conversation import ConversationId, Role
from memory.window import Drop

_UNDELIVERED = ", ".join(f"'{each}'" for each in UNDELIVERED)
_TROUBLES = (Outcome.REFUSED, Outcome.FAILED, Outcome.UNSENT, Outcome.EXPIRED)
_TROUBLE = ", ".join(f"'{each}'" for each in _TROUBLES)
_MOST_STEPS = 256 * 1024
"""The most bytes of one trace's steps: a message that is delivered for ever must not fill the file."""
_MOST_DROPS = 200
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_AT_ONCE = 500
_LISTED = "seq, id, at, last, outcome, message, entry, channel, user, platform_user, lane, conversation, reason, text"
_ROOM = 0.05
"""The share that is deleted beyond what is too much, so that it is not counted with each batch."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS traces (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    at REAL NOT NULL, last REAL NOT NULL, outcome TEXT NOT NULL,
    message TEXT NOT NULL, entry TEXT NOT NULL, channel TEXT NOT NULL,
    user TEXT NOT NULL, platform_user TEXT NOT NULL, lane TEXT NOT NULL, conversation TEXT NOT NULL,
    reason TEXT NOT NULL, text TEXT NOT NULL,
    steps TEXT NOT NULL                 -- a line for each batch: a JSON list
);
CREATE INDEX IF NOT EXISTS traces_user ON traces (user);
CREATE INDEX IF NOT EXISTS traces_platform_user ON traces (platform_user);
CREATE INDEX IF NOT EXISTS traces_message ON traces (message);
CREATE INDEX IF NOT EXISTS traces_lane ON traces (lane);
CREATE INDEX IF NOT EXISTS traces_channel ON traces (channel);
CREATE INDEX IF NOT EXISTS traces_trouble ON traces (outcome) WHERE outcome IN ({_TROUBLE});
{frames.SCHEMA}
CREATE TABLE IF NOT EXISTS rejected (
    minute INTEGER NOT NULL, route TEXT NOT NULL, status INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (minute, route, status)
) WITHOUT ROWID;
"""

_UPSERT = f"""
INSERT INTO traces (id, at, last, outcome, message, entry, channel, user, platform_user, lane, conversation, reason,
                    text, steps)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    last = max(last, excluded.last),
    outcome = CASE excluded.outcome
        WHEN '' THEN outcome
        WHEN 'duplicate' THEN outcome
        WHEN 'delivered' THEN CASE WHEN outcome IN ({_UNDELIVERED}) THEN 'delivered' ELSE outcome END
        ELSE excluded.outcome END,
    entry = CASE excluded.entry WHEN '' THEN entry ELSE excluded.entry END,
    conversation = CASE excluded.conversation WHEN '' THEN conversation ELSE excluded.conversation END,
    reason = CASE excluded.reason WHEN '' THEN reason ELSE excluded.reason END,
    text = CASE excluded.text WHEN '' THEN text ELSE excluded.text END,
    steps = CASE WHEN length(steps) < {_MOST_STEPS} THEN steps || excluded.steps ELSE steps END
"""


@dataclass(slots=True)
class Gathered:
    """What happened to one message since the last batch."""

    id: str
    message: str
    entry: str
    channel: str
    user: str
    platform_user: str
    lane: str
    conversation: str = ""
    reason: str = ""
    text: str = ""
    outcome: Outcome | None = None
    steps: list[tuple[Kind, float, Mapping[str, Fact], Asked | None]] = field(default_factory=list)


# ---- in


def write(db: sqlite3.Connection, gathered: Iterable[Gathered]) -> None:
    """Adds a batch."""
    db.executemany(_UPSERT, [_row(db, each) for each in gathered if each.steps])


def _row(db: sqlite3.Connection, each: Gathered) -> tuple[object, ...]:
    steps: list[dict[str, object]] = []
    for kind, at, facts, asked in each.steps:
        step: dict[str, object] = {"kind": kind, "at": round(at, 4), **facts}
        if asked is not None:
            step["window"] = _seen(db, asked, each.lane.partition(":")[0], at)
        steps.append(step)
    return (
        each.id,
        each.steps[0][1],
        each.steps[-1][1],
        each.outcome or "",
        _storable(each.message),
        each.entry,
        each.channel,
        each.user,
        _storable(each.platform_user),
        each.lane,
        each.conversation,
        _storable(each.reason),
        _storable(each.text),
        _storable(_JSON(steps) + "\n"),
    )


def _storable(text: str) -> str:
    """Half an emoji cannot be stored."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _seen(db: sqlite3.Connection, asked: Asked, owner: str, at: float) -> dict[str, object]:
    window = asked.window
    return {
        "messages": [(each.role[0], each.ids, each.tokens, each.shortened) for each in window.messages],
        "dropped": [(each.id, each.role, each.stage, each.reason, each.n) for each in window.dropped[:_MOST_DROPS]],
        "question": asked.question,
        "frame": frames.keep(db, asked, owner, at),
        "checksum": checksum(asked.request),
        "first": window.first,
        "longest": asked.longest,
        "tokens": window.tokens,
        "question_tokens": window.question_tokens,
        "summary_tokens": window.summary_tokens,
        "through": window.summary.through if window.summary else None,
        "gap": window.gap,
        "not_read_before": window.not_read_before,
    }


def write_rejected(db: sqlite3.Connection, counts: Mapping[tuple[int, str, int], int]) -> None:
    """Adds requests turned away, by minute (since 1970), route and status."""
    db.executemany(
        "INSERT INTO rejected (minute, route, status, count) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET count = count + excluded.count",
        [(*key, count) for key, count in counts.items()],
    )


# ---- out


def find(db: sqlite3.Connection, query: TraceQuery, before: int | None, limit: int) -> TracePage:
    """One page without steps, newest first."""
    conditions: list[str] = []
    values: list[object] = []

    def wanted(condition: str, *given: object) -> None:
        conditions.append(condition)
        values.extend(given)

    if query.q:
        about, given = _about(query.q)
        wanted(about, *given)
    if query.user:
        wanted("(user = ? OR platform_user = ?)", query.user, query.user)
    if query.message:
        wanted("message = ?", query.message)
    if query.conversation:
        wanted(*_in_conversation(query.conversation))
    narrow = bool(conditions)
    if query.channel:
        wanted("+channel = ?" if narrow else "channel = ?", query.channel)  # + keeps from its index
    if query.outcomes:
        wanted(f"outcome IN ({', '.join('?' * len(query.outcomes))})", *query.outcomes)
        if not narrow and set(query.outcomes) <= set(_TROUBLES):
            wanted(f"outcome IN ({_TROUBLE})")  # said so that the index of these few is used
    if before is not None:
        wanted("seq < ?", before)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    listed = f"SELECT {_LISTED} FROM traces {where} ORDER BY seq DESC LIMIT ?"  # the steps are most of a row
    rows = db.execute(listed, (*values, limit + 1)).fetchall()
    found = tuple(_trace(row) for row in rows[:limit])
    return TracePage(found, found[-1].seq if len(rows) > limit else None)


def _about(q: str) -> tuple[str, list[object]]:
    if lane_of(q):
        condition, *given = _in_conversation(q)
        return str(condition), given
    return "(id = ? OR message = ? OR user = ? OR platform_user = ?)", [q] * 4


def _in_conversation(conversation: str) -> tuple[Any, ...]:
    return ("(lane = ? AND conversation IN (?, ''))", lane_of(conversation) or conversation, conversation)


def get(db: sqlite3.Connection, id_: str) -> Trace | None:
    """One trace with its steps."""
    row = db.execute("SELECT * FROM traces WHERE id = ?", (id_,)).fetchone()
    return _trace(row, _steps(row["steps"])) if row else None


def rejected(db: sqlite3.Connection, limit: int) -> tuple[Rejected, ...]:
    """The newest minutes in which requests were turned away."""
    rows = db.execute("SELECT * FROM rejected ORDER BY minute DESC, route, status LIMIT ?", (limit,))
    return tuple(Rejected(row["minute"] * 60.0, row["route"], row["status"], row["count"]) for row in rows)


def _trace(row: sqlite3.Row, steps: tuple[Step, ...] = ()) -> Trace:
    return Trace(
        seq=row["seq"],
        id=row["id"],
        at=row["at"],
        last=row["last"],
        outcome=Outcome(row["outcome"] or Outcome.WAITING),
        message=row["message"],
        entry=row["entry"],
        channel=row["channel"],
        user=row["user"],
        platform_user=row["platform_user"],
        lane=row["lane"],
        conversation=row["conversation"],
        reason=row["reason"],
        text=row["text"],
        steps=steps,
    )


_ROLES = {role.value[0]: role for role in Role}


def _steps(lines: str) -> tuple[Step, ...]:
    return tuple(_step(facts) for line in lines.split("\n") if line for facts in json.loads(line))


def _step(facts: dict[str, Any]) -> Step:
    window = facts.pop("window", None)
    return Step(Kind(facts.pop("kind")), facts.pop("at"), facts, _window(window) if window else None)


def _window(kept: dict[str, Any]) -> SeenWindow:
    messages = tuple(SeenMessage(_ROLES[role], tuple(ids), *counts) for role, ids, *counts in kept.pop("messages"))
    dropped = tuple(Drop(id_, Role(role), *rest) for id_, role, *rest in kept.pop("dropped"))
    return SeenWindow(messages=messages, dropped=dropped, **kept)


# ---- bounds


def shrink(db: sqlite3.Connection, most_bytes: int) -> int:
    """Deletes the oldest where more than `most_bytes` are in use, and some more to have room; how many it were."""
    (pages,), (free,), (size,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - free) * size
    if used <= most_bytes:
        return 0
    (count,) = db.execute("SELECT COUNT(*) FROM traces").fetchone()
    share = 1 - most_bytes / used + _ROOM
    gone = db.execute(
        "DELETE FROM traces WHERE seq IN (SELECT seq FROM traces ORDER BY seq LIMIT ?)", (math.ceil(count * share),)
    ).rowcount
    _drop_frames(db)
    return gone


def purge(db: sqlite3.Connection, before: float) -> int:
    """Deletes some of what came before `before` (unix seconds); how many it were: 0 when none is left."""
    gone = db.execute(
        "DELETE FROM traces WHERE seq IN (SELECT seq FROM traces WHERE at < ? ORDER BY seq LIMIT ?)",
        (before, _AT_ONCE),
    ).rowcount
    db.execute("DELETE FROM rejected WHERE minute < ?", (int(before // 60),))
    _drop_frames(db)
    return gone


def _drop_frames(db: sqlite3.Connection) -> None:
    """Frames that no trace left can name."""
    (oldest,) = db.execute("SELECT at FROM traces ORDER BY seq LIMIT 1").fetchone() or (None,)
    frames.drop(db, oldest)


def forget_turn(db: sqlite3.Connection, conversation: ConversationId, messages: Sequence[str], n: int) -> int:
    """Deletes the traces of these messages, and the system messages with a summary that reaches the turn with ordinal `n`.

    Such a summary may tell of it; the other requests of the conversation lose no more than it.
    """
    lane = str(conversation.lane)
    rows = db.execute("SELECT steps FROM traces WHERE lane = ? AND conversation = ?", (lane, str(conversation)))
    seen = (step.window for row in rows for step in _steps(row["steps"]) if step.window is not None)
    telling = {window.frame for window in seen if window.through is not None and window.through >= n}
    frames.delete(db, telling)
    marks = ", ".join("?" * len(messages))
    return db.execute(f"DELETE FROM traces WHERE lane = ? AND message IN ({marks})", (lane, *messages)).rowcount


def forget(db: sqlite3.Connection, user: str, groups: Sequence[str]) -> int:
    """Deletes a person's traces, and the system messages of theirs, of these shared groups and of those their traces name.

    Asked again after a kill, nobody knows the groups any more: what they said there is replaced already.
    """
    lanes = db.execute("SELECT DISTINCT lane FROM traces WHERE user = ?", (user,))
    owners = {user, *groups, *(row["lane"].partition(":")[0] for row in lanes)}
    gone = db.execute("DELETE FROM traces WHERE user = ?", (user,)).rowcount
    frames.forget(db, owners)
    return gone
