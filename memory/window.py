"""The window: which turns of a conversation the model sees, and for every turn it does not see, why."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from memory.acknowledgement import ASSENTS, CLOSERS
from memory.conversation import Role, ToolCall
from memory.settings import SettingsModel

MaxMessages = Annotated[int, Field(ge=2)]
KeepRecent = Annotated[int, Field(ge=1)]
MaxTokens = Annotated[int, Field(ge=200)]
ShortMessageThreshold = Annotated[int, Field(ge=1)]


class WindowSettings(SettingsModel):
    """`agent.context.window`: how much of the past one request carries.

    `keep_recent` that is not written is 10, or `max_messages` where that is less. `closers` and `assents` are the words
    that `filter_short_messages` takes for acknowledgements: closers always, assents unless they answer a question.
    """

    max_messages: MaxMessages = 20
    keep_recent: KeepRecent = 10
    max_tokens: MaxTokens = 8000
    filter_short_messages: bool = True
    short_message_threshold: ShortMessageThreshold = 5
    keep_answers: bool = True
    closers: tuple[str, ...] = CLOSERS
    assents: tuple[str, ...] = ASSENTS

    @model_validator(mode="before")
    @classmethod
    def _default_fits(cls, written: Any) -> Any:
        """A `max-messages` under the default of `keep-recent` is no mistake of whoever wrote only the former."""
        if isinstance(written, dict) and not {"keep-recent", "keep_recent"} & set(written):
            cap = written.get("max-messages", written.get("max_messages"))
            if isinstance(cap, int) and 1 <= cap < cls.model_fields["keep_recent"].default:
                return {**written, "keep_recent": cap}
        return written

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
