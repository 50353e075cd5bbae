"""Threads for blocking work, whose results reach the event loop together: under load one waking of it serves many.

The executors of the standard library wake the loop once for each result and pass it through three futures.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from memory.pace import Pace
from memory.steps import Step, Steps, failure_of

_Result = TypeVar("_Result")
_MOST_TOGETHER = 64
_HANDS = 4
_GATHERING = 0.02
"""Seconds after which no more is begun before what was begun takes its steps."""
_HANGS = 0.25
"""Seconds after which a thread that has not come back counts as one that hangs."""
_MOST_SERVING = 8


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
        result: _Result = await self._asked(work)
        return result

    def join(self) -> None:
        """Ends the threads after all that was asked before. Blocks; nothing may be asked any more."""
        if self._started:
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()

    def _asked(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        if not self._started:
            for thread in self._threads:
                if thread.ident is None:  # not begun at an earlier try
                    thread.start()
            self._started = True
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, future))
        return future

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


class _Begun(NamedTuple):
    """Work in steps that has come to a step."""

    future: "asyncio.Future[Any]"
    steps: Steps[Any]
    step: Step


class Together(Workers):
    """Work in steps: one thread begins all that waits, then some take the steps side by side, each to its end.

    A file system puts on the disk in one go what it is asked for at the same time. Where a step hangs, others take the
    rest, and where the one thread hangs, another is started.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1, name)
        self._name = name
        self._hands = ThreadPoolExecutor(_HANDS, f"{name}-steps")
        self._serving = 1
        self._taken = 0  # jobs
        self._at_work: dict[int, deque[_Begun]] = {}  # by thread
        self._looking: asyncio.AbstractEventLoop | None = None  # where a look is due
        self._ended = False

    async def run_steps(self, work: Callable[[], Steps[_Result]]) -> _Result:
        """As `run`, for the work that `work` gives."""
        future = self._asked(work)
        if self._looking is not future.get_loop():
            self._look(future.get_loop())
        result: _Result = await future
        return result

    def join(self) -> None:
        """Ends the threads after all that was asked before. Blocks; nothing may be asked any more."""
        self._ended = True
        super().join()
        self._hands.shutdown()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = loop
        loop.call_later(_HANGS, self._help, loop, self._taken)

    def _help(self, loop: asyncio.AbstractEventLoop, taken: int) -> None:
        """Starts one more thread where jobs wait and none was taken meanwhile; looks again as long as some wait."""
        self._looking = None
        left = [begun for begun in list(self._at_work.values()) if begun]
        if self._ended or (self._jobs.empty() and not left):
            return
        self._look(loop)
        if self._taken != taken:
            return
        for begun in left:
            self._lend_hands(begun, 1)
        if self._serving < _MOST_SERVING and not self._jobs.empty():
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
            with self._guard, contextlib.suppress(RuntimeError):  # the system gives no more threads at the moment
                thread.start()
                self._serving += 1
                self._threads.append(thread)

    def _lend_hands(self, begun: "deque[_Begun]", most: int) -> None:
        for _ in range(most):
            with contextlib.suppress(RuntimeError):  # no more threads: whoever began takes all steps
                self._hands.submit(self._take_all, begun)

    def _serve(self) -> None:
        pace = Pace()
        while (job := self._jobs.get()) is not None:
            since, begun = time.monotonic(), deque[_Begun]()
            self._at_work[threading.get_ident()] = begun
            taken, again = self._begin_all(job, begun, since + _GATHERING)
            del job  # what was asked for is not kept until the next job
            self._lend_hands(begun, min(len(begun), _HANDS) - 1)
            self._take_all(begun)
            del self._at_work[threading.get_ident()]
            now = time.monotonic()
            with self._guard:
                if not again or (now - since >= _HANGS and self._serving > 1):
                    self._serving -= 1
                    return
            pause = pace.pause(taken, now)
            if pause and taken < _MOST_TOGETHER:
                time.sleep(pause)

    def _begin_all(self, job: _Job, begun: "deque[_Begun]", until: float) -> tuple[int, bool]:
        """Begins this job and, `until` then, those that wait with it; how many, and whether there may be more."""
        for number in range(1, _MOST_TOGETHER + 1):
            self._taken += 1
            try:
                steps = job.work()
            except BaseException as raised:  # handed to whoever asked
                self._hand_over(_Done(job.future, None, raised))
            else:
                self._go_on(job.future, steps, None, begun)
            if number == _MOST_TOGETHER or time.monotonic() > until:
                break
            try:
                following = self._jobs.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return number, False
            job = following
        return number, True

    def _take_all(self, begun: "deque[_Begun]") -> None:
        while begun:
            try:
                future, steps, step = begun.popleft()
            except IndexError:  # another took the last one
                return
            self._go_on(future, steps, failure_of(step), begun)

    def _go_on(
        self, future: "asyncio.Future[Any]", steps: Steps[Any], error: OSError | None, begun: "deque[_Begun]"
    ) -> None:
        """Goes on to the next step, which is then one of those `begun`, or to the end."""
        try:
            step = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            self._hand_over(_Done(future, end.value, None))
        except BaseException as raised:  # handed to whoever asked
            self._hand_over(_Done(future, None, raised))
        else:
            begun.append(_Begun(future, steps, step))
