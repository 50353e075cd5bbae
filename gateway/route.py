"""Routes: which agent answers, what chose it, and what a lane remembers of that."""

from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """What chose an agent: a closed list, for metrics and logs."""

    ASKED = "asked"
    PINNED = "pinned"
    RULE = "rule"
    STICKY = "sticky"
    EXAMPLES = "examples"
    CLASSIFIER = "classifier"
    CLASSIFIER_FAILED = "classifier-failed"
    """The default agent, as the classifier was asked and chose none."""
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Route:
    """The agent that answers, what chose it, and the reason in words for the trace and the console (Chinese)."""

    agent: str
    by: By
    reason: str


@dataclass(frozen=True, slots=True)
class LaneState:
    """What a lane remembers of its agent: which, since when it was last used (unix seconds), whether by ``/agent``."""

    agent: str = ""
    at: float = 0.0
    pinned: bool = False
