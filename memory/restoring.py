"""A conversation file after a crash or a person has been at it, made whole again; the original is kept aside first."""

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from memory.conversation import Turn
from memory.conversation_file import OpenFile, path_of
from memory.ending import adopted
from memory.folder import kept_aside, replaced
from memory.tail import Piece, once, pieces_forwards, read_range
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


@dataclass(frozen=True, slots=True)
class Adoption:
    """A file made whole: its `items`, how many places were `unreadable` and left out, and where the original is `kept`.

    `not_utf8` of the items were saved in another charset: read as GB18030, or else with U+FFFD for what is wrong.
    """

    items: int
    unreadable: int
    not_utf8: int
    kept: str


class _Tally:
    """Counts what a file's pieces lose as they are passed on."""

    def __init__(self) -> None:
        self.unreadable = self.not_utf8 = 0

    def counted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.unreadable += piece.loses
            self.not_utf8 += piece.not_utf8
            yield piece


def adopt(workspace: Path, file: OpenFile, size: int) -> Adoption:
    """Adopts a file that a person wrote or changed; one without any readable item is put aside."""
    raw = read_range(file.fd, size, 0)
    tally = _Tally()
    turns = once(tally.counted(pieces_forwards(raw)))
    first = next(turns, None)
    name, subject = file.conversation.file_name, path_of(file.conversation)
    if first is None:
        kept = _keep(workspace, file, "unreadable", raw)
        os.unlink(name, dir_fd=file.folder)
        os.fsync(file.folder)
        log.warning("file_unreadable path=%s bytes=%d kept=%s", subject, size, kept)
        return Adoption(0, tally.unreadable, 0, kept)
    kept = _keep(workspace, file, "edited", raw)
    items = replace_with(file, adopted(chain((first,), turns), changed_at(file)))
    done = Adoption(items, tally.unreadable, tally.not_utf8, kept)
    said = "file_%s path=%s items=%d unreadable=%d not_utf8=%d kept=%s"
    log.warning(said, "damaged" if done.unreadable else "adopted", subject, items, done.unreadable, done.not_utf8, kept)
    return done


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
