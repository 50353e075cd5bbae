"""A conversation file after a crash or a person has been at it, made whole again; the original is kept aside first."""

import logging
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from memory.conversation import Turn
from memory.conversation_file import OpenFile, path_of
from memory.ending import adopted
from memory.folder import kept_aside, replaced
from memory.tail import forwards, read_range
from memory.yamlform import write_item

log = logging.getLogger("sanqiao.memory")


def changed_at(file: OpenFile) -> str:
    """When the file was last written to, as ISO 8601."""
    return datetime.fromtimestamp(os.fstat(file.fd).st_mtime, UTC).astimezone().isoformat(timespec="milliseconds")


def cut_back(workspace: Path, file: OpenFile, sound: int, size: int) -> str:
    """Takes off what an interrupted write left behind the `sound` bytes; returns where it is kept."""
    raw = read_range(file.fd, size - sound, sound)
    kept = _keep(workspace, file, "torn", raw)
    os.ftruncate(file.fd, sound)
    os.fsync(file.fd)
    log.warning("file_torn path=%s cut_bytes=%d kept=%s", path_of(file.conversation), len(raw), kept)
    return kept


def adopt(workspace: Path, file: OpenFile, size: int) -> tuple[int, str]:
    """Adopts a file that a person wrote or changed; one without any readable item is put aside.

    Returns the number of items, and where the original is kept.
    """
    raw = read_range(file.fd, size, 0)
    turns = forwards(raw)
    first = next(turns, None)
    name, subject = file.conversation.file_name, path_of(file.conversation)
    if first is None:
        kept = _keep(workspace, file, "unreadable", raw)
        os.unlink(name, dir_fd=file.folder)
        os.fsync(file.folder)
        log.warning("file_unreadable path=%s bytes=%d kept=%s", subject, size, kept)
        return 0, kept
    kept = _keep(workspace, file, "edited", raw)
    items = replace_with(file, adopted(chain((first,), turns), changed_at(file)))
    log.warning("file_adopted path=%s items=%d kept=%s", subject, items, kept)
    return items, kept


def replace_with(file: OpenFile, turns: Iterable[Turn]) -> int:
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


def _keep(workspace: Path, file: OpenFile, kind: str, raw: bytes) -> str:
    name = file.conversation.file_name
    return kept_aside(workspace, file.conversation.lane.user, name, kind, raw)
