"""What one request carries of the past: `agent.context`, the named presets, and what agents and channels override."""

from collections.abc import Mapping

from memory.settings import SettingsModel
from memory.summary import AfterTurns, EveryMessages, Keep, MaxChars, SummarySettings
from memory.window import KeepRecent, MaxMessages, MaxTokens, ShortMessageThreshold, WindowSettings


class ContextSettings(SettingsModel):
    """`agent.context`: complete settings of the window and of the summary."""

    window: WindowSettings = WindowSettings()
    summary: SummarySettings = SummarySettings()


class WindowOverrides(SettingsModel):
    """The keys of `window` that a preset, an agent file or a channel entry sets; None is inherited."""

    max_messages: MaxMessages | None = None
    keep_recent: KeepRecent | None = None
    max_tokens: MaxTokens | None = None
    filter_short_messages: bool | None = None
    short_message_threshold: ShortMessageThreshold | None = None
    keep_answers: bool | None = None
    closers: tuple[str, ...] | None = None
    assents: tuple[str, ...] | None = None


class SummaryOverrides(SettingsModel):
    """The keys of `summary` that a preset, an agent file or a channel entry sets; None is inherited."""

    enabled: bool | None = None
    after_turns: AfterTurns | None = None
    every_messages: EveryMessages | None = None
    keep: Keep | None = None
    model: str | None = None
    max_chars: MaxChars | None = None


class ContextPreset(SettingsModel):
    """One entry under `agent.policies`."""

    window: WindowOverrides = WindowOverrides()
    summary: SummaryOverrides = SummaryOverrides()


PRESETS: Mapping[str, ContextPreset] = {
    "tech-support": ContextPreset(
        window=WindowOverrides(max_messages=40, keep_recent=20, max_tokens=16000),
        summary=SummaryOverrides(after_turns=20, keep=20),
    ),
    "customer-service": ContextPreset(window=WindowOverrides(max_messages=15), summary=SummaryOverrides(enabled=False)),
    "casual-chat": ContextPreset(
        window=WindowOverrides(max_messages=6, keep_recent=6), summary=SummaryOverrides(enabled=False)
    ),
}
"""The presets there are when `agent.policies` is not written; the shipped file shows them."""


class ContextOverrides(ContextPreset):
    """`context` of an agent file or of a channel entry: a preset's name, and single keys on top of it."""

    policy: str | None = None


def resolve(
    base: ContextSettings, policies: Mapping[str, ContextPreset], *overrides: ContextOverrides
) -> ContextSettings:
    """`agent.context` ← preset ← keys of the agent file ← keys of the channel entry, given in this order.

    The last policy named takes the place of those named before it. A `keep-recent` that is inherited is lowered to a
    smaller `max-messages`. Raises ValueError for an unknown policy and for a written `keep-recent` over `max-messages`.
    """
    named = [layer.policy for layer in overrides if layer.policy is not None]
    settings = base
    for position, layer in enumerate(overrides):
        is_last_named = not any(later.policy is not None for later in overrides[position + 1 :])
        if layer.policy is not None and is_last_named:
            settings = _applied(settings, _preset(policies, named[-1]))
        settings = _applied(settings, layer)
    return settings


def _preset(policies: Mapping[str, ContextPreset], name: str) -> ContextPreset:
    if name not in policies:
        known = "、".join(sorted(policies)) or "（无）"
        raise ValueError(f"没有名为 {name} 的 policy，可选：{known}")
    return policies[name]


def _applied(settings: ContextSettings, layer: ContextPreset) -> ContextSettings:
    window = settings.window.model_dump() | layer.window.model_dump(exclude_none=True)
    if layer.window.keep_recent is None:
        window["keep_recent"] = min(window["keep_recent"], window["max_messages"])
    elif window["keep_recent"] > window["max_messages"]:
        raise ValueError(f"keep-recent（{window['keep_recent']}）不能大于 max-messages（{window['max_messages']}）")
    summary = settings.summary.model_dump() | layer.summary.model_dump(exclude_none=True)
    return ContextSettings(window=WindowSettings(**window), summary=SummarySettings(**summary))
