"""Stored messages: what the inbox knows of each, and how it stands in a row. Raw text stays until it is delivered."""

import contextlib
import json
import logging
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum

from channels.message import InboundMessage, Notice
from gateway.commands import parse, said
from gateway.route import By, Route
from memory.conversation import ConversationId, LaneKey

log = logging.getLogger("sanqiao.inbox")


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


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer of which some parts are not sent yet."""

    turn: int
    stored: Stored


_FIELDS = tuple(each.name for each in fields(InboundMessage))


def as_json(message: InboundMessage) -> str:
    """The message as a row holds it."""
    written = {name: getattr(message, name) for name in _FIELDS}
    written |= {"lane": str(message.lane), "reply": dict(message.reply)}
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode("utf-8")  # half an emoji cannot be stored


def from_json(text: str) -> InboundMessage:
    """The message of a row. Raises ValueError, TypeError, KeyError where another version wrote it."""
    fields = json.loads(text)
    notice = fields.pop("notice")
    lane = LaneKey.parse(fields.pop("lane"))
    return InboundMessage(lane=lane, notice=Notice(notice) if notice else None, **fields)


def stored_in(row: sqlite3.Row) -> Stored:
    """The message of a row with its place. Raises as `from_json`."""
    return Stored(row["seq"], row["accepted_at"], from_json(row["message"]))


def message_in(row: sqlite3.Row) -> InboundMessage | None:
    """The message of a row; None where another version wrote it, or its text is blanked."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return from_json(row["message"])
    return None


def is_of(user: str, row: sqlite3.Row) -> bool:
    """Whether this row of nobody is the message by which that person asked to be forgotten before."""
    message = message_in(row)
    return message is not None and message.user == user


def asks_to_be_forgotten(row: sqlite3.Row) -> bool:
    """Whether the message of a row is ``/forget``."""
    message = message_in(row)
    command = parse(message.text) if message is not None else None
    return command is not None and command.name == "forget"


def readable(db: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> list[sqlite3.Row]:
    """The rows this version can read; another one fails by itself and holds nobody up."""
    found = []
    for row in rows:
        if message_in(row) is None:
            log.error("message unreadable, failed seq=%d", row["seq"])
            db.execute("UPDATE messages SET state = 'failed' WHERE seq = ?", (row["seq"],))
        else:
            found.append(row)
    return found


def group_in(rows: Iterable[sqlite3.Row]) -> Group:
    """The group that was taken with these rows. Raises as `from_json`."""
    rows = list(rows)
    stored, chosen = tuple(stored_in(row) for row in rows), rows[0]["conversation"]
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
