"""The archives: each conversation's summaries, in a file of the same name, appended only and read from the end.

An archive can be made again from the conversation. So damage is passed over, and no fault here costs an answer.
"""

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from memory.conversation import ConversationId
from memory.conversation_file import OpenFile, path_of, work_on
from memory.errors import typed_errors
from memory.folder import kept_aside, open_file, opened_folder, replaced
from memory.mended import Mended, Outcome
from memory.recent import Stamp, stamp_of
from memory.sanitise import storable
from memory.steps import at_once
from memory.summary import Summary, reaching
from memory.tail import MAX_BYTES, MAX_ITEMS, Chunks, NotKept, is_remark, read_range, sound_size
from memory.yamlform import read_sealed, scalar, sealed, sealed_item, split

log = logging.getLogger("sanqiao.memory")

FOLDER = "archives"
AT_HAND, _KEPT = 4, 1024
"""How many versions of how many archives are kept in memory.

A window needs those that reach into it and the one before them: with the default settings two, and more where it
leaves out acknowledgements and so reaches further.
"""
_ROLE = "summary"


def write_summary(summary: Summary) -> bytes:
    """The bytes of one item. Raises UnicodeEncodeError for lone surrogates."""
    meta: dict[str, Any] = {
        "id": summary.id,
        "epoch": summary.epoch,
        "through": summary.through,
        "at": summary.at,
        "model": summary.model,
    }
    return sealed_item(_ROLE, scalar(summary.text), {"meta": {k: v for k, v in meta.items() if v is not None}})


def read_summary(raw: bytes) -> Summary | None:
    """The version an item holds; None if it is not whole."""
    length = sealed(raw)
    parts = read_sealed(raw[:length]) if length else None
    if parts is None or parts[0] != _ROLE or not isinstance(parts[2]["meta"], dict):
        return None
    meta = parts[2]["meta"]
    id, epoch, through, at, model = (meta.get(key) for key in ("id", "epoch", "through", "at", "model"))
    if not (isinstance(id, str) and isinstance(at, str) and isinstance(epoch, int) and isinstance(through, int)):
        return None
    model = model if isinstance(model, str) else None
    return Summary(text=parts[1], id=id, epoch=epoch, through=through, at=at, model=model)


def _backwards(fd: int) -> Iterator[Summary]:
    """All readable versions, newest first, within the limits of one reader."""
    try:
        chunks = Chunks(fd, sound_size(fd, os.fstat(fd).st_size), max_items=MAX_ITEMS, max_bytes=MAX_BYTES)
        for _, raw in chunks:
            version = read_summary(raw)
            if version is not None:
                yield version
    except OSError as error:
        log.error("archive_read_in_part error=%s", error)


