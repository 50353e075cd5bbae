"""What a model client is to the rest: settings, request, completion, and the errors an answer may end in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from memory.conversation import Role, ToolCall
from memory.settings import Duration, SettingsModel


class ModelSettings(SettingsModel):
    """One entry under `models`."""

    provider: str = Field("openai", pattern="^(openai|demo)$")
    base_url: str = "https://api.openai.com/v1"
    api_key: SecretStr = SecretStr("")
    model: str = "gpt-4o-mini"
    context_tokens: int = Field(32000, ge=1000)
    max_output_tokens: int = Field(1024, ge=1)
    timeout: Duration = Field(60.0, gt=0)
    total_timeout: Duration = Field(120.0, gt=0)
    history: str = Field("messages", pattern="^(messages|text)$")
    max_concurrency: int = Field(64, ge=1)
    fallback: tuple[str, ...] = ()

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            address = urlsplit(value)
            usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:
            usable = False
        if not usable or any(character.isspace() for character in value):
            raise ValueError("应为 http:// 或 https:// 开头的地址，例如 https://api.deepseek.com/v1")
        if "@" in address.netloc:
            raise ValueError("地址里不能有用户名和密码；请去掉 @ 和它前面的部分，密钥写在 api-key")
        return value

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()
        if not key.isascii() or any(character.isspace() or not character.isprintable() for character in key):
            raise ValueError("含有空格、换行或非 ASCII 字符；请重新复制密钥")
        return SecretStr(key)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a request, in the OpenAI sense. `role` is ``system``, ``user``, ``assistant`` or ``tool``."""

    role: Role | str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    call: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool the model may call; `parameters` is a JSON Schema of an object, as JSON text."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What is asked: the messages in order (exactly one system message, first) and the agent's settings."""

    messages: tuple[ChatMessage, ...]
    temperature: float | None = None
    seed: int | None = None
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the model's server counted them."""

    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: "TokenUsage | None") -> "TokenUsage":
        """Both together; None, of a server that told nothing, adds nothing."""
        if other is None:
            return self
        return TokenUsage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer: clean text, never blank but beside tool calls; the model that gave it; usage where told.

    `finish` is ``stop``, ``length`` (cut at `max-output-tokens`, and the text says so) or ``tool_calls``.
    """

    text: str
    model: str
    usage: TokenUsage | None = None
    finish: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()


class ModelError(Exception):
    """No answer. The message is for logs and holds no key, no body, no text of a user.

    `text` names the fixed text of `texts` that the user is shown.
    """

    text = "failed"


class ModelTimeout(ModelError):
    """No new token within `timeout`, or no whole answer within `total-timeout`.

    `heard_for` is how many seconds the server was listened to, where that is known: waiting for a place is none of it.
    """

    text = "timeout"

    def __init__(self, message: str, heard_for: float | None = None) -> None:
        super().__init__(message)
        self.heard_for = heard_for


class ModelUnavailable(ModelError):
    """Not reachable, 5xx, or 429 for longer than the total time allows; `text` of the latter alone is ``busy``."""

    text = "unavailable"


class NoPlace(ModelUnavailable):
    """None of `max-concurrency` places got free in time; the model itself may be well."""

    text = "busy"


class ModelBrokeOff(ModelUnavailable):
    """The connection or the server failed in mid-answer: part of it was told already, so that asking again repeats it."""

    text = "broke-off"


class ModelResting(ModelUnavailable):
    """Not asked: it failed so often in a row that it is left alone for a while (see agents.breaker)."""


class ModelMisconfigured(ModelError):
    """401, 403, 404 or another answer that only an admin can mend; never tried again."""


class ModelRefused(ModelError):
    """The provider's content filter refused the request or the answer."""

    text = "refused-by-model"


class ContextTooLong(ModelError):
    """The model says that the request is longer than its context."""

    text = "too-long"


class OddAnswer(ModelError):
    """A well-formed refusal to answer: no choices, blank text, an error or a web page with status 200."""


class BlankAnswer(OddAnswer):
    """An answer with nothing in it; some models think until `max-output-tokens` are used up."""


class ModelClient(Protocol):
    """One entry under `models`, ready to be asked; fallbacks, retries, limits and time bounds are inside."""

    @property
    def settings(self) -> ModelSettings:
        """The entry this client was made from."""

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """Asks, telling `on_text` each new piece of the answer as it comes. Raises ModelError.

        `within` is how many seconds are left for this answer when some of its `total-timeout` is already used.
        """
