"""A conversation's turns with those that wait for its file, newest first, as far as the file can be read."""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Self

from memory.appending import numbered
from memory.conversation import ConversationId, Turn
from memory.conversation_file import path_of
from memory.errors import StoreClosed, StoreError
from memory.tail import Tail, Tails, without_repeats

log = logging.getLogger("sanqiao.memory")


class Merged:
    """A `Tail` of what waits (`owed`, oldest first) and then of what `tails` gives; that it fails ends the turns.

    What waits has the ordinals it will have in the file, or none where the file's are not known.
    """

    def __init__(self, conversation: ConversationId, owed: Sequence[Turn], tails: Tails) -> None:
        self._conversation = conversation
        self._quiet = bool(owed)
        self._failed = False
        self._tail: Tail | None = None
        self.last: Turn | None = None
        try:
            self._tail = tails()
        except StoreClosed:
            raise
        except (StoreError, OSError) as error:
            self._fail(error)
        self._turns = self._with(owed) if owed else self._file()

    def _with(self, owed: Sequence[Turn]) -> Iterator[Turn]:
        file = self._file()
        newest = next(file, None)
        if newest is not None and newest.n >= 0:
            owed = numbered(owed, newest.n, max(newest.epoch, 0), (newest.id, *newest.ids))
        elif newest is None and not self._failed:
            owed = numbered(owed, -1, 0, ())
        return without_repeats(chain(reversed(owed), () if newest is None else (newest,), file))

    def _file(self) -> Iterator[Turn]:
        if self._tail is None:
            return
        try:
            yield from self._tail
        except (StoreError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        if not self._quiet:  # where something waits, that was said
            log.error("file_not_read path=%s error=%s", path_of(self._conversation), error)

    @property
    def capped(self) -> bool:
        """Whether older turns may exist."""
        return self._failed or (self._tail is not None and self._tail.capped)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        self.last = next(self._turns)
        return self.last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns = iter(())
        if self._tail is not None:
            self._tail.__exit__(None, None, None)
