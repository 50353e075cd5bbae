"""A circuit breaker: whoever failed so often in a row is left alone for a while, then tried with one call at a time."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 5
"""How many failures in a row open it."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds for which nothing passes after it opened, and at most, as the trials go on failing."""


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The leave to make one call; whoever has it must tell the breaker how it went. `trial`: its outcome decides."""

    trial: bool = False


class Breaker:
    """Closed: all calls pass. Open: none, for a growing pause with jitter. Then one, and its outcome closes or opens it.

    A success of any call closes it: what began before it opened and ends well has seen somebody alive.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        """`clock` gives seconds that only go on; `jitter` a number from 0 to 1."""
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._pauses = 0
        self._until = 0.0
        self._trial: Pass | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused but for trials."""
        return self._pauses > 0

    def ask(self) -> Pass | None:
        """The leave to make a call now; None while it is open or its one trial is under way."""
        if not self.is_open:
            return Pass()
        if self._trial or self._clock() < self._until:
            return None
        self._trial = Pass(trial=True)
        return self._trial

    def succeeded(self, leave: Pass) -> None:
        """The call with this leave reached somebody who answers."""
        self._failures = self._pauses = 0
        self._trial = None

    def failed(self, leave: Pass) -> None:
        """The call with this leave was in vain."""
        if leave is self._trial:
            self._trial = None
            self._open()
        elif not self.is_open:
            self._failures += 1
            if self._failures >= FAILURES:
                self._open()

    def undecided(self, leave: Pass) -> None:
        """The call with this leave was broken off and says nothing; a trial's place is free for another."""
        if leave is self._trial:
            self._trial = None

    def _open(self) -> None:
        self._pauses += 1
        pause = min(FIRST_PAUSE * 2 ** min(self._pauses - 1, 16), LONGEST_PAUSE)
        self._until = self._clock() + pause * (0.5 + self._jitter() / 2)
