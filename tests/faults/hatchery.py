"""Gateways that start in a tenth of a second, with a clock that can be set: forks of one prepared process."""

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, Self

from tests.scenarios.gateway import ROOT, Process


class Fork:
    """One gateway, with as much of `asyncio.subprocess.Process` as is used of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = asyncio.Event()

    def ended(self, code: int) -> None:
        """It is gone."""
        self.returncode = code
        self._over.set()

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Its exit code, once it has ended; that of a killed one is minus the signal."""
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode


class Hatchery:
    """`async with Hatchery() as hatchery:`; what it hatched is killed at its end."""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.hatched"), stdin=pipe, stdout=pipe, cwd=ROOT, env=_environment()
        )
        self._forks: dict[int, Fork] = {}
        self._asked: asyncio.Queue[asyncio.Future[Fork]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def hatch(self, **order: Any) -> Fork:
        """Starts one gateway."""
        assert self._process.stdin is not None
        born: asyncio.Future[Fork] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(born)
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return await born

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            if "code" in told:
                self._forks.pop(told["pid"]).ended(told["code"])
            else:
                fork = self._forks[told["pid"]] = Fork(told["pid"])
                asked = self._asked.get_nowait()
                if not asked.done():  # whoever asked has gone
                    asked.set_result(fork)


class Hatched(Process):
    """A gateway that comes out of a hatchery, which is set before the first start."""

    hatchery: Hatchery
    lives = 0

    async def launch(self) -> None:
        """Starts without waiting for it."""
        await asyncio.to_thread(self.write)
        if not self._clock_file.exists():
            self.set_clock(0.0)
        self.lives += 1
        fork: Any = await self.hatchery.hatch(
            arguments=self._command("run")[3:], log=str(self.root / "gateway.log"), clock=str(self._clock_file)
        )
        self.process = fork

    @property
    def _clock_file(self) -> Path:
        return self.root / "clock"

    def set_clock(self, ahead: float) -> None:
        """Sets its clock so many seconds ahead of ours (below 0: behind), while it runs too."""
        with self._clock_file.open("r+b" if self._clock_file.exists() else "wb") as file:
            file.write(struct.pack("d", ahead))

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self.process is not None
        return self.process.pid

    def freeze(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)


def _environment() -> dict[str, str]:
    ours = ("OPENAI_", "SANQIAO_", "REDIS_URL", "CLUSTER_REDIS_URL", "CONSOLE_TOKEN")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | {"NO_PROXY": "*"}
