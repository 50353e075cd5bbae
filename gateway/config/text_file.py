"""Reading a file that an admin wrote: an ordinary one, and nothing that could keep a reader waiting for ever."""

import errno
import os
import stat
from pathlib import Path


class NotOrdinary(OSError):
    """What stands under the name is a pipe, a socket or a device."""


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The bytes of a file, at most so many. Raises OSError: NotOrdinary for what is neither file nor folder.

    The null device, which some put in the place of a file that is to be empty, is one.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotOrdinary(error.errno, "a socket", str(path)) from error
        raise
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        empty = stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev
        if not (stat.S_ISREG(found.st_mode) or empty):
            raise NotOrdinary(errno.EINVAL, "no ordinary file", str(path))
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of a file in UTF-8, with or without a byte order mark. Raises as `read_bytes`, and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8-sig", errors)
