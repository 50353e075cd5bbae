"""The trace of a message: what happened to it, step by step, as admins find it later.

Of texts it holds the first 120 characters of the message (numbers masked) and, per person, the system messages their
requests were made with, which quote profile, summary and recalled knowledge. It holds no secret.
"""

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from channels.message import InboundMessage
from gateway.logs import about
from gateway.tracing.frames import Asked
from memory.conversation import ConversationId, InvalidId, Role
from memory.window import Drop

Fact = str | int | float | bool | None
"""One detail of a step."""

ID_LENGTH = 13
CHANNEL_OFF = "渠道没有启用；启用后重启，会接着处理"


@functools.lru_cache(maxsize=4096)
def trace_id(channel: str, account: str, message: str) -> str:
    """The id of a message's trace: ``t`` and 12 of ``[a-z2-7]``.

    It follows from what the inbox de-duplicates by, so that each delivery of a message, and what happens to it after a
    restart, belongs to one trace.
    """
    key = json.dumps(["trace", channel, account, message], ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8]
    return "t" + base64.b32encode(digest).decode("ascii").lower()[: ID_LENGTH - 1]


class Kind(StrEnum):
    """What a step tells; its facts stand in FACTS.

    ``resumed`` after a restart; ``window`` has a SeenWindow beside its facts; ``left`` in the inbox for the time being.
    """

    RECEIVED = "received"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    COMMAND = "command"
    JOINED = "joined"
    RESUMED = "resumed"
    ROUTED = "routed"
    WINDOW = "window"
    MODEL = "model"
    TOOL = "tool"
    ANSWERED = "answered"
    FAILED = "failed"
    SENT = "sent"
    RETRIED = "retried"
    UNSENT = "unsent"
    SHELVED = "shelved"
    LEFT = "left"
    EXPIRED = "expired"


FACTS: Mapping[Kind, frozenset[str]] = {
    Kind.RECEIVED: frozenset({"chars"}),
    Kind.DUPLICATE: frozenset({"state"}),
    Kind.REFUSED: frozenset({"reason", "told"}),
    Kind.COMMAND: frozenset({"name"}),
    Kind.JOINED: frozenset({"into", "trace"}),
    Kind.RESUMED: frozenset(),
    Kind.ROUTED: frozenset({"agent", "by", "reason", "conversation", "waited", "seconds"}),
    Kind.WINDOW: frozenset({"kept", "dropped"}),
    Kind.MODEL: frozenset(
        {"model", "seconds", "first_token", "prompt_tokens", "completion_tokens", "finish"}
        | {"messages", "tools", "error", "reason"}
    ),
    Kind.TOOL: frozenset({"name", "outcome", "chars", "seconds"}),
    Kind.ANSWERED: frozenset({"chars", "stopped"}),
    Kind.FAILED: frozenset({"text", "error", "reason"}),
    Kind.SENT: frozenset({"part", "parts", "attempts", "seconds", "platform_id", "uncertain", "fetched"}),
    Kind.RETRIED: frozenset({"part", "parts", "attempt", "pause", "reason"}),
    Kind.UNSENT: frozenset({"part", "parts", "reason"}),
    Kind.SHELVED: frozenset({"part", "parts", "reason"}),
    Kind.LEFT: frozenset({"reason"}),
    Kind.EXPIRED: frozenset({"reason"}),
}
"""The facts each kind of step may have.

`reason` says why, `error` is the name of an error, `text` that of the fixed text the user is shown, `state` the first
delivery's in the inbox, `told` whether the user was, `into` and `trace` the message and the trace that a message
joined. `part` counts from 1, of `parts`. `uncertain`: counted as sent, though no answer came. `fetched`: by the user's
next contact. `waited`, `seconds`, `first_token` and `pause` are seconds, `chars` characters, `messages`, `tools`,
`kept` and `dropped` how many. `conversation` becomes the trace's own.
"""


class Outcome(StrEnum):
    """What has become of a message so far.

    ``duplicate`` is one of whose first delivery there is no trace (any more); ``unsent`` one whose answer was made and
    never arrived.
    """

    WAITING = "waiting"
    ANSWERING = "answering"
    ANSWERED = "answered"
    DELIVERED = "delivered"
    SHELVED = "shelved"
    JOINED = "joined"
    COMMAND = "command"
    REFUSED = "refused"
    FAILED = "failed"
    UNSENT = "unsent"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"


