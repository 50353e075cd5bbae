"""Who talks where with which agent: lane keys, five-part conversation ids, turns.

Platform ids come in, ids that are safe in file names, Redis keys and URLs go out. The same inputs give the same id
in every process and after every restart; different tuples never share one.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

CHANNELS = ("wechat", "wecom", "dingtalk", "feishu", "web")
"""The kinds of channel that may stand in an id."""

PERSON = r"u[a-z2-7]{12}"
_USER = r"[ug][a-z2-7]{12}"
_SESSION = r"[0-9a-f]{12}"
AGENT_NAME = r"[a-z0-9][a-z0-9-]{0,47}"
_LANE = re.compile(rf"({_USER}):({'|'.join(CHANNELS)}):({_SESSION}):([01])")
_CONVERSATION = re.compile(rf"{_LANE.pattern}:({AGENT_NAME})")
_FILE = re.compile(rf"chat-({'|'.join(CHANNELS)})-({_SESSION})-([01])-({AGENT_NAME})\.yaml")


class InvalidId(ValueError):
    """A text is no conversation id (or lane key) of ours."""


def _digest(*parts: str) -> bytes:
    """SHA-256 over the parts as a JSON list: no separator of ours can be imitated from inside a part."""
    text = json.dumps(list(parts), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _base32(digest: bytes) -> str:
    return base64.b32encode(digest[:10]).decode("ascii").lower()[:12]  # ten bytes make sixteen characters


def user_id(channel: str, account: str, user: str) -> str:
    """The id of one person on one platform account: ``u`` and 12 of ``[a-z2-7]``."""
    return "u" + _base32(_digest("user", channel, account, user))


def shared_group_id(channel: str, account: str, chat: str) -> str:
    """The pseudo-user of a group whose members share one conversation: ``g`` and 12 of ``[a-z2-7]``."""
    return "g" + _base32(_digest("group", channel, account, chat))


def session_id(channel: str, account: str, chat: str, thread: str = "") -> str:
    """The id of one chat (and thread) on one platform account: 12 hex digits."""
    return _digest("session", channel, account, chat, thread).hex()[:12]


@dataclass(frozen=True, slots=True)
class LaneKey:
    """Who talks where: the first four parts of a conversation id. Messages of one lane are handled in order."""

    user: str
    channel: str
    session: str
    group: bool

    def __post_init__(self) -> None:
        if not _LANE.fullmatch(str(self)):
            raise InvalidId(f"no lane key: {str(self)!r}")

    def __str__(self) -> str:
        return f"{self.user}:{self.channel}:{self.session}:{int(self.group)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``user:channel:session:group``. Raises InvalidId."""
        found = _LANE.fullmatch(text)
        if not found:
            raise InvalidId(f"no lane key: {text[:100]!r}")
        return cls(found[1], found[2], found[3], found[4] == "1")

    @property
    def is_shared(self) -> bool:
        """Whether a group shares it: its `user` is no person."""
        return self.user.startswith("g")

    def with_agent(self, agent: str) -> "ConversationId":
        """This lane's conversation with one agent. Raises InvalidId for a name no agent can have."""
        return ConversationId(self, agent)


@dataclass(frozen=True, slots=True)
class ConversationId:
    """One person (or shared group), one chat, one agent: ``{user}:{channel}:{session}:{group}:{agent}``."""

    lane: LaneKey
    agent: str

    def __post_init__(self) -> None:
        if not re.fullmatch(AGENT_NAME, self.agent):
            raise InvalidId(f"no agent name: {self.agent[:100]!r}")

    def __str__(self) -> str:
        return f"{self.lane}:{self.agent}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the five parts. Raises InvalidId for anything else, so that no other text reaches a path."""
        found = _CONVERSATION.fullmatch(text)
        if not found:
            raise InvalidId(f"no conversation id: {text[:100]!r}")
        return cls(LaneKey(found[1], found[2], found[3], found[4] == "1"), found[5])

    @property
    def file_name(self) -> str:
        """The name its conversation file and its archive share, inside the user's folder."""
        lane = self.lane
        return f"chat-{lane.channel}-{lane.session}-{int(lane.group)}-{self.agent}.yaml"

    @classmethod
    def of_file(cls, user: str, name: str) -> Self:
        """The id a file stands for, from its folder's and its own name. Raises InvalidId."""
        found = _FILE.fullmatch(name)
        if not found:
            raise InvalidId(f"no conversation file: {name[:100]!r}")
        return cls(LaneKey(user, found[1], found[2], found[3] == "1"), found[4])


class Role(StrEnum):
    """What an item of a conversation file is."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One item of a conversation file.

    `n` (ordinal in the file) and `epoch` (number of resets up to and with it) are given by the store when it appends;
    -1 before that. `at` is ISO 8601 with offset and milliseconds. `to` is, for assistant and tool items, the id of the
    user turn they belong to. `ids` holds the message ids a merged user turn is made of. `call` is, for a tool item,
    the id of the call it answers. A `reset` carries its reason as text. `name` is the
    speaker's; `user` is, in a group that shares one conversation, the id of who said this or is answered by it.
    `removed`: what stood here was forgotten, and `text` only says so; no model sees it. An empty `to` is none, wherever
    a turn comes from.
    """

    role: Role
    text: str
    id: str
    at: str
    n: int = -1
    epoch: int = -1
    to: str | None = None
    ids: tuple[str, ...] = ()
    name: str | None = None
    user: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    call: str | None = None
    model: str | None = None
    stopped: bool = False
    removed: bool = False

    def __post_init__(self) -> None:
        if self.to == "":
            object.__setattr__(self, "to", None)
