"""One long connection to a platform, kept until it is stopped: made, served, and made again after a pause.

What differs from platform to platform (handshake, frames, liveness) is a coroutine that ends with Disconnected.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import ClassVar

import aiohttp
from yarl import URL

from channels.health import Troubles

CONNECT_SECONDS = 10.0
GRACE_SECONDS = 0.5
"""How long what is being stored may take, and be acknowledged, once the connection is to stop."""

_STOP_SECONDS = 2 * GRACE_SECONDS
_CLOSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before the next connection: seconds that double from `first` to `longest`.

    A connection that lasted `stable` seconds begins them anew. The first `free` times there is none. Each is made
    longer or shorter by a random factor within `spread`, so that not all come back at once.
    """

    first: float
    longest: float
    stable: float = 10.0
    free: int = 0
    spread: tuple[float, float] = (0.5, 1.0)

    def after(self, times: int, chance: float) -> float:
        """The pause after `times` losses before this one; `chance` is a number from 0 to 1."""
        if times < self.free:
            return 0.0
        least, most = self.spread
        return min(self.longest, self.first * 2.0 ** min(times, 20)) * (least + (most - least) * chance)


class Disconnected(Exception):
    """There is no connection, or not any more. The message is for logs: no address, for it may hold a ticket.

    `detail` is what an admin reads (Chinese, with the remedy), "" where nothing is wrong.
    """

    detail: str = ""
    pauses: ClassVar[Pauses] = Pauses(1.0, 60.0)


class Backoff:
    """How long to wait after each loss; the kinds of Disconnected are counted apart."""

    def __init__(self, rng: Callable[[], float]) -> None:
        self._rng = rng
        self._counts: Counter[type[Disconnected]] = Counter()

    def pause(self, loss: Disconnected, lasted: float) -> float:
        """Seconds to wait after `loss` of a connection that lasted `lasted` seconds (0 = there was none)."""
        for kind in [kind for kind in self._counts if lasted >= kind.pauses.stable]:
            del self._counts[kind]
        pause = loss.pauses.after(self._counts[type(loss)], self._rng())
        self._counts[type(loss)] += 1
        return pause


class Work:
    """What came by a connection and is being stored: each task has an owner, at most `most` run at once."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._free = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, job: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begins a job, which must not raise, once there is room: when the store is slow, the platform is read slowly."""
        await self._free.acquire()
        task = asyncio.create_task(job(), name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()

    async def settle(self, seconds: float = 0.0) -> None:
        """Lets what was begun be done for `seconds`; the rest is cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Reconnecting:
    """Keeps one connection until stopped; never gives up.

    `serve` makes one connection, calls `opened` once it works, and raises Disconnected; it is cancelled by `stop`.
    `end` lets go of what is left when no other connection will follow. `lost` makes a Disconnected of a reason nobody
    thought of. `kind` begins the log's events; `hello` is what admins read before there is a connection.
    """

    def __init__(
        self,
        kind: str,
        entry: str,
        troubles: Troubles,
        serve: Callable[[], Coroutine[None, None, None]],
        end: Callable[[], Awaitable[None]],
        *,
        hello: str,
        lost: Callable[[str], Disconnected],
        rng: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = logging.getLogger(f"sanqiao.channels.{kind}")
        self._kind = kind
        self._entry = entry
        self._troubles = troubles
        self._serve = serve
        self._end = end
        self._hello = hello
        self._lost = lost
        self._now = now
        self._backoff = Backoff(rng)
        self._opened_at: float | None = None
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def announce(self) -> None:
        """Tells admins that there is no connection yet."""
        self._troubles.report("connection", self._hello, logging.INFO)

    def opened(self) -> None:
        """The connection works from now on."""
        self._opened_at = self._now()
        self._troubles.clear("connection")
        self._log.info("%s_connected entry=%s", self._kind, self._entry)

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        self._idle.clear()
        self.announce()
        try:
            while not self.stopping:
                self._opened_at = None
                loss = await self._until_lost()
                if not self.stopping:
                    await self._rest(loss)
        finally:
            await self._end()
            self._idle.set()

    async def stop(self) -> None:
        """Connects no more and ends what there is: in about a second at most."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()

    async def _until_lost(self) -> Disconnected:
        try:
            await self._until_stopped(self._serve())
        except Disconnected as loss:
            return loss
        except Exception as error:  # border: the one task that keeps this connection
            self._log.exception("%s_connection_error entry=%s", self._kind, self._entry)
            return self._lost(type(error).__name__)
        return self._lost("closed")

    async def _rest(self, loss: Disconnected) -> None:
        lasted = 0.0 if self._opened_at is None else self._now() - self._opened_at
        pause = self._backoff.pause(loss, lasted)
        level = logging.WARNING if loss.detail else logging.INFO
        line = "%s_disconnected entry=%s reason=%r again_in=%.1f"
        self._log.log(level, line, self._kind, self._entry, str(loss), pause)
        if loss.detail:
            self._troubles.report("connection", loss.detail)
        await self._until_stopped(asyncio.sleep(pause))

    async def _until_stopped(self, work: Coroutine[None, None, None]) -> None:
        """Awaits `work`, but cancels it as soon as the connection is to stop."""
        task = asyncio.create_task(work, name=f"{self._kind}-connection-{self._entry}")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


class HandshakeFailed(Exception):
    """No socket. The message is for logs: no address. `headers` are those of a refusal."""

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.headers = headers or {}


async def open_socket(
    session: aiohttp.ClientSession, url: str | URL, *, proxy: str, most_bytes: int, heartbeat: float | None = None
) -> aiohttp.ClientWebSocketResponse:
    """Opens a WebSocket. Raises HandshakeFailed.

    The errors of aiohttp quote the address, which may hold a ticket: they are not passed on.
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await session.ws_connect(
                url,
                heartbeat=heartbeat,
                max_msg_size=most_bytes,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                proxy=proxy or None,
            )
    except aiohttp.WSServerHandshakeError as error:
        failure = HandshakeFailed(f"handshake refused with status {error.status}", error.headers)
    except TimeoutError:
        failure = HandshakeFailed("handshake timed out")
    except (aiohttp.ClientError, OSError) as error:
        failure = HandshakeFailed(type(error).__name__)
    raise failure
