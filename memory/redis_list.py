"""The form in which Redis holds a conversation's newest turns: a list that proves itself, and the state of its file."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self
from zlib import crc32

from memory.conversation import Role, ToolCall, Turn
from memory.tail import MAX_BYTES, NotKept, Tail, without_repeats

START, UNKNOWN = None, ""
"""What stands for the checksum of the turn before the first one: there is none, or it is not known."""


class Damaged(NotKept):
    """Something in the list is not what stood there."""


def _crc(element: bytes) -> str:
    return f"{crc32(element):08x}"


def _element(turn: Turn, before: str | None) -> bytes:
    """A turn as JSON, with the checksum of the element before it: so the list proves itself, whatever was cut off."""
    fields = {key: value for key, value in asdict(turn).items() if value is not None and value not in ((), False)}
    fields["n"] = turn.n
    fields["epoch"] = turn.epoch
    return json.dumps({**fields, "before": before}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _turn(element: bytes) -> tuple[Turn, str | None]:
    """The turn and the checksum before it. Raises Damaged."""
    try:
        fields: dict[str, Any] = json.loads(element)
        before = fields.pop("before")
        role = Role(fields.pop("role"))
        calls = tuple(ToolCall(**call) for call in fields.pop("tool_calls", ()))
        turn = Turn(role=role, tool_calls=calls, ids=tuple(fields.pop("ids", ())), **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged from error
    return turn, before


def chained(turns: Sequence[Turn], crc: str | None) -> tuple[list[bytes], str | None]:
    """The elements of turns that follow the one with this checksum, and the last one's checksum."""
    elements = []
    for turn in turns:
        elements.append(_element(turn, crc))
        crc = _crc(elements[-1])
    return elements, crc


def _verified(elements: Sequence[bytes], crc: str | None) -> Iterator[Turn]:
    """The turns, newest first, each found to be what stood there.

    Raises Damaged where one is not, NotKept where the list ends too early.
    """
    for element in reversed(elements):
        if _crc(element) != crc:
            raise Damaged
        turn, crc = _turn(element)
        yield turn
        if crc is START:
            return
    if crc is not START:
        raise NotKept


class Kept:
    """A list as a `Tail`."""

    capped = False

    def __init__(self, elements: Sequence[bytes], crc: str | None) -> None:
        self._turns: Iterator[Turn] = without_repeats(_verified(elements, crc))
        self.last: Turn | None = None

    def __iter__(self) -> Iterator[Turn]:
        return self

    def __next__(self) -> Turn:
        self.last = next(self._turns)
        return self.last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns = iter(())


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it is: another inode, size (bytes) or time of change means other content."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class State:
    """What stands beside a list: its file's size and time of change, and the checksum of the newest turn.

    `start` is the offset in the file from which the list, when it was last written whole, was read.
    """

    size: int
    mtime_ns: int
    start: int
    crc: str | None

    @classmethod
    def read(cls, raw: bytes | None) -> Self | None:
        """None for anything but a state."""
        try:
            state = cls(**json.loads(raw or b""))
            numbers = all(type(number) is int for number in (state.size, state.mtime_ns, state.start))
        except (ValueError, TypeError):
            return None
        return state if numbers else None

    def fits(self, stamp: Stamp) -> bool:
        """Whether the list is of this file, and a reader of the file would get as far back as its first turn."""
        return (self.size, self.mtime_ns) == (stamp.size, stamp.mtime_ns) and self.size - self.start <= MAX_BYTES

    def json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Listing:
    """A list and what stands beside it."""

    elements: Sequence[bytes]
    state: State

    def tail(self) -> Tail:
        """The turns, newest first. Reading them may raise NotKept."""
        return Kept(self.elements, self.state.crc)
