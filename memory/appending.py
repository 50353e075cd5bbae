"""Appends to conversation files, in worker threads: whole or not there at all, after whatever was done to the file.

Each append opens the file anew (an editor may have replaced it), holds it under `flock` and writes once. The end of a
file is remembered, so that nothing is read until someone else touches it.
"""

import contextlib
import errno
import fcntl
import logging
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from memory.conversation import ConversationId, Role, Turn
from memory.errors import StoreBusy, typed_errors
from memory.folder import kept_aside, open_file, opened_folder, replaced
from memory.mended import Mended, Outcome
from memory.recent import Recent, Stamp, stamp_of
from memory.repair import KNOWN_IDS, adopted, as_bytes, clean, examine, inspect
from memory.tail import forwards, read_range, whole
from memory.yamlform import write_item

log = logging.getLogger("sanqiao.memory")

FOLDER = "conversations"
LOCK_WAIT = 10.0
"""Seconds an append waits for another process that holds the file."""
TRIES = 10
"""How often a file is opened anew because it was replaced or repaired meanwhile."""


def path_of(conversation: ConversationId, folder: str = FOLDER) -> str:
    """A conversation's file, or its namesake below another folder, from the workspace."""
    return f"{folder}/{conversation.lane.user}/{conversation.file_name}"


@dataclass(frozen=True, slots=True)
class _State:
    """What is known of a file's end as long as `stamp` is the file's."""

    stamp: Stamp
    n: int
    epoch: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file named after a conversation, open and locked, with its folder; `created` a moment ago, and still empty."""

    conversation: ConversationId
    folder: int
    fd: int
    created: bool

    @property
    def stamp(self) -> Stamp:
        return stamp_of(os.fstat(self.fd))

    def current(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            found = os.stat(self.conversation.file_name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        mine = os.fstat(self.fd)
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def append(self, data: bytes, *, sync: bool) -> None:
        """One write; after a short one or an error the file is cut back to what it was. Raises OSError."""
        size = os.fstat(self.fd).st_size
        try:
            _write_once(self.fd, data, size, sync=sync)
            if sync and size == 0:
                os.fsync(self.folder)
        except OSError:
            if size == 0:
                self.remove()
            raise

    def remove(self) -> None:
        """Takes the file out of its folder."""
        os.unlink(self.conversation.file_name, dir_fd=self.folder)


def _write_once(fd: int, data: bytes, size: int, *, sync: bool) -> None:
    """One write behind the `size` bytes there are; after a short one or an error the file is cut back to them."""
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, "short write")
        if sync:
            os.fdatasync(fd)
    except OSError:
        os.ftruncate(fd, size)
        raise


def _lock(fd: int, subject: str, deadline: float) -> None:
    """Takes the lock between processes. Raises StoreBusy."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreBusy(f"{subject} 被另一个进程占用超过 {LOCK_WAIT:.0f} 秒；请检查是否有两个网关") from None
            time.sleep(random.uniform(0.001, 0.01))


@contextlib.contextmanager
def opened_to_append(
    workspace: Path, below: str, conversation: ConversationId, deadline: float
) -> Iterator[OpenFile | None]:
    """The conversation's file `below` a folder, made if need be, locked; None where it was replaced meanwhile.

    `deadline` is monotonic, in seconds. Raises StoreBusy, OSError.
    """
    with opened_folder(workspace, below, conversation.lane.user, create=True) as folder:
        flags, name = os.O_RDWR | os.O_APPEND, conversation.file_name
        created = False
        try:
            fd = open_file(folder, name, flags)
        except FileNotFoundError:
            fd = open_file(folder, name, flags | os.O_CREAT)
            created = True
        try:
            _lock(fd, path_of(conversation, below), deadline)
            empty = os.fstat(fd).st_size == 0  # if not, another writer came between
            file = OpenFile(conversation, folder, fd, created and empty)
            yield file if file.current() else None
        finally:
            os.close(fd)


def numbered(turns: Sequence[Turn], n: int, epoch: int, known: Sequence[str]) -> list[Turn]:
    """The turns to append after ordinal `n` in `epoch`: cleaned, numbered, without those whose id is known."""
    seen, found = set(known), []
    for turn in map(clean, turns):
        if turn.id in seen:
            continue
        seen.update((turn.id, *turn.ids))
        n, epoch = n + 1, epoch + (turn.role is Role.RESET)
        found.append(replace(turn, n=n, epoch=epoch))
    return found


def _changed_at(file: OpenFile) -> str:
    return datetime.fromtimestamp(os.fstat(file.fd).st_mtime, UTC).astimezone().isoformat(timespec="milliseconds")


