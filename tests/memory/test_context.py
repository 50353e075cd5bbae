"""Which settings count for one conversation: base, preset, agent file, channel entry."""

import pytest
from pydantic import ValidationError

from memory.context import (
    PRESETS,
    ContextOverrides,
    ContextPreset,
    ContextSettings,
    SummaryOverrides,
    WindowOverrides,
    resolve,
)
from memory.summary import SummarySettings
from memory.window import WindowSettings

POLICIES = PRESETS
BASE = ContextSettings.model_validate({"window": {"max-messages": 20, "max-tokens": 9000}, "summary": {"keep": 12}})


def overrides(**written: object) -> ContextOverrides:
    return ContextOverrides.model_validate(written)


def test_defaults_are_those_of_the_shipped_file() -> None:
    settings = ContextSettings()
    assert settings.window.model_dump(exclude={"closers", "assents"}) == {
        "max_messages": 20,
        "keep_recent": 10,
        "max_tokens": 8000,
        "filter_short_messages": True,
        "short_message_threshold": 5,
        "keep_answers": True,
    }
    assert settings.summary == SummarySettings(
        enabled=True, after_turns=20, every_messages=10, keep=10, model="summary", max_chars=2000
    )


def test_presets_are_those_of_the_shipped_file() -> None:
    assert {name: preset.model_dump(by_alias=True, exclude_none=True) for name, preset in PRESETS.items()} == {
        "tech-support": {
            "window": {"max-messages": 40, "keep-recent": 20, "max-tokens": 16000},
            "summary": {"after-turns": 20, "keep": 20},
        },
        "customer-service": {"window": {"max-messages": 15}, "summary": {"enabled": False}},
        "casual-chat": {"window": {"max-messages": 6, "keep-recent": 6}, "summary": {"enabled": False}},
    }


def test_nothing_overridden() -> None:
    assert resolve(BASE, POLICIES) == resolve(BASE, {}, ContextOverrides(), ContextOverrides()) == BASE


def test_a_preset_replaces_only_what_it_names() -> None:
    settings = resolve(BASE, POLICIES, overrides(policy="tech-support"))
    assert (settings.window.max_messages, settings.window.keep_recent, settings.window.max_tokens) == (40, 20, 16000)
    assert (settings.summary.enabled, settings.summary.keep, settings.summary.every_messages) == (True, 20, 10)
    settings = resolve(BASE, POLICIES, overrides(policy="customer-service"))
    assert (settings.window.max_messages, settings.window.keep_recent, settings.window.max_tokens) == (15, 10, 9000)
    assert (settings.summary.enabled, settings.summary.keep) == (False, 12)


def test_the_agents_keys_go_over_its_preset_and_the_entrys_over_both() -> None:
    agent = overrides(policy="tech-support", window={"max-messages": 30, "keep-answers": False})
    entry = overrides(window={"max-messages": 25}, summary={"max-chars": 500})
    settings = resolve(BASE, POLICIES, agent, entry)
    assert (settings.window.max_messages, settings.window.keep_recent) == (25, 20)
    assert settings.window.keep_answers is False
    assert (settings.summary.keep, settings.summary.max_chars) == (20, 500)


def test_the_last_policy_takes_the_place_of_those_before() -> None:
    agent = overrides(policy="customer-service", window={"max-tokens": 5000})
    settings = resolve(BASE, POLICIES, agent, overrides(policy="tech-support"))
    assert settings.summary.enabled
    assert settings.window.max_tokens == 16000


def test_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"没有名为 casul-chat 的 policy，可选：casual-chat、customer-service、tech-support"
    ):
        resolve(BASE, POLICIES, overrides(policy="casul-chat"))


def test_an_inherited_keep_recent_is_lowered_and_a_written_one_refused() -> None:
    assert resolve(BASE, {}, overrides(window={"max-messages": 6})).window.keep_recent == 6
    assert WindowSettings.model_validate({"max-messages": 6}).keep_recent == 6
    assert WindowSettings(max_messages=6).keep_recent == 6
    with pytest.raises(ValueError, match=r"keep-recent（10）不能大于 max-messages（6）"):
        resolve(BASE, {}, overrides(window={"max-messages": 6, "keep-recent": 10}))
    with pytest.raises(ValueError, match=r"keep-recent（30）不能大于 max-messages（20）"):
        resolve(BASE, {}, overrides(window={"keep-recent": 30}))
    with pytest.raises(ValidationError, match="keep-recent 不能大于 max-messages"):
        WindowSettings.model_validate({"max-messages": 6, "keep-recent": 10})


@pytest.mark.parametrize(
    "written",
    [{"window": {"max-mesages": 3}}, {"window": {"max-messages": 1}}, {"summary": {"keep": 0}}, {"polcy": "x"}],
)
def test_overrides_are_as_strict_as_the_settings(written: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ContextOverrides.model_validate(written)


def test_a_preset_names_no_policy() -> None:
    with pytest.raises(ValidationError):
        ContextPreset.model_validate({"policy": "casual-chat"})


def test_every_key_can_be_overridden() -> None:
    assert set(WindowOverrides.model_fields) == set(WindowSettings.model_fields)
    assert set(SummaryOverrides.model_fields) == set(SummarySettings.model_fields)


def test_own_words() -> None:
    settings = resolve(BASE, {}, overrides(window={"closers": ["晓得"], "assents": []}))
    assert (settings.window.closers, settings.window.assents) == (("晓得",), ())
