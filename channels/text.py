"""What of a text people can see, and a text without what nobody can."""

import re
import unicodedata

_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category that no font draws (Unicode: Default_Ignorable_Code_Point, BRAILLE PATTERN BLANK)."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def is_blank(text: str) -> bool:
    """Whether nothing of the text is visible: blanks, zero-width characters, fillers, lone variation selectors."""
    return all(_invisible(char) for char in text)


def _invisible(char: str) -> bool:
    if char.isspace() or char in _BLANK_LETTERS or "\ufe00" <= char <= "\ufe0f":
        return True
    return unicodedata.category(char) in ("Cf", "Cc")


def without_controls(text: str) -> str:
    """The text with its line ends as ``\\n``, without control characters, lone surrogates as U+FFFD."""
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str, most: int = 200) -> str:
    """A name as one line of printable characters, at most `most` of them."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:most]
