"""Figures as the pages show them: sizes, times, shares. Pure."""

from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlencode

from gateway.console.timeline import outcome, outcome_state, reason

ROLES = {"user": "用户", "assistant": "助手", "tool": "工具", "reset": "新对话", "system": "系统"}
STAGES = {
    "acknowledgement": "确认词",
    "token-budget": "超出预算",
    "message-cap": "超出条数",
    "order": "次序",
    "context-limit": "超出模型上下文",
    "not-read": "未读取",
}
CHANNELS = {"wechat": "微信公众号", "wecom": "企业微信", "dingtalk": "钉钉", "feishu": "飞书", "web": "网页"}


def size(count: int) -> str:
    """A size in bytes: ``12 KB``."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def number(count: int | float | None) -> str:
    """``12,345``; a dash for what is not known."""
    return "–" if count is None else f"{count:,.0f}"


def when(at: str | None) -> str:
    """An ISO time without year and offset: ``11-30 18:10:05``; what is no time, as it is."""
    if not at:
        return "–"
    try:
        return datetime.fromisoformat(at).strftime("%m-%d %H:%M:%S")
    except ValueError:
        return at[:30]


def span(seconds: float) -> str:
    """A length of time in its largest unit: ``3 分钟``."""
    for unit, length in (("天", 86400), ("小时", 3600), ("分钟", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} 秒"


def milliseconds(value: float | None) -> str:
    """``0.3 ms``, ``84 ms``, ``1.2 s``."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def query(values: Mapping[str, object]) -> str:
    """Parameters of an address; half characters become ``?``."""
    return urlencode({key: str(value) for key, value in values.items()}, errors="replace")


def role(name: str) -> str:
    """A role in Chinese."""
    return ROLES.get(name, name)


def stage(name: str) -> str:
    """A stage of the window in Chinese."""
    return STAGES.get(name, name)


def channel(name: str) -> str:
    """A channel's kind in Chinese."""
    return CHANNELS.get(name, name)


FILTERS: Mapping[str, Callable[..., str]] = {
    "size": size,
    "number": number,
    "when": when,
    "span": span,
    "ms": milliseconds,
    "query": query,
    "role": role,
    "stage": stage,
    "channel": channel,
    "outcome": outcome,
    "outcome_state": outcome_state,
    "why": reason,
}
