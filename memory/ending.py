"""What is at the end of a conversation file, and a file as it should be after a person or a crash has been at it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from memory.conversation import Role, Turn
from memory.sanitise import storable
from memory.tail import Chunks, pieces, sound_size
from memory.yamlform import write_item

KNOWN_IDS = 512
"""How many ids before the end an append compares with: a crash or a second writer repeats at once."""
INSPECTED_ITEMS, INSPECTED_BYTES = 600, 1 << 20


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a file: ordinal and epoch of its last turn (-1 and 0 without one), the newest ids, oldest first.

    `size` is where its sound bytes end, `torn` whether bytes of an interrupted write stand behind them. `edited`: some
    item inspected was written or changed by a person (or is damaged), so the file wants adopting before it is
    appended to. `readable`: at least one turn was found.
    """

    n: int
    epoch: int
    ids: tuple[str, ...]
    size: int
    torn: bool
    edited: bool
    readable: bool


def inspect(fd: int, size: int) -> Ending:
    """Reads the end of an open file, once: when it is first met or was changed by someone else."""
    sound = sound_size(fd, size)
    chunks = Chunks(fd, sound, max_items=INSPECTED_ITEMS)
    newest: Turn | None = None
    ids: list[str] = []
    end, torn, edited, read = sound, sound < size, False, 0
    for place, piece in enumerate(pieces(chunks, filled=sound < size)):
        if place == 0:
            end, torn = (piece.end, True) if piece.torn else (sound, torn)
        edited = edited or not piece.ours
        if piece.turn is not None:
            newest = newest or piece.turn
            ids.extend((*piece.turn.ids, piece.turn.id))
        read += len(piece.raw)
        if newest is not None and read >= INSPECTED_BYTES:
            break
    known = tuple(reversed(ids[:KNOWN_IDS]))
    if newest is None:
        return Ending(-1, 0, (), end, torn, edited, readable=False)
    return Ending(newest.n, max(newest.epoch, 0), known, end, torn, edited, readable=True)


@dataclass(frozen=True, slots=True)
class Examination:
    """A whole file: how many items are readable, and as in `Ending`."""

    items: int
    size: int
    torn: bool
    edited: bool


def examine(fd: int, size: int) -> Examination:
    """Reads an open file from end to end."""
    sound = sound_size(fd, size)
    items, edited = 0, False
    end, torn = sound, sound < size
    for place, piece in enumerate(pieces(Chunks(fd, sound), filled=sound < size)):
        if place == 0 and piece.torn:
            end, torn = piece.end, True
        edited = edited or not piece.ours
        items += piece.turn is not None
    return Examination(items, end, torn, edited)


def clean(turn: Turn) -> Turn:
    """The turn with every text as UTF-8 can carry it."""
    return replace(
        turn,
        text=storable(turn.text),
        id=storable(turn.id),
        at=storable(turn.at),
        to=_clean(turn.to),
        ids=tuple(map(storable, turn.ids)),
        name=_clean(turn.name),
        user=_clean(turn.user),
        tool_calls=tuple(
            replace(c, id=storable(c.id), name=storable(c.name), arguments=storable(c.arguments))
            for c in turn.tool_calls
        ),
        call=_clean(turn.call),
        model=_clean(turn.model),
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else storable(text)


def adopted(turns: Iterable[Turn], at: str) -> Iterator[Turn]:
    """The turns of a whole file with complete meta: ordinals from 0, epochs counted, missing `at` and `to` filled in.

    A turn without a time gets that of the turn before it, the first ones `at`; an answer without a question the id of
    the user turn before it.
    """
    question: str | None = None
    epoch = 0
    for n, turn in enumerate(turns):
        epoch += turn.role is Role.RESET
        at = turn.at or at
        to = turn.to
        if turn.role is Role.USER:
            question = turn.id
        elif turn.role is not Role.RESET and to is None:
            to = question
        yield replace(clean(turn), n=n, epoch=epoch, at=at, to=to)


def as_bytes(turns: Sequence[Turn]) -> bytes:
    """A whole file."""
    return b"".join(map(write_item, turns))
