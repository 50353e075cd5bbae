"""Generations: a write that was asked for before its person was forgotten comes too late, whatever thread it waits in."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from memory.conversation import ConversationId, Turn
from memory.errors import StoreError

_REMEMBERED = 100_000
"""How many forgettings are kept in mind; a write that is late by more than that many is no longer known for one."""


class Forgotten(StoreError):
    """The person was forgotten after this write was asked for: nothing of it is on the disk, or ever will be."""


def question_name(conversation: ConversationId, question: str) -> str:
    """What a user turn, with all that answers it, is called in the generations."""
    return f"{conversation} {question}"


class Held(Exception):
    """Another writer has the folder at this moment."""


class Generations:
    """Counts forgettings, of persons and of whatever else has a name; thread-safe.

    A writer takes `now()` when it is asked to write and writes inside `writing(…)`. Whoever erases calls `forget(…)`
    first and erases inside `alone(…)`: then an older write is either done before, and erased, or refused after.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._count = 0
        self._forgotten: OrderedDict[str, int] = OrderedDict()
        self._locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()

    def now(self) -> int:
        """The present generation."""
        return self._count

    def forget(self, name: str) -> None:
        """From now on whatever of this name was asked for before is too late."""
        with self._guard:
            self._count += 1
            self._forgotten[name] = self._count
            self._forgotten.move_to_end(name)
            if len(self._forgotten) > _REMEMBERED:
                self._forgotten.popitem(last=False)

    def passed(self, generation: int, *names: str) -> bool:
        """Whether any of them was forgotten after that generation."""
        with self._guard:
            return any(self._forgotten.get(name, 0) > generation for name in names)

    def struck(self, conversation: ConversationId, turns: Iterable[Turn]) -> bool:
        """Whether a question among these turns, or one that they answer, was ever forgotten: it does not come back."""
        return self.passed(0, *{question_name(conversation, turn.to or turn.id) for turn in turns})

    @contextmanager
    def alone(self, folder: str, *, wait: bool = True) -> Iterator[None]:
        """Keeps all other writers out of the folders of a person (or shared group) meanwhile.

        Blocks until it is so; raises Held instead unless it may `wait`.
        """
        with self._guard:
            lock = self._locks.setdefault(folder, threading.Lock())
        if not lock.acquire(blocking=wait):
            raise Held
        try:
            yield
        finally:
            lock.release()

    def writers_gone(self, wanted: Callable[[str], bool]) -> None:
        """Blocks until nobody is writing any more of those who are now, in folders that are `wanted`.

        Whoever forgets first, and then waits here, sees all that was written of before: what begins later is refused.
        """
        with self._guard:
            locks = [lock for folder, lock in self._locks.items() if wanted(folder)]
        for lock in locks:
            with lock:
                pass

    @contextmanager
    def writing(self, generation: int, folder: str, *names: str, wait: bool = True) -> Iterator[None]:
        """As `alone`, for a write asked for in that generation. Raises Forgotten if `folder` or a name was since."""
        with self.alone(folder, wait=wait):
            if self.passed(generation, folder, *names):
                raise Forgotten("资料已应要求删除，不再写入")
            yield
