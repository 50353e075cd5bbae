"""The newest turns of conversation files, as they were last read or written: a file nobody else touched is not read again."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from memory.conversation import ConversationId, Role, Turn
from memory.tail import Backwards, NotKept, answers

MOST_TURNS = 256
MOST_CONVERSATIONS = 4096
MOST_CHARACTERS = 8 << 20
"""The bounds: turns kept of one conversation, conversations, and the characters of all their turns."""
_OF_EACH = 400  # what a turn takes beside its text, in characters

Stamp = tuple[int, int, int, int]
"""Inode, size, time of the last change (ns) and device: what a file is known by again."""


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_dev


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest turns of a file, newest first, while it has this stamp; `whole`: there are no others."""

    stamp: Stamp
    turns: tuple[Turn, ...]
    whole: bool
    characters: int


class Recent:
    """What is kept of the files of one workspace; thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[ConversationId, Kept] = OrderedDict()
        self._characters = 0
        self._guard = threading.Lock()

    def get(self, conversation: ConversationId) -> Kept | None:
        """What is kept, whether the file is still the same or not."""
        return self._kept.get(conversation)

    def put(self, conversation: ConversationId, stamp: Stamp, turns: Sequence[Turn], *, whole: bool) -> None:
        """Keeps what was read of the file with this stamp, newest first."""
        self._put(conversation, stamp, turns, whole, sum(map(_weight, turns)))

    def _put(
        self, conversation: ConversationId, stamp: Stamp, turns: Sequence[Turn], whole: bool, characters: int
    ) -> None:
        characters -= sum(map(_weight, turns[MOST_TURNS:]))
        kept = Kept(stamp, tuple(turns[:MOST_TURNS]), whole and len(turns) <= MOST_TURNS, characters)
        with self._guard:
            self._drop(conversation)
            self._kept[conversation] = kept
            self._characters += kept.characters
            while len(self._kept) > MOST_CONVERSATIONS or self._characters > MOST_CHARACTERS:
                self._drop(next(iter(self._kept)))

    def appended(self, conversation: ConversationId, before: Stamp, after: Stamp, turns: Sequence[Turn]) -> None:
        """The file was `before`, and these turns, oldest first, were written behind what was in it."""
        kept = self._kept.get(conversation)
        if before[1] == 0:
            kept = Kept(before, (), True, 0)
        if kept is None or kept.stamp != before:
            self.drop(conversation)
            return
        newest = (*reversed(turns), *kept.turns)
        if any(_repeats(turn, newest[place:]) for place, turn in enumerate(newest[: len(turns)], 1)):
            self.drop(conversation)
        else:
            self._put(conversation, after, newest, kept.whole, kept.characters + sum(map(_weight, turns)))

    def drop(self, conversation: ConversationId) -> None:
        """Keeps nothing of this file."""
        with self._guard:
            self._drop(conversation)

    def clear(self) -> None:
        """Keeps nothing."""
        with self._guard:
            self._kept.clear()
            self._characters = 0

    def _drop(self, conversation: ConversationId) -> None:
        kept = self._kept.pop(conversation, None)
        self._characters -= kept.characters if kept else 0


def _weight(turn: Turn) -> int:
    return len(turn.text) + sum(len(call.arguments) for call in turn.tool_calls) + _OF_EACH


def _repeats(turn: Turn, older: Sequence[Turn]) -> bool:
    """Whether a reader may pass over `turn` since its question has an answer; a known id is never appended.

    All that is kept counts: what a reader passed over is not, and yet keeps an answer near (see `REPEAT_WITHIN`).
    """
    if turn.role is not Role.ASSISTANT or turn.to is None:
        return False
    return any(each.to == turn.to and answers(each) for each in older)


class KeptTail:
    """A `Tail` of what is kept alone; taking more raises NotKept."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._turns = iter(kept.turns)
        self.capped = False
        self.last: Turn | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        turn = next(self._turns, None)
        if turn is None:
            if not self._kept.whole:
                raise NotKept
            raise StopIteration
        self.last = turn
        return turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns = iter(())


class RecentTail:
    """A `Tail` of what is kept, then of the file itself, opened when it is needed; keeps what it read when it is left."""

    def __init__(
        self,
        recent: Recent,
        conversation: ConversationId,
        kept: Kept | None,
        open_: Callable[[], int | None],
    ) -> None:
        """`open_` gives a descriptor of the file, None without one; it is called at once where nothing is kept."""
        self._recent = recent
        self._conversation = conversation
        self._given = 0
        self._turns: list[Turn] = list(kept.turns) if kept else []
        self._known = len(self._turns)
        self._whole = kept is not None and kept.whole
        self._open = open_
        self._file: Backwards | None = None
        self._stamp: Stamp | None = None
        self.capped = False
        self.last: Turn | None = None
        if kept is None:
            self._file = self._opened()

    def _opened(self) -> Backwards:
        fd = self._open()
        try:
            self._stamp = stamp_of(os.fstat(fd)) if fd is not None else None
            return Backwards(fd)
        except BaseException:
            if fd is not None:
                os.close(fd)
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        if self._given == len(self._turns):
            turn = None if self._whole else self._read()
            if turn is None:
                raise StopIteration
            self._turns.append(turn)
        self.last = self._turns[self._given]
        self._given += 1
        return self.last

    def _read(self) -> Turn | None:
        if self._file is None:
            self._file = self._opened()
            turn = next(self._file, None)
            while turn is not None and turn.n >= self._turns[-1].n:  # what is kept; the file may have grown meanwhile
                turn = next(self._file, None)
        else:
            turn = next(self._file, None)
        if turn is None:
            self.capped = self._file.capped
            self._whole = not self.capped
        return turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        self._file.close()
        new = self._stamp is not None and len(self._turns) > self._known and self._known < MOST_TURNS
        if kind is None and new and self._stamp is not None and all(turn.n >= 0 for turn in self._turns):
            kept = self._recent.get(self._conversation)
            if self._known == 0 or (kept is not None and kept.stamp == self._stamp):
                self._recent.put(self._conversation, self._stamp, self._turns, whole=self._whole)
