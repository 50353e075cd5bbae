"""What the config names but this version does not do yet: refused when asked for, never accepted in silence.

A line taken out of one of the two tables makes its feature available.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from channels.dingtalk.settings import DingTalkSettings
from channels.wecom.settings import WeComBotSettings
from gateway.config.problems import KeyPath
from gateway.config.sections import LongTermSettings, Settings


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Something asked for that is not there yet: where it is written (in an agent's file, if `agent`), and the remedy."""

    path: KeyPath
    remedy: str
    agent: str = ""

    @property
    def message(self) -> str:
        return f"暂不可用 / not available yet；请{self.remedy}"


Finder = Callable[[Settings], Iterable[Unavailable]]


def _channel(kind: str) -> Finder:
    def find(settings: Settings) -> Iterable[Unavailable]:
        for name, entry in settings.enabled_channels().items():
            if entry.kind == kind:
                yield Unavailable(("channels", name, "enabled"), "写 enabled: false")

    return find


def _when(asked: Callable[[Settings], bool], path: KeyPath, remedy: str) -> Finder:
    return lambda settings: [Unavailable(path, remedy)] if asked(settings) else []


def _cards(settings: Settings) -> Iterable[Unavailable]:
    for name, entry in settings.enabled_channels().items():
        if isinstance(entry, DingTalkSettings) and entry.card_template_id:
            yield Unavailable(("channels", name, "card-template-id"), "留空")


def _wecom_webhook(settings: Settings) -> Iterable[Unavailable]:
    for name, entry in settings.enabled_channels().items():
        if isinstance(entry, WeComBotSettings) and entry.mode == "webhook":
            yield Unavailable(("channels", name, "mode"), "写 websocket")


_LONG_TERM = LongTermSettings()

REFUSED: tuple[Finder, ...] = (
    _channel("wecom-app"),
    _wecom_webhook,
    _cards,
    _when(lambda s: s.memory.long_term.store == "milvus", ("memory", "long-term", "store"), "写 embedded"),
    _when(lambda s: bool(s.memory.long_term.embedding), ("memory", "long-term", "embedding"), "留空"),
    _when(lambda s: bool(s.memory.long_term.uri), ("memory", "long-term", "uri"), "留空"),
    _when(
        lambda s: s.memory.long_term.top_k != _LONG_TERM.top_k,
        ("memory", "long-term", "top-k"),
        f"写 {_LONG_TERM.top_k}",
    ),
    _when(
        lambda s: s.memory.long_term.min_score != _LONG_TERM.min_score,
        ("memory", "long-term", "min-score"),
        f"写 {_LONG_TERM.min_score}",
    ),
    _when(lambda s: s.cluster.enabled, ("cluster", "enabled"), "写 false"),
)
"""What must not be asked for."""

REMARKS: tuple[tuple[Callable[[Settings], bool], str], ...] = (
    (
        lambda s: s.memory.long_term.enabled,
        "知识库（memory.long-term）暂不可用 / not available yet：回答不会引用文档",
    ),
)
"""What is on by default and said at the start."""


def unavailable(settings: Settings) -> list[Unavailable]:
    """Everything asked for that is not there yet."""
    return [each for finder in REFUSED for each in finder(settings)]


def remarks(settings: Settings) -> tuple[str, ...]:
    """What is on by default without being there yet, and what the config leaves unreachable."""
    said = [text for holds, text in REMARKS if holds(settings)]
    entries = settings.enabled_channels()
    if not entries:
        said.append("没有启用任何渠道（channels）：没有人能发来消息")
    if not settings.console.enabled and any(entry.kind == "web" for entry in entries.values()):
        said.append("控制台已关闭（console.enabled），网页聊天因此不可用")
    said += [
        f"channels.{name}：dm-policy 为 allowlist 而 allow-from 为空，没有人能私聊"
        for name, entry in entries.items()
        if entry.dm_policy == "allowlist" and not entry.allow_from
    ]
    return tuple(said)
