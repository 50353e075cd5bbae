"""Own filters: functions of the admin's that see a text before it is stored, and may change or drop it.

A filter runs in a thread of its own for a bounded time. One that fails or takes too long fails closed: the text it was
given goes nowhere.
"""

import asyncio
import contextlib
import importlib
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from memory.sanitise import storable

FILTER_SECONDS = 2.0
"""How long one filter may take for one text, waiting for its turn included."""
AT_ONCE = 8
"""How many texts one filter is given at a time; one that never comes back takes a place for good."""

Function = Callable[[str], str | None]
_NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


class FilterFailed(Exception):
    """A filter raised, took too long or gave something that is no text. Names the filter, never the text."""


def is_named_so(name: str) -> bool:
    """Whether this has the form ``module:function``."""
    return _NAME.fullmatch(name) is not None


def look_in(folder: Path) -> None:
    """From now on modules beside the config folder are found too, after all that is installed."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def load_filter(name: str) -> Function:
    """The function a name stands for; its module is imported. Blocks. Raises ValueError that says what to do."""
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError(f"{name} 不是过滤器的名字；应为 模块:函数，例如 my_filters:redact")
    module, function = found[1], found[2]
    try:
        loaded = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"过滤器 {name} 的模块 {error.name} 找不到；请把它放在配置目录的上一级目录，或装到本程序的环境里"
        ) from None
    except (Exception, SystemExit) as error:  # border: whatever a foreign module does while it is imported
        raise ValueError(f"过滤器 {name} 的模块 {module} 导入时出错（{type(error).__name__}）；请修正它") from None
    if not callable(loaded):
        raise ValueError(f"模块 {module} 里没有可调用的 {function}；请改正 {name}")
    checked: Function = loaded
    return checked


class Filter:
    """One filter, ready to be used on one event loop. Raises ValueError for a name that stands for no function."""

    def __init__(self, name: str, *, seconds: float = FILTER_SECONDS) -> None:
        self.name = name
        self._function = load_filter(name)
        self._seconds = seconds
        self._places = asyncio.Semaphore(AT_ONCE)

    async def apply(self, text: str) -> str | None:
        """The text as the filter leaves it; None where it drops it. Raises FilterFailed."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._places.acquire()
                result = await self._called(text)
        except TimeoutError:
            raise FilterFailed(f"filter={self.name} reason=time-out seconds={self._seconds:g}") from None
        if result is not None and not isinstance(result, str):
            raise FilterFailed(f"filter={self.name} reason=gave-{type(result).__name__}")
        return None if result is None else storable(result)

    def _called(self, text: str) -> "asyncio.Future[object]":
        """What the function gives, in a thread that does not keep the process from ending."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def resolve(result: object, problem: FilterFailed | None) -> None:
            self._places.release()
            if future.done():  # nobody waits any more
                return
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(result)

        def work() -> None:
            result: object = None
            problem: FilterFailed | None = None
            try:
                result = self._function(text)
            except BaseException as error:  # border: a foreign function; its message may hold the text
                problem = FilterFailed(f"filter={self.name} reason={type(error).__name__}")
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(resolve, result, problem)

        threading.Thread(target=work, name=f"filter-{self.name}", daemon=True).start()
        return future
