"""What a message says, as every platform's reader gives it: text with markers for what is no text. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from channels.message import Notice
from channels.text import is_blank

UNKNOWN = "[不支持的消息]"
"""Stands for a message whose kind nobody knows."""


@dataclass(frozen=True, slots=True)
class Content:
    """`text` with markers; `worded` tells whether a person's words are in it, not markers alone."""

    text: str
    worded: bool = True

    @property
    def notice(self) -> Notice | None:
        """The fixed answer it gets instead of a model's, if any."""
        if is_blank(self.text):
            return Notice.EMPTY
        return None if self.worded else Notice.UNSUPPORTED

    @classmethod
    def joined(cls, pieces: Iterable["Content"], between: str = "") -> "Content":
        """The pieces one after the other; words that nobody sees do not count."""
        kept = list(pieces)
        return cls(
            between.join(piece.text for piece in kept), any(piece.worded and not is_blank(piece.text) for piece in kept)
        )


def marker(text: str) -> Content:
    """What stands for a thing that is no text, such as ``[图片]``."""
    return Content(text, worded=False)