_OUTCOMES = {
    Kind.RECEIVED: Outcome.WAITING,
    Kind.RESUMED: Outcome.WAITING,
    Kind.ROUTED: Outcome.ANSWERING,
    Kind.ANSWERED: Outcome.ANSWERED,
    Kind.SHELVED: Outcome.SHELVED,
    Kind.JOINED: Outcome.JOINED,
    Kind.COMMAND: Outcome.COMMAND,
    Kind.REFUSED: Outcome.REFUSED,
    Kind.FAILED: Outcome.FAILED,
    Kind.UNSENT: Outcome.UNSENT,
    Kind.EXPIRED: Outcome.EXPIRED,
}
UNDELIVERED = (Outcome.WAITING, Outcome.ANSWERING, Outcome.ANSWERED, Outcome.SHELVED, Outcome.UNSENT)
"""What the arrival of the last part makes ``delivered``: a refusal that was told is still a refusal."""


def outcome_after(before: Outcome | None, kind: Kind, facts: Mapping[str, Fact]) -> Outcome | None:
    """What a message has come to with this step; `before` is None while nothing is known."""
    if kind is Kind.DUPLICATE:
        return before or Outcome.DUPLICATE
    if kind is Kind.SENT:
        last = facts.get("part") == facts.get("parts")
        return Outcome.DELIVERED if last and (before is None or before in UNDELIVERED) else before
    return _OUTCOMES.get(kind, before)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """One message of a window as it was: the turns in it (none for the line that stands for a missing answer)."""

    role: Role
    ids: tuple[str, ...]
    tokens: int
    shortened: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWindow:
    """The window of one request as it was then. It holds ids, not texts: these stand in the conversation's file.

    `first` is the ordinal of its oldest turn (None: no window; -1: that turn had none yet); `longest` how many tokens
    of one turn were shown; `question` the id of the user's turn; `frame` names the system message and tools as they
    were (see Frame); `checksum` is CRC-32 over the texts of all messages. `not_read_before`
    is the oldest turn visited where older ones were not read. All counts are tokens but `gap` and `through`.
    """

    messages: tuple[SeenMessage, ...]
    dropped: tuple[Drop, ...]
    question: str
    frame: str
    checksum: int
    first: int | None
    longest: int
    tokens: int
    question_tokens: int
    summary_tokens: int = 0
    through: int | None = None
    gap: int = 0
    not_read_before: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: when (unix seconds) and its details; `window` with ``window`` alone."""

    kind: Kind
    at: float
    facts: Mapping[str, Fact] = field(default_factory=dict)
    window: SeenWindow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is known of one message. `at` is when it came, `last` when something happened to it last (unix seconds).

    `text` is its masked beginning (empty where own filters exist, which it has not passed). `reason` says in one line
    why it was not answered, where it was not. `user` is the real speaker. `seq` grows with each message. Lists leave
    out the `steps`.
    """

    seq: int
    id: str
    at: float
    last: float
    outcome: Outcome
    message: str
    entry: str = ""
    channel: str = ""
    user: str = ""
    platform_user: str = ""
    lane: str = ""
    conversation: str = ""
    reason: str = ""
    text: str = ""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """Which traces: all conditions that are given hold at once.

    `q` is any of a trace's id, a message's id, a user's id (ours or the platform's), a conversation's id. A
    conversation's traces include what was refused or is waiting in its chat before an agent was chosen. Empty: no such
    condition.
    """

    q: str = ""
    user: str = ""
    message: str = ""
    conversation: str = ""
    channel: str = ""
    outcomes: tuple[Outcome, ...] = ()


@dataclass(frozen=True, slots=True)
class TracePage:
    """Some traces, newest first; `before` asks for the next page, None on the last."""

    traces: tuple[Trace, ...]
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Requests that were turned away before anything of them was believed, of one minute (`at`, unix seconds)."""

    at: float
    route: str
    status: int
    count: int


class Note(Protocol):
    """Takes one step of a message (see FACTS); `asked` with ``window`` alone. Never raises or waits."""

    def __call__(self, message: InboundMessage, kind: Kind, asked: Asked | None = None, /, **facts: Fact) -> None: ...


def untraced(message: InboundMessage, kind: Kind, asked: Asked | None = None, /, **facts: Fact) -> None:
    """Where no trace is kept."""


def id_of(message: InboundMessage) -> str:
    """The id of this message's trace."""
    return trace_id(message.lane.channel, message.account, message.id)


def follow(message: InboundMessage, conversation: ConversationId | None = None) -> None:
    """From here on, what the present task logs says that it is about this message."""
    about(id_of(message), str(conversation or message.lane))


def lane_of(conversation: str) -> str | None:
    """The first four parts of a conversation's id; None where it is none."""
    try:
        return str(ConversationId.parse(conversation).lane)
    except InvalidId:
        return None
