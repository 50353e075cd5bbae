"""Stands in for WeCom's long connection server, on loopback, with the rules its documentation states.

One live connection per bot: a new subscription throws the old one out with `disconnected_event`. Frames are
acknowledged by frames without `cmd`; answers need the `req_id` of a callback of the same connection, active messages
need a conversation that once spoke. What it sees wrong it keeps in `broken`.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import WSMsgType, web

Frame = dict[str, Any]

_MOST_BYTES = 20480
_numbers = itertools.count(1)


@dataclass(eq=False)
class _Connection:
    socket: web.WebSocketResponse
    subscribed: bool = False
    req_ids: set[str] = field(default_factory=set)
    unacked: set[str] = field(default_factory=set)


class FakeWeComBot:
    """`async with FakeWeComBot() as wecom:`, then `wecom.url` is the `websocket-url`.

    `errcode(frame)` gives the code a frame is acknowledged with (None: by the rules); `deaf(frame)` says whether it is
    left without acknowledgement; `delay(frame)` the seconds before it. `refuse` is the status every handshake gets.
    """

    def __init__(self, bot_id: str = "bot1", secret: str = "bot-secret-canary") -> None:
        self.bot_id, self.secret = bot_id, secret
        self.errcode: Callable[[Frame], int | None] = lambda frame: None
        self.deaf: Callable[[Frame], bool] = lambda frame: False
        self.delay: Callable[[Frame], float] = lambda frame: 0.0
        self.refuse = 0
        self.frames: list[Frame] = []
        self.times: list[float] = []
        self.taken: list[Frame] = []
        self.broken: list[str] = []
        self.handshakes = 0
        self.port = 0
        self._connections: list[_Connection] = []
        self._chats: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._connections:
            await connection.socket.close()
        for task in self._tasks:
            task.cancel()
        await self._runner.cleanup()

    # ---- what the bot did

    def sent(self, cmd: str) -> list[Frame]:
        """Frames of this kind that came, in order."""
        return [frame for frame in self.frames if frame["cmd"] == cmd]

    def streams(self, req_id: str) -> list[Frame]:
        """The stream bodies that answered a callback and were taken."""
        return [
            frame["body"]["stream"]
            for frame in self.taken
            if frame["cmd"] == "aibot_respond_msg" and frame["headers"]["req_id"] == req_id
        ]

    def finished(self, req_id: str) -> list[str]:
        """The contents of the finish frames among them."""
        return [stream["content"] for stream in self.streams(req_id) if stream["finish"]]

    def pushed(self, chat: str) -> list[str]:
        """The active messages a conversation got."""
        return [
            frame["body"]["markdown"]["content"]
            for frame in self.taken
            if frame["cmd"] == "aibot_send_msg" and frame["body"]["chatid"] == chat
        ]

    @property
    def connected(self) -> bool:
        """Whether the bot is subscribed."""
        return any(connection.subscribed for connection in self._connections)

    # ---- what people and the platform do

    async def says(
        self,
        text: str = "",
        user: str = "ZhangSan",
        chat: str = "",
        *,
        msgid: str = "",
        req_id: str = "",
        **over: Any,
    ) -> str:
        """A person writes to the bot, in the group `chat` or directly; the req_id of the callback."""
        body: Frame = {
            "msgid": msgid or f"msg/{next(_numbers)}==",
            "aibotid": self.bot_id,
            "chattype": "group" if chat else "single",
            "from": {"userid": user},
            "msgtype": "text",
            "text": {"content": text},
            **({"chatid": chat} if chat else {}),
            **over,
        }
        self._chats.add(chat or user.lower())
        return await self.push("aibot_msg_callback", body, req_id)

    async def event(self, kind: str, user: str = "ZhangSan", **over: Any) -> str:
        """An event; the req_id of the callback."""
        body = {
            "msgid": f"event/{next(_numbers)}==",
            "create_time": 1_790_000_000,
            "aibotid": self.bot_id,
            "chattype": "single",
            "from": {"userid": user},
            "msgtype": "event",
            "event": {"eventtype": kind},
            **over,
        }
        return await self.push("aibot_event_callback", body)

    async def push(self, cmd: str, body: Frame, req_id: str = "") -> str:
        """Any callback on the live connection."""
        connection = next(each for each in self._connections if each.subscribed)
        number = req_id or f"req-{next(_numbers)}"
        connection.req_ids.add(number)
        await connection.socket.send_json({"cmd": cmd, "headers": {"req_id": number}, "body": body})
        return number

    async def raw(self, text: str) -> None:
        """Any text on the live connection."""
        await next(each for each in self._connections if each.subscribed).socket.send_str(text)

    async def drop(self, *, abort: bool = False) -> None:
        """Ends every connection, with a close frame or without."""
        for connection in list(self._connections):
            connection.subscribed = False
            transport = connection.socket._req.transport if connection.socket._req else None
            if abort and transport is not None:
                transport.abort()
            else:
                await connection.socket.close()

    def unsubscribe(self) -> None:
        """Forgets the subscription although the socket stays open (846609)."""
        for connection in self._connections:
            connection.subscribed = False

    async def another_subscribes(self) -> aiohttp.ClientWebSocketResponse:
        """Another program subscribes with the same bot id; close what is returned, and its session."""
        self.other = aiohttp.ClientSession()
        socket = await self.other.ws_connect(self.url)
        body = {"bot_id": self.bot_id, "secret": self.secret}
        await socket.send_json({"cmd": "aibot_subscribe", "headers": {"req_id": "other"}, "body": body})
        await socket.receive()
        return socket

    # ---- the server

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.handshakes += 1
        if self.refuse:
            return web.Response(status=self.refuse)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connection = _Connection(socket)
        self._connections.append(connection)
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._on_frame(connection, json.loads(message.data))
        finally:
            self._connections.remove(connection)
        return socket

    def _on_frame(self, connection: _Connection, frame: Frame) -> None:
        req_id = frame["headers"]["req_id"]
        self.frames.append(frame)
        self.times.append(asyncio.get_running_loop().time())
        if req_id in connection.unacked:
            self.broken.append(f"{frame['cmd']} sent before the one before it was acknowledged")
        if not self.deaf(frame):
            connection.unacked.add(req_id)
            task = asyncio.create_task(self._acknowledge(connection, frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _acknowledge(self, connection: _Connection, frame: Frame) -> None:
        await asyncio.sleep(self.delay(frame))
        code = self.errcode(frame)
        code = self._judge(connection, frame) if code is None else code
        if code == 0:
            self.taken.append(frame)
        connection.unacked.discard(frame["headers"]["req_id"])
        with contextlib.suppress(ConnectionError):
            await connection.socket.send_json({"headers": frame["headers"], "errcode": code, "errmsg": str(code)})
        if frame["cmd"] == "aibot_subscribe" and code == 0:
            await self._throw_out_all_but(connection)

    async def _throw_out_all_but(self, new: _Connection) -> None:
        new.subscribed = True
        for old in [each for each in self._connections if each is not new and each.subscribed]:
            old.subscribed = False
            event = {"msgtype": "event", "event": {"eventtype": "disconnected_event"}}
            with contextlib.suppress(ConnectionError):
                await old.socket.send_json({"cmd": "aibot_event_callback", "headers": {"req_id": "x"}, "body": event})
                await old.socket.close()

    def _judge(self, connection: _Connection, frame: Frame) -> int:
        """The errcode by the platform's rules."""
        cmd, body, req_id = frame["cmd"], frame.get("body", {}), frame["headers"]["req_id"]
        if cmd == "aibot_subscribe":
            return 0 if (body["bot_id"], body["secret"]) == (self.bot_id, self.secret) else 40001
        if not connection.subscribed:
            return 846609
        if cmd == "ping":
            return 0
        if cmd == "aibot_send_msg":
            known = body["chatid"] if body["chat_type"] == 2 else body["chatid"].lower()
            return self._content(body["markdown"]["content"]) if known in self._chats else 846604
        if req_id not in connection.req_ids:
            return 846605
        if cmd == "aibot_respond_welcome_msg":
            return 0 if body["msgtype"] == "text" else 40058
        earlier = self.streams(req_id)
        if any(stream["finish"] and stream["id"] == body["stream"]["id"] for stream in earlier):
            self.broken.append("a frame after the finish frame")
        return self._content(body["stream"]["content"])

    def _content(self, content: str) -> int:
        if not content.strip():
            self.broken.append("empty content")
        return 40058 if len(content.encode()) > _MOST_BYTES else 0
