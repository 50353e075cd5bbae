"""Feishu's long connection: events come in over one WebSocket, each is acknowledged once it is stored.

Own client, because that of lark-oapi 1.7.5 acknowledges late, cannot be stopped, does not notice a frozen server
and dies for ever of one bad answer. The platform's ReconnectNonce and ReconnectInterval are not followed: the own
back-off is quicker after a short break and no denser in a long one.
"""

import asyncio
import contextlib
import json
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import aiohttp

from channels.calls import TRY_SECONDS
from channels.feishu.api import FeishuApi
from channels.feishu.chunks import Chunks
from channels.feishu.endpoint import (
    ConnectFailed,
    ConnectRefused,
    Endpoint,
    ask_endpoint,
    ping_interval,
    refused_handshake,
)
from channels.feishu.frame import CONTROL, Frame, FrameError
from channels.feishu.settings import FeishuSettings
from channels.health import Troubles
from channels.json_values import load_object

_log = logging.getLogger("sanqiao.channels.feishu")

Handle = Callable[[bytes], Awaitable[bool]]
"""Takes one event's payload; True when it is stored (or not wanted), False when it should be delivered again."""

FIRST_PAUSE, FIRST_PAUSE_REFUSED, LONGEST_PAUSE = 0.2, 1.0, 60.0
STABLE_SECONDS = 10.0
_MOST_AT_ONCE = 512
_MOST_MESSAGE = 64 << 20
_STOP_SECONDS = 0.5


