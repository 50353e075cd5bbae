"""What a stranger, or a platform gone wrong, may send: samples changed a little, as bytes and in their structure."""

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

DEEP = "@deep@"
HUGE = "@huge@"
"""Stand for values that no writer of JSON makes: lists in lists in lists, a number of 5,000 digits."""

NASTY: Sequence[Any] = (
    *(None, True, False, 0, -1, 1 << 63, -(1 << 64), 1e308, float("nan"), float("inf"), HUGE, DEEP),
    *("", " ", "\0", "\ud800", "\udfff\ud800", "\u2028", "\u202e", "\ufeff", "\x1b[2J", "\r\n\r\n", "\x85"),
    *("@_all", "{}", "[]", "null", "]]>", "<xml>&x;</xml>", "../../../etc/passwd", "%s%n", "${jndi:x}", "NaN", "=1+1"),
    *("1" * 5000, "汉" * 6000, "😀" * 3000, "a" * 70_000, "/forget", "/new", "- user: |\n", "\u200b" * 50, "#" * 300),
    *([], {}, [[]], [{}], {"": ""}, [None] * 2000, {str(n): n for n in range(300)}),
)
_CHUNKS = (b"\0", b"\xff\xfe", b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b"<![CDATA[", b"]]>", b'"', b"{", b"\\u0000", b"\x80")


def written(value: object, *, ascii_only: bool = True) -> str:
    """JSON, with what stands for the impossible replaced by it."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    return text.replace(f'"{HUGE}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000)


class Mutator:
    """Changes samples by chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def bytes(self, sample: bytes) -> bytes:
        """One to four small changes."""
        data = bytearray(sample)
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            at, end = sorted((self._place(data), self._place(data)))
            match self.rng.randrange(7):
                case 0 if data:
                    data[min(at, len(data) - 1)] ^= 1 << self.rng.randrange(8)
                case 1:
                    data[at:at] = self.rng.randbytes(self.rng.choice((1, 2, 16)))
                case 2:
                    del data[at : min(end, at + 64)]
                case 3:
                    del data[at:]
                case 4:
                    data[at:at] = data[at : min(end, at + 200)] * self.rng.choice((1, 2, 20))
                case 5:
                    data[at : at + 1] = self.rng.choice(_CHUNKS)
                case _:
                    data[at:at] = str(self.rng.choice((-1, 0, 1 << 31, 1 << 63, 10**30))).encode()
        return bytes(data)

    def _place(self, data: bytearray) -> int:
        return self.rng.randrange(len(data) + 1)

    def value(self, sample: Any) -> Any:
        """One to three changes of its structure; the sample stays as it is."""
        changed = copy.deepcopy(sample)
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            changed = self._changed(changed)
        return changed

    def _changed(self, value: Any) -> Any:
        places = list(_places(value))
        if not places:
            return self.nasty()
        holder, key = self.rng.choice(places)
        match self.rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = [holder[key]]
            case 2 if isinstance(holder, dict):
                holder[self.rng.choice(("", "__proto__", "\0", "k" * 5000, str(key).upper()))] = holder[key]
            case 3:
                holder[key] = str(holder[key])
            case _:
                holder[key] = self.nasty()
        return value

    def nasty(self) -> Any:
        """Something nobody expects."""
        return copy.deepcopy(self.rng.choice(NASTY))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value of JSON: its holder, and the key or index there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[Any, Any]] = []
    for key, each in inside:
        found.append((value, key))
        found += _places(each)
    return found
