"""What a conversation file holds that no window shows and no reason explains: damage, and items that repeat others."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from memory.conversation import Role, Turn
from memory.tail import BLOCK, MAX_BYTES, MAX_ITEMS, Chunks, Piece, pieces, read_range, sound_size, without_repeats


@dataclass(frozen=True, slots=True)
class Overlooked:
    """`lines`: where something that cannot be read begins, `repeats`: how many items repeat one shortly before them.

    Of the newest items alone: older ones are in no window, damaged or not.
    """

    lines: tuple[int, ...] = ()
    repeats: int = 0


def overlooked(fd: int, turns: int) -> Overlooked:
    """What a reader of the newest `turns` of an open file, or of those since a reset, passes over. Blocking.

    To name a line all that stands before it is read.
    """
    size = os.fstat(fd).st_size
    sound = sound_size(fd, size)
    chunks = Chunks(fd, sound, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)
    found: list[Piece] = []

    def reading() -> Iterator[Turn]:
        for piece in pieces(chunks, filled=sound < size):
            found.append(piece)
            if piece.turn is not None:
                yield piece.turn

    given = 0
    for turn in without_repeats(reading()):
        given += 1
        if given > turns or turn.role is Role.RESET:  # some were read ahead; items of the same bytes are the same turn
            del found[max(at for at, piece in enumerate(found, 1) if piece.turn is turn) :]
            break
    damaged = sorted(piece.offset if piece.turn is None else piece.end for piece in found if piece.loses)
    if chunks.capped and not found:  # so much that no reader comes to its beginning
        damaged = [sound - MAX_BYTES]
    return Overlooked(_lines(fd, damaged), sum(piece.turn is not None for piece in found) - given)


def _lines(fd: int, offsets: list[int]) -> tuple[int, ...]:
    """The lines, counted from 1, in which these bytes stand; ascending."""
    lines, line, position = [], 1, 0
    for offset in offsets:
        while position < offset:
            block = read_range(fd, min(BLOCK, offset - position), position)
            line, position = line + block.count(b"\n"), position + len(block)
        lines.append(line)
    return tuple(lines)
