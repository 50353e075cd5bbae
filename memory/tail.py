"""Reading a conversation file from its end: newest items first, in blocks, as few of them as the reader takes.

What counts is the same from either end (see `REPEAT_WITHIN`): damaged items are skipped, what an interrupted write
left at the end is no item, and a repeat of an item shortly before it is ignored.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self
from zlib import crc32

from memory.conversation import Role, Turn
from memory.handwritten import NotAnItem
from memory.yamlform import BOUNDARY, read_item, sealed, split, torn

BLOCK, LARGEST_BLOCK = 16 << 10, 1 << 20
MAX_ITEMS, MAX_BYTES = 2000, 2 << 20
"""What one reader looks at before it gives up."""

REPEAT_WITHIN = 32
"""An item is a repeat if among the 32 readable items before it one has its id (or names it in `ids`), or is the final
answer (an assistant turn without tool calls) to the same question. A crash or a second writer repeats at once, so
that a reader from the end need not read the whole file to know."""

_ORDINAL = re.compile(rb'\n  meta: \{[^\n]*?"n": ([0-9]{1,15})[,}]')
_BLANK_OR_COMMENT = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*)?\r?\n|---[ \t]*\r?\n)*(?:[ \t]*(?:#[^\n]*)?)")


def is_remark(raw: bytes) -> bool:
    """Whether these bytes are only what a person may put between items: blank lines, remarks, a byte order mark."""
    return _BLANK_OR_COMMENT.fullmatch(raw) is not None


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes from one item's start to the next one's.

    `turn` is None where they are not readable. `end` is the offset behind the last sound byte: less than the piece's
    own end where something else follows. `ours`: those sound bytes are just what the writer wrote, and nothing a
    person may have put there follows. `torn` (only a file's last piece): an interrupted write left bytes behind
    `end`, or nothing but such bytes if `turn` is None.
    """

    offset: int
    raw: bytes
    end: int
    turn: Turn | None
    ours: bool
    torn: bool = False

    @property
    def loses(self) -> bool:
        """Whether something in it is read as no turn: damage, what an interrupted write left. Remarks are no loss."""
        rest = self.raw if self.turn is None else self.raw[self.end - self.offset :]
        return bool(rest) and not is_remark(rest)

    @property
    def not_utf8(self) -> bool:
        """Whether its turn was read from other bytes than UTF-8; its text may have become wrong."""
        if self.turn is None or self.ours:
            return False
        try:
            self.raw[: self.end - self.offset].decode("utf-8")
        except UnicodeDecodeError:
            return True
        return False


def _read(raw: bytes, offset: int, length: int) -> Turn | None:
    try:
        turn = read_item(raw, length)
    except NotAnItem:
        return None
    return turn if turn.id else replace(turn, id=f"hand-{offset:x}-{crc32(raw):08x}")


def _piece(offset: int, raw: bytes) -> Piece:
    length = sealed(raw)
    turn = _read(raw, offset, length)
    ours = length == len(raw) and raw.endswith(b"\n") and turn is not None and turn.n >= 0
    return Piece(offset, raw, offset + (length or (len(raw) if turn else 0)), turn, ours)


def _last_piece(offset: int, raw: bytes, *, after_ours: bool, filled: bool) -> Piece:
    """The last piece of a file. `filled`: NULs stood behind it, as after a power cut."""
    piece = _piece(offset, raw)
    length = sealed(raw)
    if piece.turn is not None and length:
        whole_item = piece.turn.n >= 0 and raw[length - 1 : length] == b"\n"
        cut = filled or not is_remark(raw[length:])
        return replace(piece, ours=whole_item and (cut or length == len(raw)), torn=cut)
    if filled or torn(raw, after_ours=after_ours):
        return replace(piece, turn=None, end=offset, ours=True, torn=True)
    return piece


def read_range(fd: int, length: int, offset: int) -> bytes:
    """The bytes of an open file from `offset`, at most `length`: all that exist."""
    parts = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)


def sound_size(fd: int, size: int) -> int:
    """The size without the NULs at the end, which no file of ours holds."""
    while size:
        length = min(BLOCK, size)
        kept = read_range(fd, length, size - length).rstrip(b"\0")
        if kept:
            return size - (length - len(kept))
        size -= length
    return 0


class Chunks:
    """The raw pieces of an open file, newest first. `capped` is True once it stopped before the file's start."""

    def __init__(self, fd: int, size: int, *, max_items: int | None = None, max_bytes: int | None = None) -> None:
        self._fd, self._size = fd, size
        self._max_items, self._max_bytes = max_items, max_bytes
        self.capped = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for given, (offset, raw) in enumerate(self._all(), 1):
            yield offset, raw
            if given == self._max_items and offset > 0:
                self.capped = True
                return

    def _all(self) -> Iterator[tuple[int, bytes]]:
        position, step, rest = self._size, BLOCK, b""
        while position > 0:
            if self._max_bytes is not None:
                step = min(step, self._max_bytes - (self._size - position))
            if step <= 0:
                self.capped = True
                return
            step = min(step, position)
            position -= step
            block = read_range(self._fd, step, position)
            buffer, end = block + rest, len(block) + len(rest)
            found = buffer.rfind(BOUNDARY, 0, min(end, len(block) + len(BOUNDARY) - 1))
            while found >= 0:
                yield position + found + 1, buffer[found + 1 : end]
                end = found + 1
                found = buffer.rfind(BOUNDARY, 0, end)
            rest = buffer[:end]
            step = min(2 * step, LARGEST_BLOCK)
        if rest:
            yield 0, rest


