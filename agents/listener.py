"""Hears an answer while it comes, and knows what was said of it: whatever is heard can't be taken back."""

from collections.abc import Callable


class Listener:
    """Passes each piece of an answer on; `text` is everything passed on so far."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self.text = ""

    def __call__(self, piece: str) -> None:
        """Passes a piece on; an empty one is none."""
        if piece:
            self.text += piece
            self._on_text(piece)
