"""Feishu for the suite: webhook and long connection."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pytest

from channels import calls
from channels.feishu import delivery
from tests.channels.conformance.platform import Payload, Platform, Request, Webhook, ago, flipped
from tests.platforms.feishu_server import FakeFeishu, encrypt, message_event, sign
from tests.platforms.tcp_proxy import TcpProxy
from tests.scenarios.gateway import ENCRYPT_KEY, VERIFICATION_TOKEN, Gateway, feishu_entry, texts

NONCE = "7f3a"


class _Feishu(Platform):
    kind = "feishu"
    secrets = ("app-id", "app-secret")
    part_bytes = 30 << 10
    idempotent = True
    mode = ""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.fake = await stack.enter_async_context(FakeFeishu())
            self.proxy = await stack.enter_async_context(TcpProxy(self.fake.port))
            self.fake.port = self.proxy.port  # where it sends its clients
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def entry(self) -> dict[str, Any]:
        return feishu_entry(self.fake, self.mode)

    def message(self, text: str, number: str, user: str = "u1") -> Payload:
        return message_event(text, message_id=f"om_{number}", open_id=f"ou_{user}", chat_id=f"oc_{user}")

    def events(self) -> Sequence[Payload]:
        reaction, recalled, odd = (self.message("x", f"event{n}") for n in range(3))
        reaction["header"]["event_type"] = "im.message.reaction.created_v1"
        recalled["event"]["message"]["content"] = ""
        odd["event"] = {"message": 7}
        return (reaction, recalled, odd, {"header": reaction["header"]})

    def unreadable(self) -> Sequence[Payload]:
        return (message_event(message_type="hologram", content={"ray": 1}), message_event(content={"text": 7}))

    def own(self) -> Sequence[Payload]:
        return (message_event("我是机器人", sender_type="app"), message_event("我自己", open_id="ou_bot"))

    def answers(self) -> list[str]:
        return texts(self.fake)

    @property
    def tries(self) -> int:
        return sum(call["path"].startswith("/im/v1/messages") for call in self.fake.sent)

    def fail_next(self, how: str) -> None:
        answer = {"limited": (400, 230020), "busy": (500, 1500), "refused": (400, 230002)}[how]
        self.fake.faults.append(("/im/v1/messages", *answer, ""))

    def hurry(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(delivery, "CHAT_RATE", 50.0)

    def impatient(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(calls, "TRY_SECONDS", 0.5)

    def expire_tokens(self) -> None:
        self.fake.revoke_tokens()

    def hang_next(self) -> None:
        self.fake.api_delay = 0.8
        asyncio.get_running_loop().call_later(0.6, setattr, self.fake, "api_delay", 0.0)

    def cut_next(self) -> None:
        self.proxy.cuts = 1


class FeishuWebhook(_Feishu, Webhook):
    name = "feishu-webhook"
    mode = "webhook"
    secrets = (*_Feishu.secrets, "encrypt-key", "verification-token")

    def request(self, payload: Payload, at: float | None = None, key: str = ENCRYPT_KEY) -> Request:
        body = json.dumps({"encrypt": encrypt(key, json.dumps(payload))}).encode()
        return self._signed(body, str(int(ago(0) if at is None else at)))

    @staticmethod
    def _signed(body: bytes, stamp: str, nonce: str = NONCE) -> Request:
        signature = sign(stamp, nonce, ENCRYPT_KEY, body)
        headers = {"X-Lark-Request-Timestamp": stamp, "X-Lark-Request-Nonce": nonce, "X-Lark-Signature": signature}
        return Request("/feishu", body, {"Content-Type": "application/json; charset=utf-8", **headers})

    def forgeries(self) -> Mapping[str, Request]:
        event = self.message("伪造", "forged")
        right = self.request(event)
        stamp, plain = str(int(ago(0))), json.dumps(event).encode()
        challenge = {"type": "url_verification", "token": "wrong", "challenge": "x"}
        return {
            "wrong signature": right.with_headers(X_Lark_Signature="0" * 64),
            "no signature": right.with_headers(X_Lark_Signature=None),
            "empty signature": right.with_headers(X_Lark_Signature=""),
            "signature not ASCII": right.with_headers(X_Lark_Signature="é" * 64),
            "no headers": Request("/feishu", right.body),
            "another key": self.request(event, key="another"),
            "stale": self.request(event, ago(9 * 3600)),
            "from the future": self.request(event, ago(-9 * 3600)),
            "timestamp no number": self._signed(right.body, "x"),
            "plain body": self._signed(plain, stamp),
            "plain body, unsigned": Request("/feishu", plain),
            "one byte changed": Request("/feishu", flipped(right.body), right.headers),
            "digit moved to the timestamp": right.with_headers(
                X_Lark_Request_Timestamp=right.headers["X-Lark-Request-Timestamp"] + NONCE[0],
                X_Lark_Request_Nonce=NONCE[1:],
            ),
            "over the limit": self._signed(b"x" * (70 << 10), stamp),
            "another token": self.request(message_event("伪造", token="another")),
            "another app": self.request(message_event("伪造", app_id="cli_other")),
            "challenge with another token": self.request(challenge),
            "nothing": Request("/feishu", b""),
        }

    def events(self) -> Sequence[Payload]:
        token = {"header": {"token": VERIFICATION_TOKEN, "app_id": self.fake.app_id}}
        return [event for event in super().events() if event["header"].get("token")] + [token]


class FeishuConnection(_Feishu):
    name = "feishu-websocket"
    mode = "websocket"

    async def connected(self) -> None:
        await self.fake.wait_connected()

    async def deliver(self, gateway: Gateway, payload: Payload) -> bool:
        ack = await self.fake.push(payload)
        return ack is not None and ack.code == 200