class LongConnection:
    """Keeps one connection until stopped; never gives up."""

    def __init__(
        self,
        api: FeishuApi,
        settings: FeishuSettings,
        entry: str,
        troubles: Troubles,
        handle: Handle,
        *,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._settings = settings
        self._entry = entry
        self._troubles = troubles
        self._handle = handle
        self._rng = rng
        self._chunks = Chunks()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._work: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._opened_at = math.inf
        self._interval = 120.0
        self._interval_changed = asyncio.Event()

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        self._idle.clear()
        try:
            await self._keep_connected()
        finally:
            self._idle.set()

    async def _keep_connected(self) -> None:
        self._troubles.report("connection", "正在与飞书建立长连接", logging.INFO)
        failures = 0
        while not self._stopping.is_set():
            self._opened_at = math.inf
            try:
                await self._until_stopped(self._connect_and_serve())
                error = ConnectFailed("closed")
            except ConnectFailed as failed:
                error = failed
            except Exception as failed:  # border: the one task that keeps this connection
                _log.exception("feishu_connection_error entry=%s", self._entry)
                error = ConnectFailed(type(failed).__name__)
            if self._stopping.is_set():
                break
            # A server that takes connections only to close them must not be asked five times a second.
            failures = 0 if time.monotonic() - self._opened_at >= STABLE_SECONDS else failures
            pause = self._pause(failures, error)
            failures += 1
            self._note(error, pause)
            await self._until_stopped(asyncio.sleep(pause))

    async def stop(self) -> None:
        """Reads no more, lets what is being stored be acknowledged for a moment, and closes; well under a second."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * _STOP_SECONDS):
                await self._idle.wait()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _pause(self, failures: int, error: ConnectFailed) -> float:
        first = FIRST_PAUSE_REFUSED if isinstance(error, ConnectRefused) else FIRST_PAUSE
        longest = min(LONGEST_PAUSE, first * 2.0 ** min(failures, 20))
        return longest * (0.5 + 0.5 * self._rng())

    def _note(self, error: ConnectFailed, pause: float) -> None:
        _log.warning("feishu_disconnected entry=%s reason=%r again_in=%.1f", self._entry, str(error), pause)
        self._troubles.report("connection", error.detail)

    async def _until_stopped(self, work: Awaitable[None]) -> None:
        """Awaits `work`, but cancels it as soon as the connection is to stop."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _connect_and_serve(self) -> None:
        endpoint = await ask_endpoint(self._api, self._settings)
        self._interval = endpoint.ping_interval
        socket = await self._connect(endpoint)
        self._opened_at = time.monotonic()
        self._troubles.clear("connection")
        _log.info("feishu_connected entry=%s", self._entry)
        pings = asyncio.create_task(self._ping(socket, endpoint.service), name=f"feishu-ping-{self._entry}")
        try:
            await self._read(socket)
        finally:
            pings.cancel()
            await asyncio.gather(pings, return_exceptions=True)
            if self._stopping.is_set() and self._work:
                await asyncio.wait(self._work, timeout=_STOP_SECONDS)
            await socket.close()

    async def _connect(self, endpoint: Endpoint) -> aiohttp.ClientWebSocketResponse:
        """Opens the socket. The errors of aiohttp quote the address, which holds the ticket: they are not passed on."""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                return await self._api.session.ws_connect(
                    endpoint.url,
                    max_msg_size=_MOST_MESSAGE,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_STOP_SECONDS / 2),
                    proxy=self._settings.proxy or None,
                )
        except aiohttp.WSServerHandshakeError as error:
            refusal = refused_handshake(error.headers)
        except TimeoutError:
            refusal = ConnectFailed("handshake timed out")
        except (aiohttp.ClientError, OSError) as error:
            refusal = ConnectFailed(type(error).__name__)
        raise refusal

    async def _ping(self, socket: aiohttp.ClientWebSocketResponse, service: int) -> None:
        """The first ping at once; the server's pong is what keeps `_read` patient."""
        ping = Frame(method=CONTROL, service=service, headers=(("type", "ping"),)).encode()
        with contextlib.suppress(ConnectionError):
            while True:
                await socket.send_bytes(ping)
                self._interval_changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        await self._interval_changed.wait()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Reads until the socket ends. Raises ConnectFailed when the server says nothing for too long."""
        while True:
            try:
                message = await socket.receive(timeout=2 * self._interval + 5)
            except TimeoutError:
                raise ConnectFailed("silent for too long") from None
            if message.type is aiohttp.WSMsgType.BINARY:
                await self._on_bytes(socket, message.data)
            elif message.type is not aiohttp.WSMsgType.TEXT:
                raise ConnectFailed(f"closed with code {socket.close_code}")

    async def _on_bytes(self, socket: aiohttp.ClientWebSocketResponse, data: bytes) -> None:
        try:
            frame = Frame.decode(data)
        except FrameError as error:
            _log.warning("feishu_bad_frame entry=%s reason=%s", self._entry, error)
            return
        if frame.method == CONTROL:
            if frame.header("type") == "pong" and frame.payload:
                self._on_config(frame.payload)
            return
        payload = self._chunks.add(frame, time.monotonic())
        if payload is None:
            return
        await self._free.acquire()  # when the store is slow, the platform is read more slowly
        task = asyncio.create_task(self._take(socket, frame, payload), name=f"feishu-event-{self._entry}")
        self._work.add(task)
        task.add_done_callback(self._done)

    def _on_config(self, payload: bytes) -> None:
        interval = ping_interval(load_object(payload) or {}, self._interval)
        if interval != self._interval:
            self._interval = interval
            self._interval_changed.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        self._free.release()

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, frame: Frame, payload: bytes) -> None:
        """Has one event stored, then acknowledges it: the same frame sent back."""
        started = time.monotonic()
        try:
            stored = await self._handle(payload)
        except Exception:  # border: one event; the platform delivers it again
            _log.exception("feishu_event_failed entry=%s", self._entry)
            stored = False
        took = str(int((time.monotonic() - started) * 1000))
        answer = json.dumps({"code": 200 if stored else 500}).encode()
        ack = replace(frame, headers=(*frame.headers, ("biz_rt", took)), payload=answer)
        with contextlib.suppress(ConnectionError):  # gone: the platform delivers it again, and it is a duplicate then
            await socket.send_bytes(ack.encode())
