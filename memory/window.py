"""The window: which turns of a conversation the model sees, and for every turn it does not see, why."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from memory.conversation import Role, ToolCall
from memory.settings import SettingsModel


class WindowSettings(SettingsModel):
    """`agent.context.window`: how much of the past one request carries."""

    max_messages: int = Field(20, ge=2)
    keep_recent: int = Field(10, ge=1)
    max_tokens: int = Field(8000, ge=200)
    filter_short_messages: bool = True
    short_message_threshold: int = Field(5, ge=1)
    keep_answers: bool = True

    @model_validator(mode="after")
    def _recent_fit(self) -> Self:
        if self.keep_recent > self.max_messages:
            raise ValueError("keep-recent 不能大于 max-messages")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMessage:
    """One message of the request: its role, text, the ids of the turns in it, estimated tokens.

    `shortened` counts the tokens left out of its middle. The line that stands for a missing answer has no `ids`.
    """

    role: Role
    content: str
    ids: tuple[str, ...]
    tokens: int
    shortened: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """One visited turn the model does not see: at which stage it went, and why (Chinese, for admins)."""

    id: str
    role: Role
    stage: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model sees of the past, oldest first, and what it does not see.

    `tokens` is the estimate of `messages`; `question_tokens` that of the current question (0 without one). `fits` is
    False when the question alone is too long for the model. `not_read_before` is the id of the oldest turn visited
    where older ones exist unread. `gap` counts turns (since the last reset) that are in neither window nor summary.
    """

    messages: tuple[WindowMessage, ...]
    dropped: tuple[Drop, ...]
    tokens: int
    question_tokens: int
    fits: bool = True
    not_read_before: str | None = None
    gap: int = 0
