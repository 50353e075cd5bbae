"""What travels between a channel and the gateway: one message in, events of its answer, parts of a reply out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from memory.conversation import ConversationId, LaneKey, shared_group_id


class Notice(StrEnum):
    """Why a message gets a fixed answer instead of a model's; names a text of `texts`."""

    UNSUPPORTED = "unsupported"
    EMPTY = "empty"
    TOO_LONG = "too-long"
    WELCOME = "welcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """One message that addresses the bot, from whatever platform; already authentic, parsed and cleaned of mentions.

    `entry` names the channel entry in the config (``feishu``, ``feishu-hr``), through which the reply goes back.
    `chat` is, in a group, what the platform calls it. `account` and `id` are what the inbox de-duplicates by (with `lane.channel`). `user` is the id of the real speaker
    (equal to `lane.user` but in a shared group), `platform_user` what the platform calls them. `reply` holds what this
    channel needs to answer just this message (chat id, message id, thread …): never a "last" anything. `agent` is an
    agent chosen by the sender for this message. `notice` asks for a fixed answer.
    """

    entry: str
    account: str
    id: str
    lane: LaneKey
    user: str
    platform_user: str
    text: str
    name: str = ""
    chat: str = ""
    reply: Mapping[str, str] = field(default_factory=dict)
    agent: str | None = None
    notice: Notice | None = None

    def in_shared_lane(self) -> "InboundMessage":
        """The same message in the lane that all members of its group share; in a direct chat it stays in its own."""
        if not self.lane.group or not self.chat:
            return self
        user = shared_group_id(self.lane.channel, self.account, self.chat)
        return replace(self, lane=replace(self.lane, user=user))


class Admission(StrEnum):
    """What became of a message that a channel handed over."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


class GatewayClosed(Exception):
    """The gateway takes no more messages (it is starting or draining): let the platform deliver again."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens one answer cost, as the model's server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Routed:
    """An agent was chosen."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Delta:
    """The answer goes on with this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole answer, stored; its parts are sent next. `conversation` is None where none exists (commands)."""

    text: str
    conversation: ConversationId | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer: a short friendly text for the user, sent next unless it was said a moment ago."""

    message: str


@dataclass(frozen=True, slots=True)
class Joined:
    """This message became one turn with newer ones; the answer goes to the newest, whose id is `into`."""

    into: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Handled, and nothing will be sent for it: the last event."""


Shown = Routed | Delta | Answered | Failed
"""What a person who watches an answer is shown of it."""

Progress = Shown | Joined | Silent
"""What a channel is told of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of an answer, to be sent to where `message` came from.

    `number` counts from 0 to `total` - 1. `key` is the same for each try of this part, before and after a restart:
    the idempotency key where the platform has one.
    """

    message: InboundMessage
    text: str
    number: int
    total: int
    key: str
