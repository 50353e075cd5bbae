"""Rounds: what a window keeps or drops as a whole, a user turn and everything up to the next kept user turn.

Turns come in newest first; rounds come out newest first, with every turn that was read in exactly one of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from memory.acknowledgement import Acknowledgements, Kind, asks
from memory.conversation import Role, Turn


@dataclass(frozen=True, slots=True)
class Lost:
    """A turn the model does not see: at which stage it went, and why (Chinese, for admins)."""

    turn: Turn
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """`turns` oldest first, the user's turn at the head; `lost` newest first.

    The round at the very start of a conversation has no turns when no user turn stands there.
    """

    turns: tuple[Turn, ...]
    lost: tuple[Lost, ...]


class _Read(NamedTuple):
    turn: Turn
    lost: Lost | None = None


class Reader:
    """Reads turns, newest first, up to a reset, and remembers which: `visited`."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns = iter(turns)
        self._ended = False
        self.visited: list[Turn] = []

    def __iter__(self) -> Iterator[Turn]:
        while (turn := self._next()) is not None:
            self.visited.append(turn)
            yield turn

    def _next(self) -> Turn | None:
        turn = None if self._ended else next(self._turns, None)
        if turn is None or turn.role is Role.RESET:
            self._ended = True
            return None
        return turn

    def has_older(self) -> bool:
        """Whether there are turns before those visited. Reads one more, so that it is the last thing to ask."""
        return self._next() is not None


def rounds(turns: Iterable[Turn], acknowledgements: Acknowledgements | None, *, keep_answers: bool) -> Iterator[Round]:
    """Cuts turns into rounds. Without `acknowledgements` no user turn is taken for one.

    The reply to a dropped acknowledgement belongs to the round before it.
    """
    read: list[_Read] = []
    for item in _judged(turns, acknowledgements, keep_answers=keep_answers):
        read.append(item)
        if item.turn.role is Role.USER and not item.lost:
            yield _round(read)
            read = []
    if read:
        lost = (item.lost or Lost(item.turn, "order", "前面没有用户消息") for item in read)
        yield Round((), tuple(lost))


def _judged(turns: Iterable[Turn], acknowledgements: Acknowledgements | None, *, keep_answers: bool) -> Iterator[_Read]:
    """Sorts out doubles, what is empty or removed, and acknowledgements; what comes in goes out, in the same order.

    An assent waits until the assistant's turn before it is known.
    """
    seen: set[str] = set()
    waiting: list[tuple[_Read, bool]] = []
    for turn in turns:
        item, assent = _Read(turn, _unusable(turn, seen)), False
        seen.add(turn.id)
        if acknowledgements and turn.role is Role.USER and not item.lost:
            kind = acknowledgements.kind(turn.text)
            assent = kind is Kind.ASSENT and keep_answers
            if kind and not assent:
                item = _acknowledged(turn)
        if waiting or assent:
            waiting.append((item, assent))
        else:
            yield item
        if waiting and turn.role is Role.ASSISTANT and turn.text.strip():
            yield from _decided(waiting, answers=asks(turn.text))
            waiting = []
    yield from _decided(waiting, answers=False)


def _decided(waiting: list[tuple[_Read, bool]], *, answers: bool) -> Iterator[_Read]:
    for item, assent in waiting:
        yield _acknowledged(item.turn) if assent and not answers else item


def _acknowledged(turn: Turn) -> _Read:
    return _Read(turn, Lost(turn, "acknowledgement", f"确认词“{turn.text.strip()}”"))


def _unusable(turn: Turn, seen: set[str]) -> Lost | None:
    if turn.id and turn.id in seen:
        return Lost(turn, "order", "重复的消息")
    if turn.removed:
        return Lost(turn, "order", "已删除")
    if not turn.text.strip() and not turn.tool_calls:
        return Lost(turn, "order", "内容为空")
    return None


def _round(read: list[_Read]) -> Round:
    """A round of what was read, newest first, its user turn last."""
    if len(read) == 2 and _is_plain(read[0]) and _is_plain(read[1]):  # nearly all are a question and its answer
        return Round((read[1].turn, read[0].turn), ())
    kept = [item.turn for item in reversed(read) if not item.lost]
    outcomes = _ordered(kept)
    turns = tuple(outcome for outcome in outcomes if isinstance(outcome, Turn))
    lost = []
    for item in read:
        outcome = item.lost or outcomes.pop()
        if isinstance(outcome, str):
            outcome = Lost(item.turn, "order", outcome)
        if isinstance(outcome, Lost):
            lost.append(outcome)
    return Round(turns, tuple(lost))


def _is_plain(item: _Read) -> bool:
    return not item.lost and item.turn.role is not Role.TOOL and not item.turn.tool_calls


def _ordered(turns: list[Turn]) -> list[Turn | str]:
    """For each turn, oldest first, the turn as it can be shown or the reason why it cannot."""
    outcomes: list[Turn | str] = list(turns)
    answered: set[str] = set()
    for at, turn in enumerate(turns):
        if turn.role is Role.USER or not turn.to:
            continue
        if turn.to in answered:
            outcomes[at] = "同一问题已有回答"
        elif turn.role is Role.ASSISTANT and not turn.tool_calls:
            answered.add(turn.to)
    at = 0
    while at < len(outcomes):
        outcome = outcomes[at]
        if isinstance(outcome, Turn) and outcome.tool_calls:
            at = _pair(outcomes, at, outcome)
            continue
        if isinstance(outcome, Turn) and outcome.role is Role.TOOL:
            outcomes[at] = "没有对应的工具调用"
        at += 1
    return outcomes


def _pair(outcomes: list[Turn | str], at: int, asking: Turn) -> int:
    """Leaves a turn's calls that are answered by the results right behind it, and those results.

    Returns where the run of results ends.
    """
    wanted = {call.id: call for call in reversed(asking.tool_calls)}
    answered: set[str] = set()
    end = at + 1
    while end < len(outcomes):
        result = outcomes[end]
        if isinstance(result, Turn):
            if result.role is not Role.TOOL:
                break
            if result.call in wanted and result.call not in answered:
                answered.add(result.call)
            else:
                outcomes[end] = "重复的工具结果" if result.call in answered else "没有对应的工具调用"
        end += 1
    calls = tuple(call for call in asking.tool_calls if call.id in answered and wanted[call.id] is call)
    if calls or asking.text.strip():
        outcomes[at] = replace(asking, tool_calls=calls) if calls != asking.tool_calls else asking
    else:
        outcomes[at] = "工具调用没有结果"
    return end
