"""A server's refusal (status and body) → the error that says what to do about it.

The body is only looked at: it may repeat the key or the user's text, so no part of it reaches a message.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agents.model import ContextTooLong, ModelError, ModelMisconfigured, ModelRefused, ModelUnavailable, OddAnswer

# OpenAI, vLLM, llama.cpp, DashScope, Moonshot, GLM (1261), in this order.
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context|context (?:length|window)|exceed_context_size|available context"
    r"|range of input length|input length|prompt is too long|too many tokens|model token limit"
    r"|\"?code\"?: ?\"?1261\b|prompt 超长",
    re.IGNORECASE,
)
# OpenAI and Azure, DashScope, GLM (1301), DeepSeek.
_FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|data_?inspection_?failed|inappropriate content"
    r"|\"?code\"?: ?\"?1301\b|content exists risk",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient_quota|exceeded_current_quota|insufficient balance|\"?code\"?: ?\"?1113\b|余额不足|arrearage",
    re.IGNORECASE,
)


class ModelBusy(ModelUnavailable):
    """Worth another try, `retry_after` seconds from now where the server says so.

    `limited`: it was asked too much (429), and is well.
    """

    def __init__(self, reason: str, retry_after: float | None = None, *, limited: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        if limited:
            self.text = "busy"


def refusal(model: str, status: int | None, reason: str, retry_after: float | None = None) -> ModelError:
    """The error for an answer with this `status` (None: an error inside an answer with status 200).

    `reason` is the body's text. `model` is what the message calls the model.
    """
    if status in (401, 403):
        return ModelMisconfigured(f"{model}: the server refuses the key (status {status}); check api-key")
    if status == 404:
        return ModelMisconfigured(f"{model}: not found (status 404); check base-url and model")
    if status == 402 or (status in (400, 429, None) and _NO_MONEY.search(reason)):
        return ModelMisconfigured(f"{model}: the account has no balance or quota left; top it up")
    if status == 413 or (status in (400, 422, 500, None) and _TOO_LONG.search(reason)):
        return ContextTooLong(f"{model}: the request is longer than the model's context; check context-tokens")
    if status in (400, 422, None) and _FILTERED.search(reason):
        return ModelRefused(f"{model}: refused by the provider's content filter")
    if status is None:
        return OddAnswer(f"{model}: an error instead of an answer, with status 200")
    if status in (408, 409, 425, 429) or status >= 500:
        return ModelBusy(f"{model}: status {status}", retry_after, limited=status == 429)
    return ModelMisconfigured(f"{model}: the server refuses the request (status {status}); check model and base-url")


def status_inside(error: object) -> int | None:
    """The HTTP status some relays put into the error of an answer with status 200, as its `code`."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, int) and 400 <= code < 600 else None


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait as ``retry-after-ms`` or ``Retry-After`` (seconds or a date, RFC 9110 §10.2.3) say, or None."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        if "retry-after" in headers:
            return max(0.0, float(headers["retry-after"]))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
