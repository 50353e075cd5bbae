"""What a run used: the subject's CPU and memory, what the driver needed, and what others took from the machine."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Self

import psutil

from tests.bench.subject import Subject

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Used:
    """Seconds of CPU of the subject; its MiB at start and at most; cores that driver and strangers took meanwhile."""

    cpu: float
    rss_start: float
    rss_peak: float
    driver: float
    others: float


class Meter:
    """`async with Meter(subject) as meter: …`, then `used`."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._start = subject.rss()
        self._peak = self._start

    async def __aenter__(self) -> Self:
        self._began, self._before = time.monotonic(), self._now()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    @property
    def used(self) -> Used:
        """So far."""
        lasted = time.monotonic() - self._began
        cpu, driver, ours, all_ = (now - then for now, then in zip(self._now(), self._before, strict=True))
        peak = max(self._peak, self._subject.rss())
        return Used(cpu, self._start, peak, driver / lasted, max(0.0, all_ - ours) / lasted)

    def _now(self) -> tuple[float, float, float, float]:
        """Seconds of CPU: the subject's, this process's, those of all that it started too, everybody's."""
        me, ours = time.process_time(), 0.0
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                ours += sum(child.cpu_times()[:2])
        return self._subject.cpu(), me, me + ours, _everybody()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._peak = max(self._peak, self._subject.rss())


def _everybody() -> float:
    """Seconds in which a processor of this machine was not idle."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
