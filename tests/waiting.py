"""Waits in tests: for a condition, within a bound that no machine is too busy for."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], object], timeout: float = 40.0, what: str = "") -> None:
    """Returns when `condition` holds. Raises AssertionError after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while not condition():
        if loop.time() > end:
            raise AssertionError(f"not within {timeout} s: {what or condition}")
        await asyncio.sleep(0.01)


async def until_told(question: Callable[[], Awaitable[object]], answer: object, timeout: float = 40.0) -> None:
    """Returns when the awaited `question` gives `answer`. Raises AssertionError after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while (told := await question()) != answer:
        if loop.time() > end:
            raise AssertionError(f"not within {timeout} s: {answer}, but {told}")
        await asyncio.sleep(0.01)
