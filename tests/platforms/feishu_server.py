"""Loopback stand-in for the Feishu open platform.

async with FakeFeishu() as fake:                 # fake.base == "http://127.0.0.1:<port>"
    ...start the channel with domain=fake.base...
    await fake.wait_connected()
    ack = await fake.push(message_event("hello"))          # WS frame out, ack frame back
    assert ack.code == 200
    await fake.post_webhook(url, message_event("hi"), encrypt_key="k")   # signed webhook POST
    assert fake.sent[-1]["body"]["msg_type"] == "text"
"""

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import time
import uuid as uuidlib
from typing import Any

from aiohttp import ClientSession, WSMsgType, web

# ---------------------------------------------------------------- protobuf frame (pbbp2.Frame)
CONTROL, DATA = 0, 1


def _varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _read_varint(buf: bytes, i: int) -> tuple[int, int]:
    n = shift = 0
    while True:
        b = buf[i]
        i += 1
        n |= (b & 0x7F) << shift
        if b < 0x80:
            return n, i
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _fields(buf: bytes):
    i = 0
    while i < len(buf):
        key, i = _read_varint(buf, i)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, i = _read_varint(buf, i)
        elif wire == 2:
            size, i = _read_varint(buf, i)
            if i + size > len(buf):
                raise ValueError("truncated field")
            value, i = buf[i : i + size], i + size
        else:
            raise ValueError(f"unexpected wire type {wire}")
        yield number, value


