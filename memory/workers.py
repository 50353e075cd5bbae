"""Threads for blocking work, whose results reach the event loop together: under load one waking of it serves many.

The executors of the standard library wake the loop once for each result and pass it through three futures.
"""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

_Result = TypeVar("_Result")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"


class _Done(NamedTuple):
    future: "asyncio.Future[Any]"
    result: Any
    error: BaseException | None


class Workers:
    """`threads` threads. `run` belongs to one event loop at a time."""

    def __init__(self, threads: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: deque[_Done] = deque()
        self._waking = False
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, name=f"{name}-{n}", daemon=True) for n in range(threads)]
        self._started = False

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Runs `work` in a thread and gives its result, or raises what it raised; it runs even if the caller is cancelled."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, future))
        return await future

    def join(self) -> None:
        """Ends the threads after all that was asked before. Blocks; nothing may be asked any more."""
        if self._started:
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, error = None, None
            try:
                result = job.work()
            except BaseException as raised:  # handed to whoever asked
                error = raised
            self._hand_over(_Done(job.future, result, error))
            del job, result, error  # what was asked for is not kept until the next job

    def _hand_over(self, done: _Done) -> None:
        with self._guard:
            self._done.append(done)
            if self._waking:
                return
            self._waking = True
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            done.future.get_loop().call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        with self._guard:
            ready, self._done, self._waking = self._done, deque(), False
        for future, result, error in ready:
            if future.done():  # cancelled while it waited
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
