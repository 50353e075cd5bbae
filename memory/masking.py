"""Masking: identity cards, bank cards and phone numbers are made unreadable before a text is stored or sent on.

The rules follow GB 11643-1999 (identity numbers), ISO/IEC 7812-1 (card numbers) and the mainland numbering plan
(mobile numbers). Digits of any width count; a match never begins or ends inside a longer run of digits.
"""

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated

from pydantic import AfterValidator

RULES = ("id-card", "bank-card", "phone")
"""The names of the rules, in the order in which they are applied, so that none tears another's match."""

_GAP = "[ \u00a0\u3000\\-\u2010-\u2015－]"
_ID_CARD = re.compile(rf"(?<!\d)(?:\d{{6}}{_GAP}?\d{{8}}{_GAP}?\d{{3}}[\dXxＸｘ]|\d{{15}})(?!\d)")
_BANK_CARD = re.compile(
    rf"(?<!\d)(?:\d{{16,19}}|\d{{6}}{_GAP}\d{{10,13}}|\d{{4}}(?:{_GAP}\d{{4}}){{3}}(?:{_GAP}?\d{{1,3}})?)(?!\d)"
)
_SIXTEEN = re.compile(rf"\d(?:{_GAP}?\d){{15}}(?!\d)")
_COUNTRY = rf"[+＋]?(?:[0０]{{2}})?[8８][6６]{_GAP}?|[0０]"
_PHONE = re.compile(rf"(?<!\d)(?:{_COUNTRY})?([1１][3-9３-９]\d{_GAP}?\d{{4}}{_GAP}?\d{{4}})(?!\d)")
_PROVINCE = re.compile(r"[1-6][1-9]|[2-6]0|71|8[1-3]|91")
_ISSUER = re.compile(r"4|5[0-8]|6[0258]|35|81|95[58]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720")

_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECKS = "10X98765432"


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if ":" in name:
            raise ValueError(f"自定义过滤器 {name} 暂不可用；请删去，可写 {'、'.join(RULES)}")
        if name not in RULES:
            raise ValueError(f"没有名为 {name} 的脱敏规则；可写 {'、'.join(RULES)}")
    return names


MaskingRules = Annotated[tuple[str, ...], AfterValidator(_known)]
"""A list of rule names as `memory.masking` and an agent's `masking` take it; empty: nothing is masked."""


class Masking:
    """Some of the rules, ready to be applied. Raises ValueError for a name that is no rule."""

    def __init__(self, rules: Iterable[str]) -> None:
        named = _known(tuple(rules))
        self.rules = tuple(rule for rule in RULES if rule in named)

    def __repr__(self) -> str:
        return f"Masking({self.rules!r})"

    def mask(self, text: str) -> str:
        """The text with the middle of each number starred; as long as before. Masking it again changes nothing."""
        while True:
            masked = text
            for rule in self.rules:
                masked = _applied(_APPLY[rule], masked)
            if masked == text:
                return masked
            text = masked


def strictest(*maskings: Masking) -> Masking:
    """All the rules of several: for what sees a text before it is known which agent will."""
    return Masking(rule for masking in maskings for rule in masking.rules)


def _digits(text: str) -> str:
    """ASCII digits and X of a number however written."""
    return "".join(str(int(c)) if c.isdecimal() else "X" for c in text if c.isdecimal() or c in "XxＸｘ")


def _starred(number: str, head: int, tail: int) -> str:
    """Stars all of a number's digits but the first `head` and the last `tail`; gaps stay."""
    places = [at for at, c in enumerate(number) if _digits(c)]
    hidden = set(places[head : len(places) - tail])
    return "".join("*" if at in hidden else c for at, c in enumerate(number))


def _is_date(year: str, rest: str) -> bool:
    try:
        return date(int(year), int(rest[:2]), int(rest[2:])).year >= 1850
    except ValueError:
        return False


def _is_id_card(number: str) -> bool:
    if not _PROVINCE.match(number):
        return False
    if len(number) == 15:
        return _is_date("19" + number[6:8], number[8:12])
    total = sum(weight * int(digit) for weight, digit in zip(_ID_WEIGHTS, number[:17], strict=True))
    return number[17] == _ID_CHECKS[total % 11] and _is_date(number[6:10], number[10:14])


def _is_bank_card(number: str) -> bool:
    if not 16 <= len(number) <= 19 or not _ISSUER.match(number):
        return False
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(number)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def _id_card(found: re.Match[str]) -> str | None:
    return _starred(found[0], 3, 2) if _is_id_card(_digits(found[0])) else None


def _bank_card(found: re.Match[str]) -> str | None:
    whole = found[0]
    if _is_bank_card(_digits(whole)):
        return _starred(whole, 4, 4)
    first = _SIXTEEN.match(whole)  # what follows the sixteen digits may be another number
    if first and _is_bank_card(_digits(first[0])):
        return _starred(first[0], 4, 4) + whole[first.end() :]
    return None


def _phone(found: re.Match[str]) -> str | None:
    return found[0].removesuffix(found[1]) + _starred(found[1], 3, 4)


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]]
_APPLY: dict[str, _Rule] = {
    "id-card": (_ID_CARD, _id_card),
    "bank-card": (_BANK_CARD, _bank_card),
    "phone": (_PHONE, _phone),
}


def _applied(rule: _Rule, text: str) -> str:
    """Unlike `re.sub`, looks again from the next number on when what the pattern found turns out not to be one."""
    pattern, masked = rule
    pieces: list[str] = []
    done = at = 0
    while found := pattern.search(text, at):
        replacement = masked(found)
        at = found.start() + 1
        if replacement is not None:
            pieces += (text[done : found.start()], replacement)
            done = at = found.end()
    return "".join((*pieces, text[done:]))