def _blob(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


@dataclasses.dataclass
class Frame:
    method: int = DATA
    headers: dict = dataclasses.field(default_factory=dict)
    payload: bytes = b""
    service: int = 1
    seq_id: int = 0
    log_id: int = 0
    payload_encoding: str = ""
    payload_type: str = ""
    log_id_new: str = ""

    def encode(self) -> bytes:
        out = b"".join(
            _varint(n << 3) + _varint(v)
            for n, v in ((1, self.seq_id), (2, self.log_id), (3, self.service), (4, self.method))
        )
        for k, v in self.headers.items():
            out += _blob(5, _blob(1, str(k).encode()) + _blob(2, str(v).encode()))
        for n, s in ((6, self.payload_encoding), (7, self.payload_type)):
            if s:
                out += _blob(n, s.encode())
        if self.payload:
            out += _blob(8, self.payload)
        if self.log_id_new:
            out += _blob(9, self.log_id_new.encode())
        return out

    @classmethod
    def decode(cls, buf: bytes) -> "Frame":
        f = cls(method=-1)
        for n, v in _fields(buf):
            if n == 1:
                f.seq_id = v
            elif n == 2:
                f.log_id = v
            elif n == 3:
                f.service = v
            elif n == 4:
                f.method = v
            elif n == 5:
                kv = dict(_fields(v))
                f.headers[kv.get(1, b"").decode()] = kv.get(2, b"").decode()
            elif n == 6:
                f.payload_encoding = v.decode()
            elif n == 7:
                f.payload_type = v.decode()
            elif n == 8:
                f.payload = v
            elif n == 9:
                f.log_id_new = v.decode()
        return f


@dataclasses.dataclass
class Ack:
    code: int
    data: Any  # decoded callback result (card actions), or None
    biz_rt: str | None
    seconds: float  # push -> ack
    frame: Frame


# ---------------------------------------------------------------- crypto of webhook mode
def encrypt(key: str, plain: str, iv: bytes | None = None) -> str:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    iv = iv or os.urandom(16)
    data = plain.encode()
    pad = 16 - len(data) % 16
    enc = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
    return base64.b64encode(iv + enc.update(data + bytes([pad]) * pad) + enc.finalize()).decode()


def sign(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    return hashlib.sha256((timestamp + nonce + encrypt_key).encode() + body).hexdigest()


# ---------------------------------------------------------------- sample events
_n = itertools.count(1)


def message_event(
    text: str = "hello",
    *,
    content: dict | None = None,
    message_type: str = "text",
    chat_type: str = "p2p",
    open_id: str = "ou_test_user_1",
    chat_id: str = "oc_test_chat_1",
    sender_type: str = "user",
    mentions: list | None = None,
    event_id: str = "",
    message_id: str = "",
    token: str = "v-test-token",
    app_id: str = "cli_test",
    **message,
) -> dict:
    i = next(_n)
    now = str(int(time.time() * 1000))
    msg = {
        "message_id": message_id or f"om_test_{i:06d}",
        "create_time": now,
        "update_time": now,
        "chat_id": chat_id,
        "chat_type": chat_type,
        "message_type": message_type,
        "content": json.dumps(content if content is not None else {"text": text}, ensure_ascii=False),
    }
    if mentions:
        msg["mentions"] = mentions
    msg.update(message)
    return {
        "schema": "2.0",
        "header": {
            "event_id": event_id or uuidlib.uuid4().hex,
            "event_type": "im.message.receive_v1",
            "create_time": now,
            "token": token,
            "app_id": app_id,
            "tenant_key": "tenant_test",
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": open_id, "union_id": "on" + open_id[2:], "user_id": None},
                "sender_type": sender_type,
                "tenant_key": "tenant_test",
            },
            "message": msg,
        },
    }


def mention(n: int, open_id: str, name: str, mentioned_type: str = "user") -> dict:
    return {
        "key": f"@_user_{n}",
        "id": {"open_id": open_id, "union_id": "on" + open_id[2:], "user_id": None},
        "name": name,
        "mentioned_type": mentioned_type,
        "tenant_key": "tenant_test",
    }


# ---------------------------------------------------------------- the server
class FakeFeishu:
    """Knobs are plain attributes; change them at any time."""

    def __init__(self, port: int = 0, app_id: str = "cli_test", app_secret: str = "secret_test"):
        self.port, self.app_id, self.app_secret = port, app_id, app_secret
        self.client_config = {"ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": 2}
        self.endpoint_error: tuple[int, int, str] | None = None  # (http status, code, msg)
        self.endpoint_delay = 0.0
        self.handshake_error: dict | None = None  # headers of a refused WS handshake
        self.max_connections = 50
        self.pong = True
        self.pong_config = True
        self.api_delay = 0.0
        self.token_delay = 0.0
        self.token_ttl = 7200
        self.faults: list[tuple[str, int, int, str]] = []  # (path part, http status, code, msg), one shot each
        self.rate_per_chat = 0  # >0: answers 230020 above this many a second
        self.connections: list[web.WebSocketResponse] = []
        self.sent: list[dict] = []  # every open-apis call but token calls
        self.tokens: dict[str, float] = {}
        self.counts = {"endpoint": 0, "token": 0, "ws": 0, "ping": 0, "ack": 0, "stray_ack": 0}
        self.log: list[tuple[float, str]] = []
        self._acks: dict[str, asyncio.Future] = {}
        self._by_uuid: dict[str, dict] = {}
        self._stamps: dict[str, list[float]] = {}
        self._connected = asyncio.Event()
        self._runner: web.AppRunner | None = None

    # ---- life
    async def __aenter__(self):
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/callback/ws/endpoint", self._endpoint)
        app.router.add_get("/ws", self._ws)
        app.router.add_post("/open-apis/auth/v3/tenant_access_token/internal", self._token)
        app.router.add_post("/open-apis/auth/v3/app_access_token/internal", self._token)
        app.router.add_route("*", "/open-apis/{tail:.*}", self._api)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc):
        await self.drop()
        await self._runner.cleanup()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def note(self, what: str) -> None:
        self.log.append((time.monotonic(), what))

    # ---- long connection
    async def _endpoint(self, req: web.Request) -> web.Response:
        self.counts["endpoint"] += 1
        body = await req.json()
        self.note(f"endpoint {sorted(body)}")
        if self.endpoint_delay:
            await asyncio.sleep(self.endpoint_delay)
        if self.endpoint_error:
            status, code, msg = self.endpoint_error
            return web.json_response({"code": code, "msg": msg}, status=status)
        if (body.get("AppID"), body.get("AppSecret")) != (self.app_id, self.app_secret):
            return web.json_response({"code": 1000040345, "msg": "app_id or app_secret is invalid"})
        url = (
            f"ws://127.0.0.1:{self.port}/ws?fpid=493&aid=552564&device_id={7000000 + self.counts['endpoint']}"
            f"&access_key={uuidlib.uuid4().hex}&service_id=33554678&ticket={uuidlib.uuid4()}"
        )
        return web.json_response(
            {"code": 0, "msg": "success", "data": {"URL": url, "ClientConfig": self.client_config}}
        )

    async def _ws(self, req: web.Request) -> web.StreamResponse:
        refuse = self.handshake_error
        if not refuse and len(self.connections) >= self.max_connections:
            refuse = {
                "Handshake-Status": "514",
                "Handshake-Msg": "exceed conn limit",
                "Handshake-Autherrcode": "1000040350",
            }
        if refuse:
            return web.Response(status=400, headers=refuse)
        ws = web.WebSocketResponse(max_msg_size=0)
        await ws.prepare(req)
        self.counts["ws"] += 1
        self.connections.append(ws)
        self._connected.set()
        self.note("ws open")
        try:
            async for m in ws:
                if m.type is WSMsgType.BINARY:
                    await self._on_frame(ws, Frame.decode(m.data))
        finally:
            self.connections.remove(ws)
            if not self.connections:
                self._connected.clear()
            self.note(f"ws closed code={ws.close_code}")
        return ws

    async def _on_frame(self, ws, f: Frame) -> None:
        if f.method == CONTROL:
            if f.headers.get("type") == "ping":
                self.counts["ping"] += 1
                if self.pong:
                    cfg = json.dumps(self.client_config).encode() if self.pong_config else b""
                    if not ws.closed:
                        with contextlib.suppress(ConnectionError):
                            await ws.send_bytes(Frame(CONTROL, {"type": "pong"}, cfg, f.service).encode())
            return
        fut = self._acks.pop(f.headers.get("message_id", ""), None)
        self.counts["ack" if fut else "stray_ack"] += 1
        self.note(f"ack {f.headers.get('message_id')} {f.payload[:80]!r}")
        if fut and not fut.done():
            fut.set_result(f)

    async def wait_connected(self, timeout: float = 40) -> None:
        await asyncio.wait_for(self._connected.wait(), timeout)

    async def drop(self, code: int = 1000, abort: bool = False) -> None:
        for ws in list(self.connections):
            if abort:
                ws._req.transport.abort()
            else:
                await ws.close(code=code)

    async def send_raw(self, data: bytes, conn: int = 0) -> None:
        await self.connections[conn].send_bytes(data)

    async def push(
        self,
        event: dict | bytes,
        *,
        type_: str = "event",
        chunks: int = 1,
        order=None,
        gap: float = 0,
        message_id: str = "",
        timeout: float = 30.0,
        conn: int = 0,
        skip_headers=(),
    ) -> Ack | None:
        """Send one event; None when no ack came within `timeout` (the platform would redeliver)."""
        data = event if isinstance(event, bytes) else json.dumps(event, ensure_ascii=False).encode()
        mid = message_id or uuidlib.uuid4().hex
        size = -(-len(data) // chunks) or 1
        fut = self._acks[mid] = asyncio.get_running_loop().create_future()
        t0 = time.monotonic()
        for seq in order or range(chunks):
            head = {
                "type": type_,
                "message_id": mid,
                "trace_id": uuidlib.uuid4().hex,
                "sum": chunks,
                "seq": seq,
                "timestamp": int(time.time() * 1000),
            }
            f = Frame(
                DATA,
                {k: v for k, v in head.items() if k not in skip_headers},
                data[seq * size : (seq + 1) * size],
                33554678,
                next(_n),
                0,
                log_id_new=mid,
            )
            await self.connections[conn].send_bytes(f.encode())
            if gap:
                await asyncio.sleep(gap)
        try:
            f = await asyncio.wait_for(fut, timeout)
        except TimeoutError:
            self._acks.pop(mid, None)
            return None
        body = json.loads(f.payload)
        result = body.get("data")
        if result:
            result = json.loads(base64.b64decode(result))
        return Ack(body.get("code"), result, f.headers.get("biz_rt"), time.monotonic() - t0, f)

    async def push_until_acked(self, event: dict, delays=(15, 300, 3600, 21600), **kw) -> list[Ack | None]:
        """As the platform does: again after each delay until an ack with code 200 (scale delays in tests)."""
        out = []
        for delay in (*delays, None):
            out.append(await self.push(event, **kw))
            if (out[-1] and out[-1].code == 200) or delay is None:
                return out
            await asyncio.sleep(delay)
        return None

    # ---- webhook mode
    async def post_webhook(
        self,
        url: str,
        event: dict,
        *,
        encrypt_key: str = "",
        timestamp: str = "",
        nonce: str = "",
        signature: str = "",
        headers: dict | None = None,
        body: bytes | None = None,
    ):
        """POST one event; returns (status, text, seconds)."""
        plain = json.dumps(event, ensure_ascii=False)
        if body is None:
            body = json.dumps({"encrypt": encrypt(encrypt_key, plain)}).encode() if encrypt_key else plain.encode()
        ts, no = timestamp or str(int(time.time())), nonce or uuidlib.uuid4().hex[:16]
        h = {
            "Content-Type": "application/json; charset=utf-8",
            "X-Lark-Request-Timestamp": ts,
            "X-Lark-Request-Nonce": no,
            "X-Lark-Signature": signature or sign(ts, no, encrypt_key, body),
        }
        h.update(headers or {})
        t0 = time.monotonic()
        async with ClientSession() as s, s.post(url, data=body, headers=h) as r:
            return r.status, await r.text(), time.monotonic() - t0

    # ---- open-apis
    async def _token(self, req: web.Request) -> web.Response:
        self.counts["token"] += 1
        body = await req.json()
        if self.token_delay:
            await asyncio.sleep(self.token_delay)
        if body.get("app_id") != self.app_id:
            return web.json_response({"code": 10003, "msg": "invalid param"})
        if body.get("app_secret") != self.app_secret:
            return web.json_response({"code": 10014, "msg": "app secret invalid"})
        tok = f"t-{uuidlib.uuid4().hex}"
        self.tokens[tok] = time.time() + self.token_ttl
        return web.json_response(
            {"code": 0, "msg": "ok", "tenant_access_token": tok, "app_access_token": tok, "expire": self.token_ttl}
        )

    def revoke_tokens(self) -> None:
        self.tokens.clear()

    async def _api(self, req: web.Request) -> web.Response:
        path = req.path[len("/open-apis") :]
        raw = await req.read()
        body = json.loads(raw) if raw else {}
        call = {"t": time.monotonic(), "method": req.method, "path": path, "query": dict(req.query), "body": body}
        self.sent.append(call)
        if self.api_delay:
            await asyncio.sleep(self.api_delay)
        status, code, data = self._judge(req.headers.get("Authorization", "").removeprefix("Bearer "), path)
        if code == 0:
            status, code, data = self._answer(req.method, path, body)
        call["answer"] = code
        headers = {"x-ogw-ratelimit-reset": "1"} if status == 429 else None
        answer = {"code": code, "msg": "success" if code == 0 else f"refused {body}"}
        return web.json_response(answer | data, status=status, headers=headers)

    def _judge(self, token: str, path: str) -> tuple[int, int, dict]:
        if not token:
            return 400, 99991661, {}
        if self.tokens.get(token, 0) < time.time():
            return 400, 99991663, {}
        for i, (part, status, code, _) in enumerate(self.faults):
            if part in path:
                del self.faults[i]
                return status, code, {}
        return 200, 0, {}

    def _answer(self, method: str, path: str, body: dict) -> tuple[int, int, dict]:
        parts = path.strip("/").split("/")
        if method == "POST" and parts[:3] == ["im", "v1", "messages"] and parts[4:] in ([], ["reply"]):
            return self._message(parts[3] if parts[4:] else "", body)
        if path == "/bot/v3/info":
            return 200, 0, {"bot": {"activate_status": 2, "app_name": "fake bot", "open_id": "ou_bot"}}
        return 404, 99991000 + 404, {}

    def _message(self, asked: str, body: dict) -> tuple[int, int, dict]:
        """Sends to a chat, or answers the message `asked`; each uuid once, within the documented sizes and rates."""
        uuid = body.get("uuid", "")
        if len(uuid) > 50:
            return 400, 99992402, {}
        if uuid and uuid in self._by_uuid:
            return 200, 0, {"data": self._by_uuid[uuid]}
        limit = {"text": 150 << 10, "interactive": 30 << 10, "post": 30 << 10}.get(body.get("msg_type"), 0)
        if len(json.dumps(body).encode()) > limit:
            return 400, 230025, {}
        try:
            json.loads(body.get("content", ""))
        except ValueError:
            return 400, 230001, {}
        if self.rate_per_chat and not self._within_rate(asked or body["receive_id"]):
            return 400, 230020, {}
        data = {
            "message_id": f"om_bot_{next(_n):06d}",
            "msg_type": body["msg_type"],
            "body": {"content": body["content"]},
        }
        if asked:
            data |= {"root_id": asked, "parent_id": asked}
        if uuid:
            self._by_uuid[uuid] = data
        return 200, 0, {"data": data}

    def _within_rate(self, chat: str) -> bool:
        now = time.monotonic()
        live = self._stamps[chat] = [t for t in self._stamps.get(chat, []) if now - t < 1]
        if len(live) >= self.rate_per_chat:
            return False
        live.append(now)
        return True
