"""What a model wrote → what may be shown and stored: no reasoning, no NUL, no half characters; else to the character."""

import re

from memory.sanitise import storable

# A tag right after a backtick is text: the model speaks about the tag.
_OPEN = re.compile(r"(?<!`)<think(?:ing)?>", re.IGNORECASE)
_CLOSE = re.compile(r"(?<!`)</think(?:ing)?>", re.IGNORECASE)
_TAGS = ("<think>", "<thinking>", "</think>", "</thinking>")


def clean(text: str) -> str:
    """A whole answer without reasoning, NUL and half characters; blanks at its edges stay."""
    thinking = ThinkFilter()
    thinking.feed(text)
    thinking.close()
    return thinking.text


def _held(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of a tag, or of a surrogate pair."""
    if text and "\ud800" <= text[-1] <= "\udbff":
        return 1
    start = text.rfind("<")
    if start < 0:
        return 0
    tail = text[start:].lower()
    return len(tail) if any(tag.startswith(tail) for tag in _TAGS) else 0


class ThinkFilter:
    """Takes an answer in pieces, however they are cut, and gives what may be shown of it.

    ``<think>…</think>`` (also ``<thinking>``) goes, with the blanks after it when nothing was shown before; a block
    without an end goes up to the answer's end. Some servers leave out the opening tag: then everything up to the
    closing one is not part of `text`, although it has been shown; `unopened` says so, and the next answer of such a
    server is taken as `begun` in the middle of a block. Blanks at the beginning are held back until something follows,
    so that a blank answer shows nothing. `text` is what was let through so far.
    """

    def __init__(self, *, begun: bool = False) -> None:
        self.text = ""
        self.unopened = False
        self._unclosed: list[str] | None = [] if begun else None
        self._rest = ""
        self._before = ""
        self._blanks = ""
        self._thinking = begun
        self._after_block = False

    def feed(self, piece: str) -> str:
        """The part of the answer that may be shown now; often less, or the end of earlier pieces."""
        piece = piece.replace("\0", "")
        if self._unclosed is not None:
            self._unclosed.append(piece)
        self._rest += piece
        return self._let_through(final=False)

    def close(self, *, cut: bool = False) -> str:
        """The answer has ended: what was held back; all of it, where a block taken as begun has no end.

        `cut`: the answer was, so that the end may be missing.
        """
        shown = self._let_through(final=True)
        if self._unclosed is not None and not cut:
            self._rest, self._before, self._thinking = "".join(self._unclosed), "", False
            shown = self._let_through(final=True)
        return shown

    def _let_through(self, *, final: bool) -> str:
        shown = ""
        while self._rest:
            # The character before is searched along, for the backtick.
            text = self._before + self._rest
            found = _CLOSE.search(text) if self._thinking else self._next_tag(text)
            if found is None:
                keep = 0 if final else _held(text)
                self._rest, text = text[len(text) - keep :], text[len(self._before) : len(text) - keep]
                self._before = (self._before + text)[-1:]
                return shown + ("" if self._thinking else self._show(text))
            if not self._thinking:
                shown += self._show(text[len(self._before) : found.start()])
            self._rest, self._before = text[found.end() :], ""
            closes = text[found.start() + 1] == "/"
            if closes and not self._thinking:
                self.text = self._blanks = ""
                self.unopened = True
            if closes and self._unclosed is not None:
                self._unclosed = None
                self.unopened = True
            self._after_block = closes and not self.text
            self._thinking = not closes
        return shown

    @staticmethod
    def _next_tag(text: str) -> re.Match[str] | None:
        tags = [found for found in (_OPEN.search(text), _CLOSE.search(text)) if found]
        return min(tags, key=lambda found: found.start(), default=None)

    def _show(self, text: str) -> str:
        text = storable(text)
        if self._after_block:
            text = text.lstrip()
            self._after_block = not text
        if not self.text:
            self._blanks += text
            if not self._blanks.strip():
                return ""
            text, self._blanks = self._blanks, ""
        self.text += text
        return text
