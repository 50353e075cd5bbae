"""Texts that can be stored and sent: half characters become U+FFFD, NUL goes, all else stays."""

import re

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def storable(text: str) -> str:
    """The text as UTF-8 can carry it: pairs of surrogates become the one character they spell, lone ones U+FFFD."""
    if text.isascii() or not _LONE.search(text):
        return text
    return _LONE.sub("\ufffd", _PAIR.sub(_joined, text))


def speakable(text: str) -> str:
    """A model's answer as it may be shown and stored: as `storable`, and without NUL."""
    return storable(text).replace("\0", "")
