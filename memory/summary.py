"""Summaries of what no longer fits into the window: when they are made and how long they may be."""

from typing import Annotated

from pydantic import Field

from memory.settings import SettingsModel

AfterTurns = Annotated[int, Field(ge=1)]
EveryMessages = Annotated[int, Field(ge=2)]
Keep = Annotated[int, Field(ge=1)]
MaxChars = Annotated[int, Field(ge=100)]


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
