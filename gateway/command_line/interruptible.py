"""Ctrl-C as an exception, from where a command runs its coroutines on."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs it on an event loop of its own. Raises KeyboardInterrupt on SIGINT, which until now ended the process."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return asyncio.run(work)
