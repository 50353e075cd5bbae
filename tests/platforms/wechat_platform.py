"""A stand-in for the 公众号 platform: signed deliveries, repeated as it does, and its API on a loopback port of its own.

Its cryptography is its own. Every reply is checked as the platform would: status, form, signature, receiver. Not
modelled: media, menus, other accounts, the two tokens that are good at once.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import os
import struct
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

APP_ID, APP_SECRET, TOKEN, ACCOUNT = "wx1234567890abcdef", "wx-app-secret-canary", "mp-token-canary", "gh_test00000001"
AES_KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
SEND, TYPING, STABLE_TOKEN = "/cgi-bin/message/custom/send", "/cgi-bin/message/custom/typing", "/cgi-bin/stable_token"


def sign(*parts: str) -> str:
    """The signature over these parts."""
    return hashlib.sha1("".join(sorted(parts)).encode()).hexdigest()


def encrypt(text: str | bytes, receiver: str = APP_ID, key: str = AES_KEY) -> str:
    """What stands in `Encrypt`."""
    raw, secret = text.encode() if isinstance(text, str) else text, base64.b64decode(key + "=")
    data = os.urandom(16) + struct.pack("!I", len(raw)) + raw + receiver.encode()
    data += bytes([32 - len(data) % 32]) * (32 - len(data) % 32)
    work = Cipher(algorithms.AES(secret), modes.CBC(secret[:16])).encryptor()
    return base64.b64encode(work.update(data) + work.finalize()).decode()


def decrypt(text: str, key: str = AES_KEY) -> tuple[str, str]:
    """The message in `Encrypt`, and its receiver."""
    secret = base64.b64decode(key + "=")
    work = Cipher(algorithms.AES(secret), modes.CBC(secret[:16])).decryptor()
    data = work.update(base64.b64decode(text)) + work.finalize()
    data = data[16 : -data[-1]]
    end = 4 + struct.unpack("!I", data[:4])[0]
    return data[4:end].decode(), data[end:].decode()


def message_xml(user: str, kind: str = "text", **fields: object) -> str:
    """A message or event as the platform writes it. `Content`, `MsgId`, `Event` … are given by name; None leaves out."""
    given = {"ToUserName": ACCOUNT, "FromUserName": user, "CreateTime": int(time.time()), "MsgType": kind, **fields}
    lines = [
        f"<{name}>{value}</{name}>" if isinstance(value, int) else f"<{name}><![CDATA[{value}]]></{name}>"
        for name, value in given.items()
        if value is not None
    ]
    return f"<xml>{''.join(lines)}</xml>"


def envelope(encrypted: str) -> str:
    """The body of a delivery in safe mode."""
    return f"<xml><ToUserName><![CDATA[{ACCOUNT}]]></ToUserName><Encrypt><![CDATA[{encrypted}]]></Encrypt></xml>"


@dataclass(frozen=True)
class Delivered:
    """One delivery: its HTTP status, the text a person sees, how long it took (s). Status 0: ended without an answer."""

    status: int
    text: str
    took: float
    raw: str = ""

    @property
    def cut(self) -> bool:
        return self.status == 0


@dataclass(frozen=True)
class Call:
    """One call of the API."""

    path: str
    token: str
    body: Mapping[str, Any]
    raw: bytes
    errcode: int

    @property
    def text(self) -> str:
        """What a person sees of a 客服消息."""
        text: str = self.body["text"]["content"]
        return text


class WeChatPlatform:
    """`async with WeChatPlatform(url) as platform:`; `url` may be set later. `patience`: when it hangs up (s); the real one's is 5.

    `errors` are errcodes for the next sends, used up one by one; `right` False: 48001 to each send and typing;
    `limit`: bytes a 客服消息 may have; `tokens_die`: every token is refused; `raw`: answers of the API instead.
    """

    def __init__(self, url: str = "", *, safe: bool = True, patience: float = 50.0) -> None:
        self.url, self.safe, self.patience = url, safe, patience
        self.calls: list[Call] = []
        self.errors: list[int] = []
        self.right, self.limit, self.tokens_die = True, 2048, False
        self.token_error = 0
        self.raw: list[web.Response] = []
        self.delay = 0.0
        self._tokens = 0
        self._ids = itertools.count(7_000_000_000_000_000_001)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._api)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()
        await self._runner.cleanup()

    # ---- deliveries

    def query(self, encrypted: str | None = None, *, stamp: str = "", nonce: str = "1320562132") -> dict[str, str]:
        """The signed parameters of a delivery (with the ciphertext) or of a verification."""
        stamp = stamp or str(int(time.time()))
        given = {"signature": sign(TOKEN, stamp, nonce), "timestamp": stamp, "nonce": nonce}
        if encrypted is not None:
            given |= {"encrypt_type": "aes", "msg_signature": sign(TOKEN, stamp, nonce, encrypted)}
        return given

    async def deliver(self, xml: str | bytes) -> Delivered:
        """One delivery of this message."""
        if not self.safe:
            return await self.post(xml, self.query())
        encrypted = encrypt(xml)
        return await self.post(envelope(encrypted), self.query(encrypted))

    async def post(self, body: str | bytes, query: Any) -> Delivered:
        """One POST with this body and query, exactly."""
        data, began = body.encode() if isinstance(body, str) else body, time.monotonic()
        timeout = aiohttp.ClientTimeout(total=self.patience)
        try:
            async with self._session.post(self.url, params=query, data=data, timeout=timeout) as response:
                raw, status = (await response.read()).decode(), response.status
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientError, TimeoutError):
            return Delivered(0, "", time.monotonic() - began)
        text = self._content(raw) if status == 200 and raw not in ("", "success") else ""
        return Delivered(status, text, time.monotonic() - began, raw)

    def _content(self, raw: str) -> str:
        """The text of a reply, which is as it must be."""
        root = ET.fromstring(raw)
        if self.safe:
            given = {child.tag: child.text or "" for child in root}
            assert set(given) == {"Encrypt", "MsgSignature", "TimeStamp", "Nonce"}, sorted(given)
            signed = sign(TOKEN, given["TimeStamp"], given["Nonce"], given["Encrypt"])
            assert given["MsgSignature"] == signed, "signature of the reply"
            inner, receiver = decrypt(given["Encrypt"])
            assert receiver == APP_ID
            root = ET.fromstring(inner)
        tags = [child.tag for child in root]
        assert tags == ["ToUserName", "FromUserName", "CreateTime", "MsgType", "Content"], tags
        assert root.findtext("FromUserName") == ACCOUNT
        assert root.findtext("MsgType") == "text"
        content = root.findtext("Content") or ""
        assert len(content.encode()) <= 2047, "the platform would drop it"
        return content

    def new_id(self) -> int:
        """A MsgId nobody had."""
        return next(self._ids)

    async def ask(self, user: str, text: str, number: int = 0) -> tuple[str, int]:
        """A person's message, delivered until it is answered, three times at most: what they see, and how often."""
        xml = message_xml(user, Content=text, MsgId=number or self.new_id())
        for count in (1, 2, 3):
            delivered = await self.deliver(xml)
            if not delivered.cut:
                assert delivered.status == 200, "the person sees that the account is out of order"
                return delivered.text, count
        return "", 3

    # ---- API

    @property
    def sent(self) -> list[Call]:
        """The 客服消息 that arrived."""
        return [call for call in self.calls if call.path == SEND and call.errcode == 0]

    def of(self, path: str) -> list[Call]:
        """The calls of one interface."""
        return [call for call in self.calls if call.path == path]

    async def _api(self, request: web.Request) -> web.Response:
        raw = await request.read()
        body, token = json.loads(raw), request.query.get("access_token", "")
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.raw and request.path != STABLE_TOKEN:
            return self.raw.pop(0)
        code = self._errcode(request.path, body, token, raw)
        self.calls.append(Call(request.path, token, body, raw, code))
        if request.path == STABLE_TOKEN and not code:
            self._tokens += 1
            return web.json_response({"access_token": f"access-token-canary-{self._tokens}", "expires_in": 7200})
        return web.json_response({"errcode": code, "errmsg": "ok" if not code else f"error, hints: [{raw[:80]!r}]"})

    def _errcode(self, path: str, body: Mapping[str, Any], token: str, raw: bytes) -> int:
        if path == STABLE_TOKEN:
            good = (body["appid"], body["secret"]) == (APP_ID, APP_SECRET)
            return self.token_error or (0 if good else 40125)
        if self.tokens_die or token != f"access-token-canary-{self._tokens}":
            return 40001
        if not self.right:
            return 48001
        if path == SEND:
            if self.errors:
                return self.errors.pop(0)
            if b"\\u" in raw:
                return 40033
            return 45002 if len(body["text"]["content"].encode()) > self.limit else 0
        return 0
