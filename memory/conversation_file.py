"""A conversation's file, or its namesake below another folder: where it is, opened anew for each change, locked."""

import contextlib
import errno
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from memory.conversation import ConversationId
from memory.errors import StoreBusy, typed_errors
from memory.folder import open_file, opened_folder, synced
from memory.recent import Stamp, stamp_of
from memory.steps import Steps, at_once

T = TypeVar("T")

FOLDER = "conversations"
LOCK_WAIT = 10.0
"""Seconds an append waits for another process that holds the file."""
TRIES = 10
"""How often a file is opened anew because it was replaced or repaired meanwhile."""


def path_of(conversation: ConversationId, folder: str = FOLDER) -> str:
    """A conversation's file, or its namesake below another folder, from the workspace."""
    return f"{folder}/{conversation.lane.user}/{conversation.file_name}"


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file named after a conversation, open and locked, with its folder; `created` a moment ago, and still empty.

    `unsynced` are folders that were made for it and are not on the disk yet.
    """

    conversation: ConversationId
    folder: int
    fd: int
    created: bool
    unsynced: list[int]

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

    def append(self, data: bytes, *, sync: bool) -> Steps[None]:
        """One write; after a short one or an error the file is cut back to what it was. Raises OSError."""
        size = os.fstat(self.fd).st_size
        try:
            yield from write_once(self.fd, data, size, sync=sync)
            if self.unsynced or (sync and size == 0):
                yield self._sync_folders
        except OSError:
            if size == 0:
                self.remove()
            raise

    def _sync_folders(self) -> None:
        os.fsync(self.folder)
        synced(self.unsynced)

    def remove(self) -> None:
        """Takes the file out of its folder."""
        os.unlink(self.conversation.file_name, dir_fd=self.folder)


def write_once(fd: int, data: bytes, size: int, *, sync: bool) -> Steps[None]:
    """One write behind the `size` bytes there are; after a short one or an error the file is cut back to them."""
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, "short write")
        if sync:
            yield partial(os.fdatasync, fd)
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
    unsynced: list[int] = []
    with opened_folder(workspace, below, conversation.lane.user, create=True, unsynced=unsynced) as folder:
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
            file = OpenFile(conversation, folder, fd, created and empty, unsynced)
            yield file if file.current() else None
        finally:
            os.close(fd)


def work_on(workspace: Path, below: str, conversation: ConversationId, work: Callable[[OpenFile], T | None]) -> T:
    """What `work` makes of the file; with the file that is there by then, where it was replaced or `work` gives None.

    Raises StoreError.
    """

    def in_steps(file: OpenFile) -> Steps[T | None]:
        yield from ()
        return work(file)

    return at_once(steps_on(workspace, below, conversation, in_steps))


def steps_on(
    workspace: Path,
    below: str,
    conversation: ConversationId,
    work: Callable[[OpenFile], Steps[T | None]],
    *,
    wait: bool = True,
) -> Steps[T]:
    """As `work_on`, for work in steps; without `wait` it is StoreBusy at once where another process has the file."""
    subject = path_of(conversation, below)
    deadline = time.monotonic() + (LOCK_WAIT if wait else 0)
    with typed_errors(subject):
        for _ in range(TRIES):
            with opened_to_append(workspace, below, conversation, deadline) as file:
                done = None if file is None else (yield from work(file))
            if done is not None:
                return done
    raise StoreBusy(f"{subject} 不断被替换；请检查是否有别的程序在改写它")
