"""What a conversation file holds that no window shows and no reason explains: damage, and items that repeat others."""

import os
from dataclasses import dataclass

from memory.tail import BLOCK, MAX_BYTES, MAX_ITEMS, Chunks, pieces, read_range, sound_size, without_repeats


@dataclass(frozen=True, slots=True)
class Overlooked:
    """`lines`: where something that cannot be read begins, `repeats`: how many items repeat one shortly before them.

    Of the newest items alone, as far as a window may reach (`MAX_ITEMS`, `MAX_BYTES`).
    """

    lines: tuple[int, ...] = ()
    repeats: int = 0


def overlooked(fd: int) -> Overlooked:
    """Looks through an open file. Blocking."""
    size = os.fstat(fd).st_size
    sound = sound_size(fd, size)
    chunks = Chunks(fd, sound, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)
    found = list(pieces(chunks, filled=sound < size))
    turns = [piece.turn for piece in found if piece.turn is not None]
    damaged = sorted(piece.offset if piece.turn is None else piece.end for piece in found if piece.loses)
    return Overlooked(_lines(fd, damaged), len(turns) - sum(1 for _ in without_repeats(iter(turns))))


def _lines(fd: int, offsets: list[int]) -> tuple[int, ...]:
    """The lines, counted from 1, in which these bytes stand; ascending."""
    lines, line, position = [], 1, 0
    for offset in offsets:
        while position < offset:
            block = read_range(fd, min(BLOCK, offset - position), position)
            line, position = line + block.count(b"\n"), position + len(block)
        lines.append(line)
    return tuple(lines)
