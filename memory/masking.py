"""Masking: identity cards, bank cards and phone numbers are made unreadable before a text is stored or sent on."""

from typing import Annotated

from pydantic import AfterValidator

RULES = ("id-card", "bank-card", "phone")
"""The names of the rules, in the order in which they are applied."""


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if ":" in name:
            raise ValueError(f"自定义过滤器 {name} 暂不可用；请删去，可写 {'、'.join(RULES)}")
        if name not in RULES:
            raise ValueError(f"没有名为 {name} 的脱敏规则；可写 {'、'.join(RULES)}")
    return names


MaskingRules = Annotated[tuple[str, ...], AfterValidator(_known)]
"""A list of rule names as `memory.masking` and an agent's `masking` take it; empty: nothing is masked."""
