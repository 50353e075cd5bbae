"""Reading a file that an admin wrote: an ordinary one, and nothing that could keep a reader waiting for ever."""

import os
import stat
from pathlib import Path


class NotOrdinary(OSError):
    """What stands under the name is a pipe, a socket or a device."""


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark.

    Raises OSError (NotOrdinary for what is neither file nor folder) and UnicodeDecodeError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise NotOrdinary(f"{path} is no ordinary file")
        return file.read().decode("utf-8-sig")
