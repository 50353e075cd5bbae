"""Feishu's long connection: events come in over one WebSocket, each is acknowledged once it is stored.

Own client, because that of lark-oapi 1.7.5 acknowledges late, cannot be stopped, does not notice a frozen server
and dies for ever of one bad answer. The platform's ReconnectNonce and ReconnectInterval are not followed: the own
back-off is quicker after a short break and no denser in a long one.
"""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import aiohttp

from channels.feishu.api import FeishuApi
from channels.feishu.chunks import Chunks
from channels.feishu.endpoint import ConnectFailed, ask_endpoint, ping_interval, refused_handshake
from channels.feishu.frame import CONTROL, Frame, FrameError
from channels.feishu.settings import FeishuSettings
from channels.health import Troubles
from channels.json_values import load_object
from channels.reconnecting import GRACE_SECONDS, HandshakeFailed, Reconnecting, Work, open_socket

_log = logging.getLogger("sanqiao.channels.feishu")

Handle = Callable[[bytes], Awaitable[bool]]
"""Takes one event's payload; True when it is stored (or not wanted), False when it should be delivered again."""

SILENCE_SECONDS = 5.0
"""How long after two pings without any answer a server counts as frozen."""

_MOST_AT_ONCE = 512
_MOST_MESSAGE = 64 << 20


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
        self._handle = handle
        self._chunks = Chunks()
        self._work = Work(f"feishu-event-{entry}", _MOST_AT_ONCE)
        self._interval = 120.0
        self._interval_changed = asyncio.Event()
        hello = "正在与飞书建立长连接"
        self._life = Reconnecting(
            "feishu", entry, troubles, self._serve, self._work.settle, hello=hello, lost=ConnectFailed, rng=rng
        )

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        await self._life.run()

    async def stop(self) -> None:
        """Reads no more, lets what is being stored be acknowledged for a moment, and closes."""
        await self._life.stop()

    async def _serve(self) -> None:
        """One connection from handshake to loss. Raises ConnectFailed."""
        endpoint = await ask_endpoint(self._api, self._settings)
        self._interval = endpoint.ping_interval
        try:
            socket = await open_socket(
                self._api.session, endpoint.url, proxy=self._settings.proxy, most_bytes=_MOST_MESSAGE
            )
        except HandshakeFailed as error:
            raise refused_handshake(str(error), error.headers) from error
        self._life.opened()
        pings = asyncio.create_task(self._ping(socket, endpoint.service), name=f"feishu-ping-{self._entry}")
        try:
            await self._read(socket)
        finally:
            pings.cancel()
            await asyncio.gather(pings, return_exceptions=True)
            if self._life.stopping:
                await self._work.settle(GRACE_SECONDS)
            await socket.close()

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
                message = await socket.receive(timeout=2 * self._interval + SILENCE_SECONDS)
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
        await self._work.begin(lambda: self._take(socket, frame, payload))

    def _on_config(self, payload: bytes) -> None:
        interval = ping_interval(load_object(payload) or {}, self._interval)
        if interval != self._interval:
            self._interval = interval
            self._interval_changed.set()

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
