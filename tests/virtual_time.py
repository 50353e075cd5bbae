"""An event loop whose time is made up: no test waits for it, and a seed gives the same schedule on every machine."""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    """Instead of waiting, time goes on; never for what a network or another thread may bring."""

    def __init__(self, pass_time: Callable[[float], None]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing will ever happen again")
        self._pass_time(max(timeout, 0.0))
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    """`late` gives the seconds by which the machine is late, each time something is due."""

    def __init__(self, late: Callable[[], float]) -> None:
        self._now = 0.0
        self._late = late
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float) -> None:
        if seconds:
            self._now += seconds + self._late()


def run_virtually(main: Coroutine[Any, Any, None], rng: random.Random, *, stall: float = 0.0) -> None:
    """Runs `main` to its end in made-up time; now and then the machine stands still, for `stall` seconds at most."""

    def late() -> float:
        return rng.random() * stall if rng.random() < 0.2 else 0.0

    with asyncio.Runner(loop_factory=lambda: _Loop(late)) as runner:
        runner.run(main)