def pieces(chunks: Chunks, *, filled: bool, before: int | None = None) -> Iterator[Piece]:
    """What `chunks` gives, read. With `before`, items whose ordinal is not below it are passed over unread."""
    source = iter(chunks)
    last = next(source, None)
    if last is None:
        return
    following = next(source, None)
    after_ours = following is None or sealed(following[1]) == len(following[1])
    piece = _last_piece(*last, after_ours=after_ours, filled=filled)
    if before is None or piece.turn is None or piece.turn.n < before:
        yield piece
    while following is not None:
        offset, raw = following
        if before is None or not ((found := _ORDINAL.search(raw)) and int(found[1]) >= before):
            yield _piece(offset, raw)
        following = next(source, None)


def answers(turn: Turn) -> bool:
    """Whether this is the final answer to a question."""
    return turn.role is Role.ASSISTANT and not turn.tool_calls and turn.to is not None


def _count(counts: dict[str, int], name: str, by: int) -> None:
    number = counts.get(name, 0) + by
    if number:
        counts[name] = number
    else:
        del counts[name]


class _Recent:
    """The ids and answered questions among some neighbouring turns."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._answered: dict[str, int] = {}

    def count(self, turn: Turn, by: int) -> None:
        for name in {turn.id, *turn.ids} if turn.ids else (turn.id,):
            _count(self._ids, name, by)
        if turn.to is not None and answers(turn):
            _count(self._answered, turn.to, by)

    def repeated(self, turn: Turn) -> bool:
        return turn.id in self._ids or (
            turn.to is not None and turn.role is Role.ASSISTANT and turn.to in self._answered
        )


def without_repeats(turns: Iterator[Turn]) -> Iterator[Turn]:
    """The turns, newest first as they come, without those that repeat one of the next (older) `REPEAT_WITHIN`.

    An OSError of `turns` is raised once all that came before it was given.
    """
    older: deque[Turn] = deque()
    recent = _Recent()
    failure: OSError | None = None
    try:
        for turn in turns:
            older.append(turn)
            recent.count(turn, 1)
            if len(older) > REPEAT_WITHIN:
                first = older.popleft()
                recent.count(first, -1)
                if not recent.repeated(first):
                    yield first
    except OSError as error:
        failure = error
    while older:
        first = older.popleft()
        recent.count(first, -1)
        if not recent.repeated(first):
            yield first
    if failure is not None:
        raise failure


def whole(raw: bytes) -> list[Turn]:
    """Every turn of a whole file in order: what a reader from the end gives, the other way round."""
    return list(forwards(raw))


def forwards(raw: bytes) -> Iterator[Turn]:
    """The turns of `whole`, one by one. An independent reading for repairs and tests; cost linear in the file."""
    return once(pieces_forwards(raw))


def pieces_forwards(raw: bytes) -> Iterator[Piece]:
    """The pieces of a whole file in order."""
    sound = raw.rstrip(b"\0")
    chunks = list(split(sound))
    for index, (offset, chunk) in enumerate(chunks):
        if index + 1 < len(chunks):
            yield _piece(offset, chunk)
        else:
            before = chunks[index - 1][1] if index else None
            after_ours = before is None or sealed(before) == len(before)
            yield _last_piece(offset, chunk, after_ours=after_ours, filled=len(sound) < len(raw))


def once(pieces: Iterable[Piece]) -> Iterator[Turn]:
    """The turns of a whole file's pieces, in order, without repeats."""
    seen: dict[str, int] = {}
    answered: dict[str, int] = {}
    position = 0
    for piece in pieces:
        turn = piece.turn
        if turn is None:
            continue
        known = [seen.get(turn.id, -REPEAT_WITHIN - 1)]
        if turn.to is not None and turn.role is Role.ASSISTANT:
            known.append(answered.get(turn.to, -REPEAT_WITHIN - 1))
        if position - max(known) > REPEAT_WITHIN:
            yield turn
        seen.update(dict.fromkeys((turn.id, *turn.ids), position))
        if answers(turn) and turn.to is not None:
            answered[turn.to] = position
        position += 1


class NotKept(Exception):
    """What stands before the file does not reach far enough back; the file has the answer."""


class Tail(Protocol):
    """The turns of a conversation, newest first, as `Backwards` gives them from the file."""

    @property
    def capped(self) -> bool: ...
    @property
    def last(self) -> Turn | None: ...
    def __iter__(self) -> Iterator[Turn]: ...
    def __next__(self) -> Turn: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...


Tails = Callable[[], Tail]
"""Begins at the newest turn, each time it is called."""


class Backwards:
    """The turns of one conversation, newest first. Use it in a worker thread, as a context manager.

    Holds the open file until closed. `capped` becomes True when the iterator ends at the limits instead of the
    file's start; `last` is the turn it gave last.
    """

    def __init__(self, fd: int | None, *, limited: bool = True, before: int | None = None) -> None:
        self._fd = fd
        self.capped = False
        self.last: Turn | None = None
        self._chunks: Chunks | None = None
        self._turns: Iterator[Turn] = iter(())
        if fd is not None:
            size = os.fstat(fd).st_size
            sound = sound_size(fd, size)
            limits = (MAX_ITEMS, MAX_BYTES) if limited else (None, None)
            self._chunks = Chunks(fd, sound, max_items=limits[0], max_bytes=limits[1])
            found = pieces(self._chunks, filled=sound < size, before=before)
            self._turns = without_repeats(piece.turn for piece in found if piece.turn is not None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        turn = next(self._turns, None)
        if turn is None:
            self.capped = self._chunks is not None and self._chunks.capped
            raise StopIteration
        self.last = turn
        return turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; no turn follows."""
        self._turns = iter(())
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