def _of_epoch(versions: Iterator[Summary], epoch: int, newest: int | None) -> Iterator[Summary]:
    """The versions of one epoch that belong together, newest first: each reaches less far than the one after it.

    Those that reach beyond `newest`, the conversation's newest turn, are of a file that a person has shortened since.
    """
    below: int | None = None
    for version in versions:
        if version.epoch < epoch or (below is not None and version.through >= below):
            return
        if version.epoch > epoch or (below is None and newest is not None and version.through > newest):
            continue
        below = version.through
        yield version


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest versions of an archive, newest first, while it has this stamp; `whole`: there are no others."""

    stamp: Stamp | None = None
    versions: tuple[Summary, ...] = ()
    whole: bool = True

    @contextlib.contextmanager
    def of_epoch(self, epoch: int, newest: int | None) -> Iterator[Iterator[Summary]]:
        """As `SummaryArchive.versions`. Taking more than there are at hand raises NotKept."""
        yield _of_epoch(self._at_hand(), epoch, newest)

    def _at_hand(self) -> Iterator[Summary]:
        yield from self.versions
        if not self.whole:
            raise NotKept


class SummaryArchive:
    """The archives of one workspace; thread-safe. Every method blocks."""

    def __init__(self, workspace: Path, *, sync: bool) -> None:
        self._workspace = workspace
        self._sync = sync
        self._kept: OrderedDict[ConversationId, Newest] = OrderedDict()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def versions(
        self, conversation: ConversationId, epoch: int, *, newest: int | None = None
    ) -> Iterator[Iterator[Summary]]:
        """The versions of one epoch, newest first, read as they are taken; none where there is nothing to read.

        `newest` is the ordinal of the conversation's newest turn, where known.
        """
        with self._reading(conversation) as found:
            yield _of_epoch(found, epoch, newest)

    def summary_for(
        self, conversation: ConversationId, first: int | None, epoch: int, *, newest: int | None = None
    ) -> Summary | None:
        """The earliest version of this epoch that reaches the window's first turn, else its latest; None without."""
        with self.versions(conversation, epoch, newest=newest) as versions:
            return reaching(versions, first)

    def last_id(self, conversation: ConversationId) -> str | None:
        """The id of the newest version of any epoch: what `append` compares with."""
        with self._reading(conversation) as found:
            newest = next(found, None)
            return newest.id if newest else None

    def _reading(self, conversation: ConversationId) -> "contextlib.closing[Generator[Summary]]":
        return contextlib.closing(self._versions(conversation))

    def _versions(self, conversation: ConversationId) -> Generator[Summary]:
        newest = self.newest(conversation)
        yield from newest.versions
        fd = None if newest.whole else self._open(conversation)
        if fd is not None:
            try:
                yield from islice(_backwards(fd), len(newest.versions), None)
            finally:
                os.close(fd)

    def newest(self, conversation: ConversationId) -> Newest:
        """The newest versions; an archive nobody touched is not read again."""
        path = f"{self._workspace}/{path_of(conversation, FOLDER)}"
        try:
            stamp = stamp_of(os.stat(path, follow_symlinks=False))
        except FileNotFoundError:
            return Newest()
        except OSError:
            stamp = None
        with self._guard:
            kept = self._kept.get(conversation)
        return kept if kept is not None and kept.stamp == stamp else self._read(conversation)

    def _read(self, conversation: ConversationId) -> Newest:
        fd = self._open(conversation)
        if fd is None:
            return Newest()
        try:
            stamp = stamp_of(os.fstat(fd))
            versions = tuple(islice(_backwards(fd), AT_HAND + 1))
        finally:
            os.close(fd)
        newest = Newest(stamp, versions[:AT_HAND], len(versions) <= AT_HAND)
        with self._guard:
            self._kept[conversation] = newest
            self._kept.move_to_end(conversation)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return newest

    def exists(self, conversation: ConversationId) -> bool:
        """Whether there is an archive."""
        return os.path.isfile(f"{self._workspace}/{path_of(conversation, FOLDER)}")

    def clear(self) -> None:
        """Keeps nothing of what was read."""
        with self._guard:
            self._kept.clear()

    def _open(self, conversation: ConversationId) -> int | None:
        where = opened_folder(self._workspace, FOLDER, conversation.lane.user)
        try:
            with where as folder:
                return open_file(folder, conversation.file_name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("archive_not_read path=%s error=%s", path_of(conversation, FOLDER), error)
            return None

    def append(self, conversation: ConversationId, summary: Summary, *, after: str | None) -> bool:
        """Appends a version if the newest one is still that with the id `after`; whether it did. Raises StoreError."""
        data = write_summary(_clean(summary))
        return work_on(self._workspace, FOLDER, conversation, lambda file: self._append(file, data, after))

    def repair(self, conversation: ConversationId) -> Mended:
        """Reads the whole archive and takes out what is no version; the original is kept aside. Raises StoreError."""
        return work_on(self._workspace, FOLDER, conversation, self._repair)

    def _repair(self, file: OpenFile) -> Mended:
        subject = path_of(file.conversation, FOLDER)
        if file.created:
            file.remove()
            return Mended(path=subject, outcome=Outcome.MISSING)
        size = os.fstat(file.fd).st_size
        raw = read_range(file.fd, size, 0)
        versions = [piece[: sealed(piece)] for _, piece in split(raw) if read_summary(piece) is not None]
        whole = b"".join(version.removesuffix(b"\n") + b"\n" for version in versions)
        if raw == whole or raw + b"\n" == whole:
            return Mended(path=subject, outcome=Outcome.SOUND, items=len(versions))
        user, name = file.conversation.lane.user, file.conversation.file_name
        kept = kept_aside(self._workspace, user, name, "archive-damaged", raw)
        log.warning("archive_damaged path=%s versions=%d kept=%s", subject, len(versions), kept)
        if versions:
            replaced(file.folder, name, [whole])
            if raw.startswith(whole):
                cut = size - len(whole)
                return Mended(path=subject, outcome=Outcome.TORN, items=len(versions), cut=cut, kept=kept)
            lost = sum(read_summary(piece) is None and not is_remark(piece) for _, piece in split(raw))
            outcome = Outcome.DAMAGED if lost else Outcome.ADOPTED
            return Mended(path=subject, outcome=outcome, items=len(versions), unreadable=lost, kept=kept)
        file.remove()
        os.fsync(file.folder)
        return Mended(path=subject, outcome=Outcome.UNREADABLE, kept=kept)

    def drop(self, conversation: ConversationId, first: int) -> int:
        """Removes the versions that cover the turn with ordinal `first`, or may; how many. Raises StoreError."""
        with typed_errors(path_of(conversation, FOLDER)):
            try:
                with opened_folder(self._workspace, FOLDER, conversation.lane.user) as folder:
                    return self._drop(folder, conversation.file_name, first)
            except FileNotFoundError:
                return 0

    def _drop(self, folder: int, name: str, first: int) -> int:
        fd = open_file(folder, name, os.O_RDONLY)
        try:
            raw = read_range(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)
        versions = [version for _, piece in split(raw) if (version := read_summary(piece)) is not None]
        kept = [version for version in versions if version.through < first]
        if kept:
            replaced(folder, name, map(write_summary, kept))
        else:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
        return len(versions) - len(kept)

    def _append(self, file: OpenFile, data: bytes, after: str | None) -> bool:
        newest = next(_backwards(file.fd), None)
        if (newest.id if newest else None) != after:
            if file.created:
                file.remove()
            return False
        lacks_feed = self._mend(file)
        at_once(file.append(b"\n" + data if lacks_feed else data, sync=self._sync))
        return True

    def _mend(self, file: OpenFile) -> bool:
        """Cuts off what stands behind the last whole item, and keeps it; whether that item lacks its line feed."""
        size = os.fstat(file.fd).st_size
        sound = sound_size(file.fd, size)
        offset, raw = next(iter(Chunks(file.fd, sound)), (0, b""))
        whole = offset + sealed(raw)
        if whole < size:
            damaged = read_range(file.fd, sound - whole, whole)
            user, name = file.conversation.lane.user, file.conversation.file_name
            kept = kept_aside(self._workspace, user, name, "archive-torn", damaged) if damaged.strip() else "-"
            os.ftruncate(file.fd, whole)
            log.warning(
                "archive_torn path=%s cut_bytes=%d kept=%s", path_of(file.conversation, FOLDER), size - whole, kept
            )
        return whole > 0 and read_range(file.fd, 1, whole - 1) != b"\n"


def _clean(summary: Summary) -> Summary:
    return Summary(
        text=storable(summary.text),
        id=storable(summary.id),
        epoch=summary.epoch,
        through=summary.through,
        at=storable(summary.at),
        model=None if summary.model is None else storable(summary.model),
    )
