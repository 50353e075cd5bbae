"""The platforms of the measurements, in the driver's process: their interfaces, their long connections, what arrived.

A reply is known by the tag in it. Nothing is checked here that would cost time: whether requests are as the platforms
want them is what the stand-ins in tests/platforms are for.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

from aiohttp import WSMsgType, web

from tests.bench.model import TAG
from tests.bench.wire import Write, json_response, serving
from tests.platforms.feishu_server import CONTROL, Frame

_FEISHU_TOKEN = json.dumps({"code": 0, "msg": "ok", "tenant_access_token": "t-bench", "expire": 7200}).encode()
_FEISHU_BOT = json.dumps({"code": 0, "msg": "ok", "bot": {"activate_status": 2, "open_id": "ou_bot"}}).encode()
_FEISHU_SENT = json.dumps({"code": 0, "msg": "success", "data": {"message_id": "om_bot"}}).encode()
_DINGTALK_TOKEN = json.dumps({"accessToken": "bench", "expireIn": 7200}).encode()
_DINGTALK_SENT = b'{"errcode": 0, "errmsg": "ok"}'


class Platform:
    """`async with Platform() as platform`: `base` is the address of every interface."""

    def __init__(self) -> None:
        self.replies: Counter[str] = Counter()
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self._acks: dict[str, asyncio.Future[None]] = {}
        self._sockets: dict[str, web.WebSocketResponse] = {}
        self._connected = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.base = await self._stack.enter_async_context(serving(self._handle))
        app = web.Application()
        app.router.add_get("/{name}", self._connection)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._sockets_at = f"ws://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in list(self._sockets.values()):
            await socket.close()
        await self._stack.aclose()

    # ---- replies

    def expect(self, tag: str) -> asyncio.Future[float]:
        """When the first reply with this tag came (monotonic)."""
        self._waiting[tag] = asyncio.get_running_loop().create_future()
        return self._waiting[tag]

    def arrived(self, data: bytes) -> None:
        """A reply."""
        if found := TAG.search(data):
            tag = found[0].decode()
            self.replies[tag] += 1
            waiting = self._waiting.pop(tag, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(time.monotonic())

    def _handle(self, head: bytes, body: bytes, write: Write) -> None:
        path = head.split(b" ", 2)[1]
        if path.startswith(b"/open-apis/im/"):
            self.arrived(body)
            write(json_response(_FEISHU_SENT))
        elif path.startswith(b"/robot/"):
            self.arrived(body)
            write(json_response(_DINGTALK_SENT))
        elif path.startswith(b"/open-apis/auth/"):
            write(json_response(_FEISHU_TOKEN))
        elif path.startswith(b"/open-apis/bot/"):
            write(json_response(_FEISHU_BOT))
        elif path == b"/callback/ws/endpoint":
            data = {"URL": f"{self._sockets_at}/feishu?service_id=1", "ClientConfig": {"PingInterval": 120}}
            write(json_response(json.dumps({"code": 0, "msg": "ok", "data": data}).encode()))
        elif path == b"/v1.0/gateway/connections/open":
            write(json_response(json.dumps({"endpoint": f"{self._sockets_at}/dingtalk", "ticket": "t"}).encode()))
        else:
            write(json_response(_DINGTALK_TOKEN))

    # ---- long connections

    async def connected(self, name: str) -> None:
        """Returns when the long connection of this platform stands."""
        async with self._connected:
            await self._connected.wait_for(lambda: name in self._sockets)

    async def push(self, name: str, number: str, send: Callable[[web.WebSocketResponse], Awaitable[None]]) -> None:
        """Sends a frame; returns when the one that acknowledges `number` came. Raises OSError without a connection."""
        socket = self._sockets.get(name)
        if socket is None:
            raise ConnectionError(f"no long connection of {name}")
        self._acks[number] = asyncio.get_running_loop().create_future()
        try:
            await send(socket)
            await self._acks[number]
        finally:
            del self._acks[number]

    async def _connection(self, request: web.Request) -> web.WebSocketResponse:
        name, socket = request.match_info["name"], web.WebSocketResponse()
        await socket.prepare(request)
        async with self._connected:
            self._sockets[name] = socket
            self._connected.notify_all()
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await self._feishu_frame(socket, Frame.decode(message.data))
                elif message.type is WSMsgType.TEXT:
                    self._acknowledged(json.loads(message.data)["headers"]["messageId"])
        finally:
            if self._sockets.get(name) is socket:
                del self._sockets[name]
        return socket

    async def _feishu_frame(self, socket: web.WebSocketResponse, frame: Frame) -> None:
        if frame.method == CONTROL:
            await socket.send_bytes(Frame(CONTROL, {"type": "pong"}, b"", frame.service).encode())
        else:
            self._acknowledged(frame.headers.get("message_id", ""))

    def _acknowledged(self, number: str) -> None:
        waiting = self._acks.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
