"""Work in steps: what it yields, putting on the disk what it wrote, is done together with that of others."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Step = Callable[[], None]
"""Puts on the disk what was written. Raises OSError, which the work is told where it yielded."""

Steps = Generator[Step, None, T]
"""Work that goes on behind each step, and returns what comes of it."""


def at_once(steps: Steps[T]) -> T:
    """Does the work from its begin to its end, by itself."""
    error: OSError | None = None
    try:
        while True:
            step = next(steps) if error is None else steps.throw(error)
            error = failure_of(step)
    except StopIteration as end:
        result: T = end.value
        return result


def failure_of(step: Step) -> OSError | None:
    """Takes the step; what it failed with, if it did."""
    try:
        step()
    except OSError as error:
        return error
    return None
