"""What is measured, as a process of its own: the product or the floor, its CPU and its memory."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
PRODUCT, FLOOR = "product", "floor"
_STOP_SECONDS = 30.0
_OURS = ("OPENAI_", "SANQIAO_", "REDIS_URL", "CLUSTER_REDIS_URL", "CONSOLE_TOKEN")


@dataclass(frozen=True)
class Places:
    """Where model and platform are, and the entries under `channels` that are on."""

    model: str
    platform: str
    channels: Mapping[str, Mapping[str, Any]]


class SubjectFailed(Exception):
    """What is measured did not start, or ended; the message holds the end of what it said."""


class Subject:
    """A process that runs. `started`: seconds from exec to the first good /healthz."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self._process, self.port, self._log = process, port, log
        self._seen = psutil.Process(process.pid)
        self.started = 0.0

    def cpu(self) -> float:
        """Seconds of CPU so far, all threads."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> float:
        """MiB of memory now."""
        return float(self._seen.memory_info().rss) / 2**20

    def failed(self, what: str) -> SubjectFailed:
        """An error with the end of what it said. Blocking."""
        said = self._log.read_text(errors="replace")[-2000:]
        return SubjectFailed(f"{what}; it said:\n{said}")

    async def healthy(self, began: float) -> None:
        """Returns at the first good /healthz. Raises SubjectFailed."""
        while time.monotonic() - began < _STOP_SECONDS:
            if self._process.returncode is not None:
                raise await asyncio.to_thread(self.failed, f"ended at start with {self._process.returncode}")
            if await _ok(self.port):
                self.started = time.monotonic() - began
                return
            await asyncio.sleep(0.005)
        raise await asyncio.to_thread(self.failed, "not ready in time")

    async def stop(self) -> None:
        """SIGTERM. Raises SubjectFailed when it does not end well, or not in time; then it may still run."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        if self._process.returncode != 0:
            raise await asyncio.to_thread(self.failed, f"ended with {self._process.returncode}")


async def _ok(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()


@asynccontextmanager
async def running(kind: str, places: Places, folder: Path) -> AsyncIterator[Subject]:
    """The product or the floor, on a config and a workspace made for it in a new `folder`. Raises SubjectFailed."""
    ports = await asyncio.to_thread(_free_ports)
    command = await asyncio.to_thread(_product if kind == PRODUCT else _floor, places, folder, ports)
    log = folder / "log"
    began = time.monotonic()
    with log.open("wb") as out:
        async with child(*command, stdout=out, stderr=out) as process:
            subject = Subject(process, ports[0], log)
            await subject.healthy(began)
            yield subject
            await subject.stop()


@asynccontextmanager
async def child(
    *command: str, temporary: Path | None = None, **streams: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process; it is gone at the end, however that comes. `temporary`: where it puts temporary files.

    It is of a session of its own: Ctrl-C reaches the driver alone, which ends the others.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)} | {"NO_PROXY": "*"}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    given = {"stdin": asyncio.subprocess.DEVNULL, "preexec_fn": _end_with_driver, **streams}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, cwd=ROOT, start_new_session=True, **given
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _end_with_driver() -> None:
    """In the new process: it is killed when the driver is, even by SIGKILL (prctl(2), PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _product(places: Places, folder: Path, ports: Sequence[int]) -> list[str]:
    """Writes the config; what to run. Everything durable is as shipped.

    Not as shipped: nobody is limited, for the people of the driver talk without end; the model takes any number at
    once, for it is the gateway that is measured; one agent, so no classifier is asked, as the floor asks none.
    """
    main = {"base-url": f"{places.model}/v1", "api-key": "sk-bench", "model": "bench", "max-concurrency": 2000}
    settings = {
        "server": {"port": ports[0]},
        "console": {"port": ports[1]},
        "models": {"main": main},
        "limits": {"messages-per-minute": 0},
        "channels": places.channels,
    }
    (folder / "config" / "agents").mkdir(parents=True)
    agent = {"description": "通用助手", "prompt": "你是通用助手，回答简洁。"}
    (folder / "config" / "agents" / "general-agent.yaml").write_text(yaml.safe_dump(agent, allow_unicode=True))
    (folder / "config" / "gateway.yaml").write_text(yaml.safe_dump(settings, allow_unicode=True))
    return ["-m", "gateway", "run", "--config", str(folder / "config"), "--workspace", str(folder / "workspace")]


def _floor(places: Places, folder: Path, ports: Sequence[int]) -> list[str]:
    folder.mkdir(parents=True)
    where = ["--port", str(ports[0]), "--model", places.model, "--platform", places.platform]
    return ["-m", "tests.bench.floor", *where, "--channels", *places.channels]


def _free_ports() -> list[int]:
    """Two ports that nobody listens on, below those that outgoing connections take."""
    found: list[int] = []
    start = 10_000 + os.getpid() * 7 % 4000
    for port in range(start, start + 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == 2:
            return found
    raise SubjectFailed("no port is free")


@asynccontextmanager
async def model_process() -> AsyncIterator[str]:
    """The model of the measurements; its address. It ends with its standard input, so with this process at the latest."""
    pipe = asyncio.subprocess.PIPE
    async with child("-m", "tests.bench.model", stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
