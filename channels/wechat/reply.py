"""The text of one passive reply: a part that was waiting, the own answer where it fits, a word on what follows. Pure."""

from dataclasses import dataclass

from channels.channel import Texts
from channels.markup import plain
from channels.split import split

PASSIVE_BYTES = 2047
"""What one passive reply holds; the platform drops a longer one."""

ACTIVE_BYTES = 2000

_MOST_HINT_BYTES = 400
_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Words:
    """One part of an answer, and whether others wait that come after it."""

    text: str
    more: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What is written, and whether the own answer is in it."""

    text: str
    with_own: bool


def parts(text: str, notice: str, limit: int, texts: Texts) -> list[str]:
    """The answer as plain texts, each short enough that it can be sent with a hint on what follows."""
    room = max((_size(_BETWEEN + hint) for hint in (_hint(texts, "more"), _hint(texts, "later"))), default=0)
    return split(plain(text), limit - room, notice=notice)


def compose(first: Words | None, own: Words | None, *, coming: bool, texts: Texts) -> Reply:
    """One reply of `first` and `own`, at least one of which is there. `coming`: the own one is still being made.

    The own answer joins only the last part that waited: parts are read in their order.
    """
    if first is None:
        assert own is not None
        return Reply(with_hint(own.text, "more" if own.more else "", texts), True)
    if own is None:
        return Reply(with_hint(first.text, "more" if first.more else "later" if coming else "", texts), False)
    both = first.text + _BETWEEN + own.text
    hint = "more" if own.more else ""
    if not first.more and _size(both) + (_size(_BETWEEN + _hint(texts, hint)) if hint else 0) <= PASSIVE_BYTES:
        return Reply(with_hint(both, hint, texts), True)
    return Reply(with_hint(first.text, "more", texts), False)


def with_hint(text: str, name: str, texts: Texts, limit: int = PASSIVE_BYTES) -> str:
    """The text with the hint of that name ("" for none) at its end, where it fits."""
    hinted = text + _BETWEEN + _hint(texts, name) if name else text
    return hinted if _size(hinted) <= limit else text


def _hint(texts: Texts, name: str) -> str:
    """A hint; one of an admin's that would leave no room for answers is cut."""
    return texts(name).encode("utf-8", "replace")[:_MOST_HINT_BYTES].decode("utf-8", "ignore")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
