"""A stand-in for DingTalk's open platform: stream, session webhooks, robot API, on a loopback port of its own.

Not modelled: the random choice between connections (it pushes to the newest), redelivery, rate limits, the cut that
follows a `disconnect` after 10 s.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import WSMsgType, web

Json = dict[str, Any]

BOT_TOPIC = "/v1.0/im/bot/messages/get"
ROBOT_ID = "$:LWCP_v1:$fakebot"
SINGLE, GROUP = "/v1.0/robot/oToMessages/batchSend", "/v1.0/robot/groupMessages/send"
TOKEN, OPEN = "/v1.0/oauth2/accessToken", "/v1.0/gateway/connections/open"


@dataclass(frozen=True)
class Ack:
    """What the client sent back, on which connection (counted from 1), when (monotonic)."""

    at: float
    connection: int
    body: Json

    @property
    def id(self) -> str:
        """The id of the frame it acknowledges."""
        return str(self.body.get("headers", {}).get("messageId"))


@dataclass(frozen=True)
class Call:
    """One HTTP call the client made."""

    at: float
    path: str
    token: str
    body: Any


@dataclass(frozen=True)
class Reply:
    """What a session webhook took (or refused)."""

    at: float
    session: str
    body: Json

    @property
    def text(self) -> str:
        """The markdown people see."""
        return str(self.body["markdown"]["text"])


def chat_data(
    text: str | None = "你好", *, base: str, conversation: str = "cidA==", kind: str = "1", **over: Any
) -> Json:
    """A robot message as stream `data` or HTTP body; `kind` 1: direct chat, 2: group, with the robot mentioned.

    `staff` is who speaks. A value of None takes the key out, `text` too.
    """
    now, staff = int(time.time() * 1000), over.pop("staff", "staff001")
    # The platform cuts the mention out of a text, not the blank after it.
    data: Json = {
        "conversationId": conversation,
        "conversationType": kind,
        "chatbotCorpId": "dingfakecorp",
        "chatbotUserId": ROBOT_ID,
        "msgId": "msg" + uuid.uuid4().hex[:16],
        "senderNick": "测试",
        "senderStaffId": staff,
        "senderId": "$:LWCP_v1:$" + staff,
        "senderCorpId": "dingfakecorp",
        "isAdmin": False,
        "createAt": now,
        "robotCode": "dingfakeappkey",
        "sessionWebhook": f"{base}/robot/sendBySession?session={uuid.uuid4().hex}",
        "sessionWebhookExpiredTime": now + 5_400_000,
        "msgtype": "text",
        "text": None if text is None else {"content": " " * (kind == "2") + text},
    }
    if kind == "2":
        data |= {"conversationTitle": "招聘群", "isInAtList": True, "atUsers": [{"dingtalkId": ROBOT_ID}]}
    data |= over
    return {key: value for key, value in data.items() if value is not None}


def signed_headers(secret: str, at: float | None = None) -> dict[str, str]:
    """The headers of a callback in HTTP mode, made at `at` (unix seconds)."""
    stamp = str(int((time.time() if at is None else at) * 1000))
    mac = hmac.new(secret.encode(), f"{stamp}\n{secret}".encode(), hashlib.sha256).digest()
    return {"timestamp": stamp, "sign": base64.b64encode(mac).decode(), "Content-Type": "application/json"}


class FakeDingTalk:
    """`async with FakeDingTalk() as ding:`, then `ding.base` is both `api-base-url` and `oapi-base-url`.

    `faults` holds, per path, answers used up one by one before any other: (status, object or text). `delays` holds
    seconds before the answer, per path. `close_on_connect` is a close code sent right after each handshake.
    """

    def __init__(self, client_id: str = "dingfakeappkey", client_secret: str = "fake-secret") -> None:
        self.client_id, self.client_secret = client_id, client_secret
        self.opens: list[Call] = []
        self.acks: list[Ack] = []
        self.replies: list[Reply] = []
        self.calls: list[Call] = []
        self.pushed: dict[str, float] = {}
        self.connections: list[web.WebSocketResponse] = []
        self.total_connections = 0
        self.faults: dict[str, list[tuple[int, Any]]] = {}
        self.delays: dict[str, float] = {}
        self.open_answer: tuple[int, Any] | None = None
        self.close_on_connect: int | None = None
        self.greeting: Json | None = None
        self.reply_answer: Any = {"errcode": 0, "errmsg": "ok"}
        self.single_lists: Json = {}
        self.token_lifetime = 7200
        self.autoping = True
        self.port = 0
        self._tickets: dict[str, float] = {}
        self._tokens: set[str] = set()
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}

    @property
    def base(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=32 << 20)
        app.router.add_post(OPEN, self._open)
        app.router.add_get("/connect", self._connect)
        app.router.add_post(TOKEN, self._token)
        app.router.add_post("/robot/sendBySession", self._session)
        app.router.add_post("/v1.0/{tail:.*}", self._api)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site.port
        return self

    async def __aexit__(self, *exc: object) -> None:
        for socket in list(self.connections):
            self.abort(socket)
        await self._runner.cleanup()

    # ---- the stream

    async def wait_connected(self, connections: int = 1, timeout: float = 40.0) -> None:
        """Returns when so many sockets were opened in all and one is open."""
        async with asyncio.timeout(timeout):
            while self.total_connections < connections or not self.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def abort(self, socket: web.WebSocketResponse | None = None) -> None:
        """Drops TCP without a close frame."""
        transport = self._transports.get(socket or self.connections[-1])
        if transport is not None:
            transport.abort()

    async def push(self, frame: Json, socket: web.WebSocketResponse | None = None) -> str:
        """Sends one frame on the newest connection; its id."""
        number = str(frame["headers"].get("messageId"))
        self.pushed[number] = time.monotonic()
        await self.send_raw(json.dumps(frame, ensure_ascii=False), socket)
        return number

    async def send_raw(self, text: str, socket: web.WebSocketResponse | None = None) -> None:
        """Sends any text."""
        await (socket or self.connections[-1]).send_str(text)

    async def say(self, text: str = "你好", **over: Any) -> str:
        """A person speaks to the robot; the frame's id. See `chat_data`."""
        return await self.push(self.chat(text, **over))

    def chat(self, text: str = "你好", *, frame_id: str = "", **over: Any) -> Json:
        """The frame of a robot message. See `chat_data`."""
        return self.frame("CALLBACK", BOT_TOPIC, chat_data(text, base=self.base, **over), frame_id)

    @staticmethod
    def frame(kind: str, topic: str, data: Any, frame_id: str = "", **headers: str) -> Json:
        """One frame of the protocol."""
        base = {
            "topic": topic,
            "contentType": "application/json",
            "time": str(int(time.time() * 1000)),
            "messageId": frame_id or uuid.uuid4().hex,
            "appId": "fake-app-id",
            "connectionId": "fake-conn",
        }
        text = json.dumps(data, ensure_ascii=False)
        return {"specVersion": "1.0", "type": kind, "headers": {**base, **headers}, "data": text}

    def ping(self, opaque: str = "opaque-1") -> Json:
        """The application's own ping."""
        return self.frame("SYSTEM", "ping", {"opaque": opaque})

    def disconnect(self, reason: str = "connection is expired") -> Json:
        """What the platform says before it cuts a connection."""
        return self.frame("SYSTEM", "disconnect", {"reason": reason})

    def event(self) -> Json:
        """An event nobody subscribed to."""
        return self.frame("EVENT", "*", {"userId": ["staff001"]}, eventType="user_add_org", eventId=uuid.uuid4().hex)

    def acks_of(self, number: str) -> list[Ack]:
        """The acknowledgements of one frame."""
        return [ack for ack in self.acks if ack.id == number]

    async def _open(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.opens.append(Call(time.monotonic(), OPEN, "", body))
        await asyncio.sleep(self.delays.get(OPEN, 0.0))
        if self.open_answer is not None:
            return _answer(*self.open_answer)
        if (body.get("clientId"), body.get("clientSecret")) != (self.client_id, self.client_secret):
            return _answer(401, {"code": "invalidClient", "message": "bad clientId or clientSecret"})
        if not body.get("subscriptions"):
            return _answer(400, {"code": "invalidParameter", "message": "subscriptions"})
        ticket = f"{uuid.uuid4()}+/="
        self._tickets[ticket] = time.monotonic() + 90
        return _answer(200, {"endpoint": f"ws://127.0.0.1:{self.port}/connect", "ticket": ticket})

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        if time.monotonic() > self._tickets.pop(request.query.get("ticket", ""), 0):
            return _answer(401, {"message": "ticket invalid or used"})
        socket = web.WebSocketResponse(autoping=self.autoping)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        self.total_connections += 1
        number = self.total_connections
        self.connections.append(socket)
        self._transports[socket] = request.transport
        try:
            if self.greeting:
                await self.push(self.greeting, socket)
            if self.close_on_connect:
                await socket.close(code=self.close_on_connect)
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    body = json.loads(message.data)
                    body["data"] = json.loads(body["data"] or "null")
                    self.acks.append(Ack(time.monotonic(), number, body))
        finally:
            self.connections.remove(socket)
            del self._transports[socket]
        return socket

    # ---- HTTP calls

    def sent(self, path: str) -> list[Json]:
        """The bodies of all calls of this path."""
        return [call.body for call in self.calls if call.path == path]

    def revoke_tokens(self) -> None:
        """Every token given so far is refused from now on."""
        self._tokens.clear()

    async def _recorded(self, request: web.Request) -> Json:
        body: Json = await request.json()
        token = request.headers.get("x-acs-dingtalk-access-token", "")
        self.calls.append(Call(time.monotonic(), request.path, token, body))
        await asyncio.sleep(self.delays.get(request.path, 0.0))
        return body

    def _fault(self, path: str) -> web.StreamResponse | None:
        waiting = self.faults.get(path)
        return _answer(*waiting.pop(0)) if waiting else None

    async def _token(self, request: web.Request) -> web.StreamResponse:
        body = await self._recorded(request)
        if fault := self._fault(request.path):
            return fault
        if (body.get("appKey"), body.get("appSecret")) != (self.client_id, self.client_secret):
            return _answer(400, {"code": "invalidClientIdOrSecret", "message": "bad key"})
        token = uuid.uuid4().hex
        self._tokens.add(token)
        return _answer(200, {"accessToken": token, "expireIn": self.token_lifetime})

    async def _session(self, request: web.Request) -> web.StreamResponse:
        body = await self._recorded(request)
        self.replies.append(Reply(time.monotonic(), request.query.get("session", ""), body))
        if fault := self._fault(request.path):
            return fault
        return _answer(200, self.reply_answer)

    async def _api(self, request: web.Request) -> web.StreamResponse:
        await self._recorded(request)
        if fault := self._fault(request.path):
            return fault
        if request.headers.get("x-acs-dingtalk-access-token", "") not in self._tokens:
            return _answer(400, {"code": "InvalidAuthentication", "message": "不合法的access_token"})
        lists = {"invalidStaffIdList": [], "flowControlledStaffIdList": [], **self.single_lists}
        return _answer(200, {"processQueryKey": uuid.uuid4().hex, **(lists if request.path == SINGLE else {})})


def _answer(status: int, body: Any) -> web.StreamResponse:
    if isinstance(body, str):
        return web.Response(text=body, status=status, content_type="text/html")
    return web.json_response(body, status=status)
