"""How much work something takes, counted in a fixed piece of Python: a busy or slow machine changes little of it."""

import time
from collections.abc import Callable


def _piece() -> float:
    """CPU seconds of this thread for the fixed piece; 6 ms on the machine this was written on."""
    start = time.thread_time()
    counts: dict[int, str] = {}
    for number in range(60_000):
        counts[number % 1000] = str(number)
    return time.thread_time() - start


def effort(work: Callable[[], object]) -> float:
    """The CPU that `work` takes of this thread alone, as a multiple of the fixed piece: of the slower of two beside it."""
    before = _piece()
    start = time.thread_time()
    work()
    took = time.thread_time() - start
    return took / max(before, _piece())
