"""Summaries of what no longer fits into the window: when one is due, what it covers, which version is read. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from memory.conversation import Role, Turn
from memory.settings import SettingsModel
from memory.speaker import voiced
from memory.tokens import call_tokens, message_tokens

LONGEST = 4000
"""The most characters any summary may have; a request quotes no more of it."""

AfterTurns = Annotated[int, Field(ge=1)]
EveryMessages = Annotated[int, Field(ge=2)]
Keep = Annotated[int, Field(ge=1)]
MaxChars = Annotated[int, Field(ge=100, le=LONGEST)]


class SummarySettings(SettingsModel):
    """`agent.context.summary`: a summary is due after `after_turns` rounds, each time `every_messages` more came in.

    It covers all but the newest `keep` messages and is at most `max_chars` characters long. `model` is a name under
    `models`; ``summary`` without such an entry means ``main``.
    """

    enabled: bool = True
    after_turns: AfterTurns = 20
    every_messages: EveryMessages = 10
    keep: Keep = 10
    model: str = "summary"
    max_chars: MaxChars = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One version: it stands for all turns of `epoch` (number of resets) up to the one with ordinal `through`."""

    text: str
    id: str
    epoch: int
    through: int
    at: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a conversation stands, as far as summaries are concerned.

    `newest` is the ordinal of its newest turn, `first` that of the oldest turn in the next window (None: an empty
    window), `gap` the number of turns that would be in neither window nor summary. `base` is the ordinal of the last
    reset; where that was not read, the lowest it can have. `rounds` counts the user turns since then, at least up
    to `after_turns`. `last` is the newest version of this epoch.
    """

    epoch: int
    newest: int
    base: int
    rounds: int
    first: int | None
    gap: int
    last: Summary | None

    @property
    def after(self) -> int:
        """The ordinal behind which no summary reaches."""
        return self.last.through if self.last else self.base


def due(standing: Standing, settings: SummarySettings) -> str:
    """Why a summary is due: ``gap`` or ``every-messages``; "" if it is not."""
    if not settings.enabled or target(standing, settings) <= standing.after:
        return ""
    if standing.gap:
        return "gap"
    # So many since the last one was made, and not just a multiple crossed: what failed at a multiple stays due after it.
    made = standing.last.through + settings.keep if standing.last else standing.base
    rhythm = standing.rounds >= settings.after_turns and standing.newest - made >= settings.every_messages
    return "every-messages" if rhythm else ""


def target(standing: Standing, settings: SummarySettings) -> int:
    """The ordinal up to which turns are to be covered: all but the newest `keep`, and all the window leaves out."""
    first = standing.newest + 1 if standing.first is None else standing.first
    return max(standing.newest - settings.keep, first - 1)


def portion(turns: Sequence[Turn], upto: int, room: int) -> Sequence[Turn]:
    """The turns, oldest first, that one summary takes in: up to ordinal `upto`, about `room` tokens, one at least.

    Never cut between a tool call and its result: rather fewer turns, or more where fewer are none.
    """
    end, tokens = 0, 0
    for turn in turns:
        tokens += _turn_tokens(turn, room)
        if end and (turn.n > upto or tokens > room):
            break
        end += 1
    while 0 < end < len(turns) and turns[end].role is Role.TOOL:
        end -= 1
    if not end:
        end = 1
        while end < len(turns) and turns[end].role is Role.TOOL:
            end += 1
    return turns[:end]


def longest_turn(room: int) -> int:
    """To how many tokens a turn is shortened in the text a summary is made from."""
    return max(room // 4, 50)


def _turn_tokens(turn: Turn, room: int) -> int:
    return min(message_tokens(voiced(turn)), longest_turn(room)) + sum(map(call_tokens, turn.tool_calls))


def reaching(versions: Iterable[Summary], first: int | None) -> Summary | None:
    """Of versions of one epoch, newest first: the earliest that reaches the window's first turn, else the latest."""
    chosen = None
    for version in versions:
        if chosen is None or (first is not None and version.through >= first - 1):
            chosen = version
        else:
            break
    return chosen
