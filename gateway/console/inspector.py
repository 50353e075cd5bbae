"""What the inspector shows beside the window itself: the token bar, what a change would make of it, the settings as YAML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.window_view import Inspection
from memory.window import Window, WindowSettings

KNOBS = ("max_messages", "keep_recent", "max_tokens")
"""The settings one may try out."""


@dataclass(frozen=True, slots=True)
class Share:
    """One part of the model's context: its tokens, and where it lies on a bar that is 1,000 wide."""

    key: str
    label: str
    tokens: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Change:
    """How a window differs from the present one, in turns: what comes into it and what leaves it."""

    more: int
    fewer: int

    def __bool__(self) -> bool:
        return bool(self.more or self.fewer)


def shares(parts: Sequence[tuple[str, str, int]]) -> list[Share]:
    """(key, label, tokens) of each part → the bar; parts without tokens have no width."""
    whole = sum(tokens for _, _, tokens in parts) or 1
    found, x = [], 0.0
    for key, label, tokens in parts:
        width = 1000 * tokens / whole
        found.append(Share(key, label, tokens, round(x, 2), round(width, 2)))
        x += width
    return found


def request_shares(seen: Inspection) -> list[Share]:
    """Where the model's context goes; together `seen.context`, or more where that does not hold it."""
    return shares(
        [
            ("system", "系统", seen.system_tokens),
            ("summary", "摘要", seen.window.summary_tokens),
            ("tools", "工具", seen.tool_tokens),
            ("window", "窗口", seen.window.tokens),
            ("output", "留给回答", seen.output),
            ("free", "空余", seen.free),
        ]
    )


def change(now: Window, then: Window) -> Change:
    """What turns `now` into `then`."""
    before = {id for message in now.messages for id in message.ids}
    after = {id for message in then.messages for id in message.ids}
    return Change(len(after - before), len(before - after))


def what_if(asked: Mapping[str, int | None]) -> dict[str, int]:
    """The knobs that were turned. A `keep_recent` over `max_messages` is lowered to it."""
    over = {key: value for key, value in asked.items() if value is not None}
    if "keep_recent" in over and "max_messages" in over:
        over["keep_recent"] = min(over["keep_recent"], over["max_messages"])
    return over


def as_config(settings: WindowSettings) -> str:
    """The knobs as they stand in an agent's file."""
    return (
        "context:\n"
        "  window:\n"
        f"    max-messages: {settings.max_messages}\n"
        f"    keep-recent: {settings.keep_recent}\n"
        f"    max-tokens: {settings.max_tokens}\n"
    )
