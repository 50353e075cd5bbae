"""Keeps sends below the platform's limits: at most so many a second per key, first come first served. Pure."""

_MOST_KEYS = 10_000


class Pace:
    """A leaky bucket per key (GCRA): `rate` a second, and `burst` at once after a rest.

    In any second at most `rate` + `burst` pass. Times are seconds of one monotonic clock, given by the caller.
    """

    def __init__(self, rate: float, burst: int = 1) -> None:
        self._interval = 1 / rate
        self._slack = (burst - 1) * self._interval
        self._due: dict[str, float] = {}

    def wait(self, key: str, now: float) -> float:
        """How many seconds one who asks now would have to wait; takes no place."""
        return max(0.0, self._due.get(key, now) - self._slack - now)

    def take(self, key: str, now: float) -> float:
        """Takes the next place; returns how many seconds to wait for it."""
        waited = self.wait(key, now)
        if len(self._due) >= _MOST_KEYS:
            self._due = {name: due for name, due in self._due.items() if due > now}
        self._due[key] = max(self._due.get(key, now), now) + self._interval
        return waited

    def pause(self, key: str, now: float, seconds: float) -> None:
        """The platform asked for a rest: no place before `seconds` from now."""
        self._due[key] = max(self._due.get(key, now), now + seconds + self._slack)
