"""Folders and files below the workspace, opened step by step from descriptors: no link is followed, nothing leaves."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

QUARANTINE = "quarantine"
"""Where originals are kept that were damaged, changed by a person, or no files."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER = 1 << 20
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def opened_folder(
    workspace: Path, *names: str, create: bool = False, unsynced: list[int] | None = None
) -> Iterator[int]:
    """A descriptor of ``workspace/names…``; missing folders are made (0700) with `create`, and made durable.

    With a list `unsynced` that may be left to the caller, below the first of the names: it gets the folders to be put on
    the disk (see `synced`); what is left in it at the end is put there then. Raises OSError: FileNotFoundError,
    NotADirectoryError for anything but a folder (a link too).
    """
    if create and not workspace.is_dir():
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, name in enumerate(names):
            inner = _inner(fd, name, create=create, unsynced=unsynced if depth else None)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):  # nothing was told to be on the disk
            synced(unsynced or [])


def synced(folders: list[int]) -> None:
    """Puts these folders on the disk, closes them, and takes them off the list. Raises OSError."""
    while folders:
        folder = folders.pop()
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _inner(fd: int, name: str, *, create: bool, unsynced: list[int] | None) -> int:
    if name in ("", ".", "..") or "/" in name:
        raise NotADirectoryError(f"no folder name: {name!r}")
    try:
        return os.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=fd)
        if unsynced is None:
            os.fsync(fd)
        else:
            unsynced.append(os.dup(fd))
    return os.open(name, _FOLDER, dir_fd=fd)


def open_file(folder: int, name: str, flags: int) -> int:
    """A descriptor of an ordinary file; made with 0600. Raises OSError, also for links, pipes and devices."""
    if name in ("", ".", "..") or "/" in name:
        raise FileNotFoundError(f"no file name: {name!r}")
    fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"no ordinary file: {name}")
    return fd


def write_all(fd: int, data: bytes) -> None:
    """Writes everything to a file nobody reads yet. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replaced(folder: int, name: str, pieces: Iterable[bytes]) -> None:
    """Puts a file of these pieces in the place of the one of that name, whole at every moment. Raises OSError."""
    new = f".{name}.new"
    fd = open_file(folder, new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with os.fdopen(fd, "wb", buffering=_BUFFER, closefd=False) as file:
            file.writelines(pieces)
        os.fsync(fd)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        raise
    finally:
        os.close(fd)


def removed(workspace: Path, parent: str, wanted: Callable[[str], bool]) -> list[str]:
    """Removes what is `wanted` by its name right below a folder of the workspace, folders with all that is in them.

    Links are removed, never followed. Returns the files removed, as paths from `parent`. Raises OSError.
    """
    try:
        with opened_folder(workspace, *parent.split("/")) as folder:
            gone = [path for name in sorted(os.listdir(folder)) if wanted(name) for path in _remove(folder, name)]
            os.fsync(folder)
            return gone
    except FileNotFoundError:
        return []


def _remove(folder: int, name: str) -> list[str]:
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return [name]
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        gone = [f"{name}/{path}" for each in os.listdir(inner) for path in _remove(inner, each)]
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
    return gone


def holds(folder: int, name: str, wanted: bytes) -> bool:
    """Whether these bytes are in the file of that name, or in any below the folder of that name. Raises OSError.

    Links are not followed; what is not there holds nothing.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                return any(holds(inner, each, wanted) for each in os.listdir(inner))
            finally:
                os.close(inner)
        if stat.S_ISREG(mode):
            with open(open_file(folder, name, os.O_RDONLY), "rb") as file:
                return _found(file, wanted)
    return False


def _found(file: BinaryIO, wanted: bytes) -> bool:
    end = b""  # of the block before: what is wanted may lie across
    while block := file.read(_BUFFER):
        if wanted in end + block:
            return True
        end = block[1 - len(wanted) :]
    return False


def moved_aside(workspace: Path, where: tuple[str, ...], name: str, kind: str) -> str:
    """Moves whatever is called `name` below ``workspace/where…`` to the quarantine as it is; returns its new path.

    Raises OSError.
    """
    with (
        opened_folder(workspace, *where) as folder,
        opened_folder(workspace, QUARANTINE, *where[1:], create=True) as to,
    ):
        taken = set(os.listdir(to))
        number = next(i for i in range(1, len(taken) + 2) if f"{name}.{kind}-{i}" not in taken)
        target = f"{name}.{kind}-{number}"
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=to)
        os.fsync(to)
        os.fsync(folder)
    return "/".join((QUARANTINE, *where[1:], target))


def kept_aside(workspace: Path, user: str, name: str, kind: str, raw: bytes) -> str:
    """Writes `raw` durably to a new file ``quarantine/{user}/{name}.{kind}-{number}``; returns its path from there.

    Raises OSError.
    """
    with opened_folder(workspace, QUARANTINE, user, create=True) as folder:
        taken = set(os.listdir(folder))
        number = next(i for i in range(1, len(taken) + 2) if f"{name}.{kind}-{i}" not in taken)
        while True:
            target = f"{name}.{kind}-{number}"
            try:
                fd = open_file(folder, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                break
            except FileExistsError:
                number += 1
        try:
            write_all(fd, raw)
            os.fsync(fd)
        except OSError:
            os.unlink(target, dir_fd=folder)
            raise
        finally:
            os.close(fd)
        os.fsync(folder)
    return f"{QUARANTINE}/{user}/{target}"
