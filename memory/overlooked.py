"""What a conversation file holds that no window shows and no reason explains: damage, and items that repeat others."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from memory.conversation import Turn
from memory.tail import BLOCK, MAX_BYTES, MAX_ITEMS, Chunks, Piece, pieces, read_range, sound_size, without_repeats


@dataclass(frozen=True, slots=True)
class Overlooked:
    """`lines`: where something that cannot be read begins, `repeats`: how many items repeat one shortly before them.

    Of the newest items alone: older ones are in no window, damaged or not.
    """

    lines: tuple[int, ...] = ()
    repeats: int = 0


def overlooked(fd: int, turns: int) -> Overlooked:
    """What a reader of the newest `turns` of an open file passes over, or meets next. Blocking."""
    size = os.fstat(fd).st_size
    sound = sound_size(fd, size)
    chunks = Chunks(fd, sound, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)
    found: list[Piece] = []

    def reading() -> Iterator[Turn]:
        for piece in pieces(chunks, filled=sound < size):
            found.append(piece)
            if piece.turn is not None:
                yield piece.turn

    for _ in islice(without_repeats(reading()), turns + 1):
        pass
    read = [piece.turn for piece in found if piece.turn is not None]
    damaged = sorted(piece.offset if piece.turn is None else piece.end for piece in found if piece.loses)
    return Overlooked(_lines(fd, damaged), len(read) - sum(1 for _ in without_repeats(iter(read))))


def _lines(fd: int, offsets: list[int]) -> tuple[int, ...]:
    """The lines, counted from 1, in which these bytes stand; ascending."""
    lines, line, position = [], 1, 0
    for offset in offsets:
        while position < offset:
            block = read_range(fd, min(BLOCK, offset - position), position)
            line, position = line + block.count(b"\n"), position + len(block)
        lines.append(line)
    return tuple(lines)