class Appender:
    """The writing side of the store; thread-safe. Every method blocks."""

    def __init__(self, workspace: Path, *, sync: bool, recent: Recent | None = None, remembered: int = 2048) -> None:
        """`recent` is told what was appended."""
        self._workspace = workspace
        self._recent = recent or Recent()
        self._sync = sync
        self._remembered = remembered
        self._states: OrderedDict[ConversationId, _State] = OrderedDict()
        self._guard = threading.Lock()

    def append(self, conversation: ConversationId, turns: Sequence[Turn], *, wait: bool = True) -> list[Turn]:
        """Appends in one write; returns the turns written, with ordinal and epoch.

        Raises StoreError; then the file is as it was. Without `wait` it is StoreBusy at once where another process has
        the file.
        """
        subject = path_of(conversation)
        deadline = time.monotonic() + (LOCK_WAIT if wait else 0)
        with typed_errors(subject):
            written = self._append_to_known(conversation, turns)
            if written is not None:
                return written
            for _ in range(TRIES):
                with opened_to_append(self._workspace, FOLDER, conversation, deadline) as file:
                    if file is None:
                        continue
                    state = self._state(file)
                    if state is not None:
                        return self._append(file, state, turns)
        raise StoreBusy(f"{subject} 不断被替换；请检查是否有别的程序在改写它")

    def sync(self, conversation: ConversationId) -> None:
        """Puts what was appended on the disk. Raises StoreError; a file that is gone needs nothing."""
        subject = path_of(conversation)
        where = opened_folder(self._workspace, FOLDER, conversation.lane.user)
        with typed_errors(subject), contextlib.suppress(FileNotFoundError), where as folder:
            fd = open_file(folder, conversation.file_name, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.fsync(folder)
            finally:
                os.close(fd)

    def rewrite(self, conversation: ConversationId, change: Callable[[list[Turn]], list[Turn] | None]) -> None:
        """Puts in the file's place what `change` makes of all its turns: whole at every moment. Raises StoreError.

        What is not readable in the old file is not in the new one. Where `change` gives None the file stays as it is.
        """
        subject = path_of(conversation)
        deadline = time.monotonic() + LOCK_WAIT
        with typed_errors(subject):
            for _ in range(TRIES):
                with opened_to_append(self._workspace, FOLDER, conversation, deadline) as file:
                    if file is None:
                        continue
                    if file.created:
                        file.remove()
                        return
                    turns = whole(read_range(file.fd, os.fstat(file.fd).st_size, 0))
                    if any(turn.n < 0 for turn in turns):
                        turns = list(adopted(turns, _changed_at(file)))
                    changed = change(turns)
                    if changed is not None:
                        self._forget(conversation)
                        self._replace(file, changed)
                    return
        raise StoreBusy(f"{subject} 不断被替换；请检查是否有别的程序在改写它")

    def repair(self, conversation: ConversationId) -> Mended:
        """Reads the whole file and mends it as an append would; what it loses is kept aside. Raises StoreError."""
        subject = path_of(conversation)
        deadline = time.monotonic() + LOCK_WAIT
        with typed_errors(subject):
            for _ in range(TRIES):
                with opened_to_append(self._workspace, FOLDER, conversation, deadline) as file:
                    if file is None:
                        continue
                    if file.created:
                        file.remove()
                        return Mended(path=subject, outcome=Outcome.MISSING)
                    return self._repair(file)
        raise StoreBusy(f"{subject} 不断被替换；请检查是否有别的程序在改写它")

    def _repair(self, file: OpenFile) -> Mended:
        size, subject = file.stamp[1], path_of(file.conversation)
        found = examine(file.fd, size)
        self._forget(file.conversation)
        if size == 0 or not (found.edited or found.torn or not found.items):
            return Mended(path=subject, outcome=Outcome.SOUND, items=found.items)
        if not found.edited and found.items:
            kept = self._cut(file, found.size, size)
            cut = size - found.size
            return Mended(path=subject, outcome=Outcome.TORN, items=found.items, cut=cut, kept=kept)
        items, kept = self._mend(file, size)
        unreadable = found.unreadable + bool(found.behind)
        outcome = Outcome.UNREADABLE if not items else Outcome.DAMAGED if unreadable else Outcome.ADOPTED
        return Mended(path=subject, outcome=outcome, items=items, unreadable=unreadable, kept=kept)

    def forget(self, user: str) -> None:
        """What is remembered of the ends of this person's files is of no use any more."""
        with self._guard:
            for conversation in [each for each in self._states if each.lane.user == user]:
                del self._states[conversation]

    def _append_to_known(self, conversation: ConversationId, turns: Sequence[Turn]) -> list[Turn] | None:
        """As `append`, for the file that was appended to before and that nobody touched since; None for any other.

        By its inode it is the file that was opened without following any link, so its path is opened in one step: each
        call of the system costs a thread that competes for the interpreter far more than the call itself.
        """
        with self._guard:
            state = self._states.get(conversation)
        if state is None or state.stamp[1] == 0:
            return None
        path = f"{self._workspace}/{path_of(conversation)}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stamp_of(os.fstat(fd)) != state.stamp:
                return None
            fresh = numbered(turns, state.n, state.epoch, state.ids)
            if not fresh:
                return []
            data = as_bytes(fresh)
            try:
                _write_once(fd, data, state.stamp[1], sync=self._sync)
            except OSError:
                self._forget(conversation)
                raise
            found = os.stat(path, follow_symlinks=False)
            if (found.st_ino, found.st_dev) != (state.stamp[0], state.stamp[3]):
                return None  # replaced at this very moment: appended to the new file too
            self._remember(conversation, stamp_of(found), state, fresh, len(data))
            return fresh
        except (BlockingIOError, FileNotFoundError):
            return None
        finally:
            os.close(fd)

    def _append(self, file: OpenFile, state: _State, turns: Sequence[Turn]) -> list[Turn]:
        fresh = numbered(turns, state.n, state.epoch, state.ids)
        if not fresh:
            return []
        data = as_bytes(fresh)
        self._write(file, data)
        self._remember(file.conversation, file.stamp, state, fresh, len(data))
        return fresh

    def _write(self, file: OpenFile, data: bytes) -> None:
        try:
            file.append(data, sync=self._sync)
        except OSError:
            self._forget(file.conversation)
            raise

    # ---- what is known of a file's end

    def _remember(
        self, conversation: ConversationId, stamp: Stamp, before: _State, fresh: Sequence[Turn], size: int
    ) -> None:
        """The file has this stamp now that `fresh`, of `size` bytes, was appended to it."""
        if stamp[1] != before.stamp[1] + size:  # somebody who takes no lock wrote at the same moment
            self._forget(conversation)
            return
        ids = (*before.ids, *(name for turn in fresh for name in (*turn.ids, turn.id)))[-KNOWN_IDS:]
        self._keep_state(conversation, _State(stamp, fresh[-1].n, fresh[-1].epoch, ids))
        self._recent.appended(conversation, before.stamp, stamp, fresh)

    def _keep_state(self, conversation: ConversationId, state: _State) -> _State:
        with self._guard:
            self._states[conversation] = state
            self._states.move_to_end(conversation)
            if len(self._states) > self._remembered:
                self._states.popitem(last=False)
        return state

    def _forget(self, conversation: ConversationId) -> None:
        with self._guard:
            self._states.pop(conversation, None)
        self._recent.drop(conversation)

    def _state(self, file: OpenFile) -> _State | None:
        """What is at the end of the file, from memory or by reading it; None if it was replaced by a mended one."""
        stamp = file.stamp
        with self._guard:
            known = self._states.get(file.conversation)
        if known is not None and known.stamp == stamp:
            return known
        size = stamp[1]
        if size == 0:
            if not file.created:
                log.warning("file_empty path=%s", path_of(file.conversation))
            return self._keep_state(file.conversation, _State(stamp, -1, 0, ()))
        ending = inspect(file.fd, size)
        if ending.edited or not ending.readable:
            self._mend(file, size)
            return None
        if ending.torn:
            self._cut(file, ending.size, size)
        return self._keep_state(file.conversation, _State(file.stamp, ending.n, ending.epoch, ending.ids))

    def _cut(self, file: OpenFile, sound: int, size: int) -> str:
        """Takes off what an interrupted write left behind the `sound` bytes; returns where it is kept."""
        raw = read_range(file.fd, size - sound, sound)
        kept = self._keep(file, "torn", raw)
        os.ftruncate(file.fd, sound)
        os.fsync(file.fd)
        log.warning("file_torn path=%s cut_bytes=%d kept=%s", path_of(file.conversation), len(raw), kept)
        return kept

    def _mend(self, file: OpenFile, size: int) -> tuple[int, str]:
        """Adopts a file that a person wrote or changed; one without any readable item is put aside.

        Returns the number of items, and where the original is kept.
        """
        raw = read_range(file.fd, size, 0)
        turns = forwards(raw)
        first = next(turns, None)
        name, subject = file.conversation.file_name, path_of(file.conversation)
        if first is None:
            kept = self._keep(file, "unreadable", raw)
            os.unlink(name, dir_fd=file.folder)
            os.fsync(file.folder)
            log.warning("file_unreadable path=%s bytes=%d kept=%s", subject, size, kept)
            return 0, kept
        kept = self._keep(file, "edited", raw)
        items = self._replace(file, adopted(chain((first,), turns), _changed_at(file)))
        log.warning("file_adopted path=%s items=%d kept=%s", subject, items, kept)
        return items, kept

    def _replace(self, file: OpenFile, turns: Iterable[Turn]) -> int:
        """Puts a new file in the place of the old one, whole at every moment; returns the number of its items.

        One turn after another: a million of them at once would hold everybody up while Python looks for garbage.
        """
        items = 0

        def pieces() -> Iterator[bytes]:
            nonlocal items
            for turn in turns:
                items += 1
                yield write_item(turn)

        replaced(file.folder, file.conversation.file_name, pieces())
        return items

    def _keep(self, file: OpenFile, kind: str, raw: bytes) -> str:
        name = file.conversation.file_name
        return kept_aside(self._workspace, file.conversation.lane.user, name, kind, raw)
