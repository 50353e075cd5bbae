"""What befalls the gateway, its disk, its Redis, its clock and its platforms, one thing on top of another; by chance."""

import asyncio
import contextlib
import errno
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.faults.hurried import Hurried
from tests.platforms.redis_server import RedisServer

CODES = {0, 1, 2, -signal.SIGTERM, -signal.SIGKILL}
"""How a life may end: drained, stopped at once by a second signal, unable to run, ended before it began, killed."""


class Disk:
    """A small disk of its own below a folder, which can be filled; where the system lets us mount one."""

    def __init__(self, folder: Path, mebibytes: int = 48) -> None:
        self.folder = folder
        self._size = mebibytes
        self._filler = folder / "filler"
        self.mounted = False

    def mount(self) -> None:
        """Blocking. Without the right to, the folder stays what it is, and the disk never fills."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={self._size}m,mode=0700", "tmpfs", str(self.folder)]
        with contextlib.suppress(OSError):
            self.mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0

    def unmount(self, keep: Path) -> None:
        """What is on it is kept in `keep`. Blocking."""
        if self.mounted:
            subprocess.run(["cp", "-a", str(self.folder), str(keep)], check=True)
            subprocess.run(["umount", "-l", str(self.folder)], check=True)
            self.mounted = False

    def fill(self) -> None:
        """To the last byte. Blocking."""
        with self._filler.open("wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Blocking."""
        self._filler.unlink(missing_ok=True)


class Killer:
    """`faults` by name; `keep_up` starts the gateway again whenever it ended, as systemd does.

    `held_up` is told when the gateway was frozen.
    """

    def __init__(
        self, gateway: Hurried, disk: Disk, redis: RedisServer, rng: random.Random, held_up: Callable[[], None]
    ) -> None:
        self._gateway = gateway
        self._disk = disk
        self._redis = redis
        self._rng = rng
        self._held_up = held_up
        self._going_on = True
        self._alone = {what: asyncio.Lock() for what in ("gateway", "disk", "redis", "clock")}
        self.codes: Counter[int] = Counter()
        self.faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill -9": self.kill,
            "SIGTERM": self.terminate,
            "SIGSTOP": self.freeze,
            "Redis killed": self.kill_redis,
            "Redis frozen": self.freeze_redis,
            "Redis flushed": self.flush_redis,
            "clock": self.step_clock,
        }
        if disk.mounted:
            self.faults["disk full"] = self.fill_disk

    async def _a_while(self, most: float) -> None:
        await asyncio.sleep(most * (0.2 + 0.8 * self._rng.random()))

    # ---- the gateway

    async def keep_up(self) -> None:
        """Runs until `rest`."""
        while self._going_on:
            await self._gateway.launch()
            code = await self._gateway.ended(timeout=3600)
            self.codes[code] += 1
            if code == 2:
                await asyncio.sleep(0.1)

    def rest(self) -> None:
        """The end of the life that runs now is the last."""
        self._going_on = False

    async def kill(self) -> None:
        self._gateway.signal(signal.SIGKILL)

    async def terminate(self) -> None:
        self._gateway.signal(signal.SIGTERM)
        if self._rng.random() < 0.3:  # the one who waits for it loses patience
            await self._a_while(0.2)
            self._gateway.signal(signal.SIGTERM if self._rng.random() < 0.5 else signal.SIGKILL)

    async def freeze(self) -> None:
        process = self._gateway.process
        assert process is not None
        async with self._alone["gateway"]:
            process.send_signal(signal.SIGSTOP)
            await self._a_while(1.5)
            self._held_up()
            process.send_signal(signal.SIGCONT)

    async def step_clock(self) -> None:
        """Hours ahead or behind for a while, then right again: a step each way."""
        far = self._rng.choice([-6 * 3600.0, -900.0, -5.0, 5.0, 900.0, 6 * 3600.0])
        async with self._alone["clock"]:
            await asyncio.to_thread(self._gateway.set_clock, far)
            await self._a_while(1.0)
            await asyncio.to_thread(self._gateway.set_clock, 0.0)

    # ---- what it stands on

    async def fill_disk(self) -> None:
        async with self._alone["disk"]:
            await asyncio.to_thread(self._disk.fill)
            await self._a_while(1.2)
            await asyncio.to_thread(self._disk.free)

    async def kill_redis(self) -> None:
        async with self._alone["redis"]:
            await asyncio.to_thread(self._redis.kill)
            await self._a_while(0.8)
            await asyncio.to_thread(self._redis.start)

    async def freeze_redis(self) -> None:
        async with self._alone["redis"]:
            self._redis.freeze()
            await self._a_while(0.8)
            self._redis.thaw()

    async def flush_redis(self) -> None:
        async with self._alone["redis"]:
            await asyncio.to_thread(self._redis.client.flushall)
