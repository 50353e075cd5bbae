"""What of a text people can see, and whether it can be an id."""

import unicodedata

_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category that no font draws (Unicode: Default_Ignorable_Code_Point, BRAILLE PATTERN BLANK)."""


def is_blank(text: str) -> bool:
    """Whether nothing of the text is visible: blanks, zero-width characters, fillers, lone variation selectors."""
    return all(_invisible(char) for char in text)


def _invisible(char: str) -> bool:
    if char.isspace() or char in _BLANK_LETTERS or "\ufe00" <= char <= "\ufe0f":
        return True
    return unicodedata.category(char) in ("Cf", "Cc")


def one_line(text: str, most: int = 200) -> str:
    """A name as one line of printable characters, at most `most` of them."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:most]


def shortened(text: str, most: int = 200) -> str:
    """The text as one line, cut where it is longer than `most` characters."""
    line = one_line(text, most + 1)
    return line if len(line) <= most else line[:most] + "…"


def is_id(text: str, longest: int = 200) -> bool:
    """Whether the text can be what a platform calls a message, a chat or a person."""
    return 0 < len(text) <= longest and text.isprintable()
