"""How much a thread is asked for: one that is asked for much waits a moment, and then does more at a time.

Each turn of a thread costs much beside its work: a sync to disk, and changes between threads that compete for the
interpreter. As long as little is asked for, nothing waits, nor does who asks alone for one thing after another.
"""

MANY = 300
"""Jobs a second from which on it is much."""
PAUSE = 0.02
"""Seconds: what one step of a message then takes longer, where it would wait for the processor far longer anyway."""
_LOOK = 0.2


class Pace:
    """Counts what one thread does."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._done = 0
        self._busy = False

    def pause(self, done: int, now: float) -> float:
        """How long to wait before the next turn (s), after a turn that did so many jobs and ended `now` (monotonic)."""
        self._done += done
        passed = now - self._since
        if passed >= _LOOK:
            self._busy = self._done > MANY * passed
            self._since, self._done = now, 0
        return PAUSE if self._busy and done > 1 else 0.0
