"""Masking: identity cards, bank cards and phone numbers are made unreadable before a text is stored or sent on.

The rules follow GB 11643-1999 (identity numbers), ISO/IEC 7812-1 (card numbers) and the mainland numbering plan
(mobile numbers). Digits of any width count; a match never begins or ends inside a longer run of digits.
"""

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated

from pydantic import AfterValidator

from memory.filters import Filter, is_named_so

RULES = ("id-card", "bank-card", "phone")
"""The names of the rules, in the order in which they are applied, so that none tears another's match."""

_GAPS = " \u00a0\u3000\u2010\u2011\u2012\u2013\u2014\u2015－-"
_GAP = f"[{_GAPS}]"
_D = "[0-9０-９]"


def _number(pattern: str) -> re.Pattern[str]:
    r"""A pattern that stands between other characters than digits; ``\d`` is a digit of either width."""
    return re.compile(rf"(?<!\d){pattern}(?!\d)".replace(r"\d", _D))


_ID_CARD = _number(rf"(?:\d{{6}}{_GAP}?\d{{8}}{_GAP}?\d{{3}}(?:\d|[XxＸｘ])|\d{{15}})")
_BANK_CARD = _number(rf"(?:\d{{16,19}}|\d{{6}}{_GAP}\d{{10,13}}|\d{{4}}(?:{_GAP}\d{{4}}){{3}}(?:{_GAP}?\d{{1,3}})?)")
_SIXTEEN = _number(rf"\d(?:{_GAP}?\d){{15}}")
_COUNTRY = rf"[+＋]?(?:[0０]{{2}})?[8８][6６]{_GAP}?|[0０]"
_PHONE = _number(rf"(?:{_COUNTRY})?([1１][3-9３-９]\d{_GAP}?\d{{4}}{_GAP}?\d{{4}})")
_PLAIN = str.maketrans("０１２３４５６７８９xＸｘ", "0123456789XXX", _GAPS)
_PROVINCE = re.compile(r"1[1-5]|2[1-3]|3[1-7]|4[1-6]|5[0-4]|6[1-5]|71|8[1-3]|91")
_ISSUER = re.compile(r"4|5[0-8]|6[0258]|35|81|95[58]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720")

_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECKS = "10X98765432"


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in RULES and not is_named_so(name):
            raise ValueError(f"没有名为 {name} 的脱敏规则；可写 {'、'.join(RULES)}，或自己的 模块:函数")
    return names


MaskingRules = Annotated[tuple[str, ...], AfterValidator(_known)]
"""A list of rules and own filters (``module:function``) as `memory.masking` and an agent's `masking` take it."""


class Masking:
    """Some of the rules and own filters, ready to be applied. Raises ValueError for a name that is neither."""

    def __init__(self, rules: Iterable[str]) -> None:
        named = _known(tuple(rules))
        self.rules = tuple(rule for rule in RULES if rule in named)
        self.filters = tuple(Filter(name) for name in dict.fromkeys(named) if name not in RULES)

    def __repr__(self) -> str:
        return f"Masking({self.names!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """The rules, then the filters in their order."""
        return (*self.rules, *(each.name for each in self.filters))

    async def apply(self, text: str) -> str | None:
        """The text as it may be stored and sent on; None where a filter drops it. Raises FilterFailed.

        Filters see a text that the rules have masked already. What a filter gives is masked again.
        """
        masked = self.mask(text)
        for each in self.filters:
            kept = await each.apply(masked)
            if kept is None:
                return None
            masked = self.mask(kept)
        return masked

    def mask(self, text: str) -> str:
        """By the rules alone: the middle of each number is starred, the length stays. Once more changes nothing."""
        while True:
            masked = text
            for rule in self.rules:
                masked = _applied(_APPLY[rule], masked)
            if masked == text:
                return masked
            text = masked


def _starred(number: str, head: int, tail: int) -> str:
    """Stars all of a number's digits but the first `head` and the last `tail`; gaps stay."""
    places = [at for at, char in enumerate(number) if char.translate(_PLAIN)]
    hidden = set(places[head : len(places) - tail])
    return "".join("*" if at in hidden else char for at, char in enumerate(number))


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
    doubled = (int("0246813579"[int(digit)]) for digit in number[-2::-2])
    return (sum(map(int, number[-1::-2])) + sum(doubled)) % 10 == 0


def _id_card(found: re.Match[str]) -> str | None:
    return _starred(found[0], 3, 2) if _is_id_card(found[0].translate(_PLAIN)) else None


def _bank_card(found: re.Match[str]) -> str | None:
    whole = found[0]
    if _is_bank_card(whole.translate(_PLAIN)):
        return _starred(whole, 4, 4)
    first = _SIXTEEN.match(whole)  # what follows the sixteen digits may be another number
    if first and _is_bank_card(first[0].translate(_PLAIN)):
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
