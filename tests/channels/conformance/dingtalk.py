"""DingTalk for the suite: stream and HTTP."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pytest
from aiohttp import web

from channels.dingtalk import api, delivery
from tests.channels.conformance.platform import Payload, Platform, Request, Webhook, ago
from tests.platforms.dingtalk_gateway import BOT_TOPIC, ROBOT_ID, SINGLE, FakeDingTalk, chat_data, signed_headers
from tests.platforms.tcp_proxy import TcpProxy
from tests.scenarios.gateway import Gateway
from tests.waiting import until

SESSION = "/robot/sendBySession"


class _Seeing(FakeDingTalk):
    """Keeps what people see of the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    async def _session(self, request: web.Request) -> web.StreamResponse:
        answer = await super()._session(request)
        assert isinstance(answer, web.Response)
        if answer.status == 200 and json.loads(answer.text or "{}").get("errcode") == 0:
            self.seen.append((await request.json())["markdown"]["text"])
        return answer

    async def _api(self, request: web.Request) -> web.StreamResponse:
        answer = await super()._api(request)
        if answer.status == 200:
            self.seen.append(json.loads((await request.json())["msgParam"])["text"])
        return answer


class _DingTalk(Platform):
    kind = "dingtalk"
    secrets = ("client-id", "client-secret")
    part_bytes = 15_000
    mode = ""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.fake = await stack.enter_async_context(_Seeing())
            self.proxy = await stack.enter_async_context(TcpProxy(self.fake.port))
            self.fake.port = self.proxy.port  # where it sends its clients
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def entry(self) -> dict[str, Any]:
        credentials = {"client-id": self.fake.client_id, "client-secret": self.fake.client_secret}
        addresses = {"api-base-url": self.proxy.base, "oapi-base-url": self.proxy.base}
        return {"enabled": True, "mode": self.mode, **credentials, **addresses}

    def message(self, text: str | None, number: str, user: str = "u1", **over: Any) -> Payload:
        return chat_data(
            text, base=self.proxy.base, conversation=f"cid{user}==", staff=user, msgId=f"msg{number}", **over
        )

    def by_token(self, text: str, number: str) -> Payload:
        return self.message(text, number, sessionWebhookExpiredTime=int(ago(10) * 1000))

    def events(self) -> Sequence[Payload]:
        return ({}, {"msgtype": "text"}, {"conversationId": 7, "msgId": [], "senderId": None})

    def unreadable(self) -> Sequence[Payload]:
        return (
            self.message(None, "odd1", msgtype="interactiveCard"),
            self.message(None, "odd2", msgtype="text"),
            self.message(None, "odd3", msgtype="picture", content={"downloadCode": "x"}),
        )

    def own(self) -> Sequence[Payload]:
        return (self.message("我自己", "own", senderId=ROBOT_ID, senderStaffId=None),)

    def answers(self) -> list[str]:
        return self.fake.seen

    @property
    def tries(self) -> int:
        return len(self.fake.sent(SESSION)) + len(self.fake.sent(SINGLE))

    def fail_next(self, how: str) -> None:
        answers: dict[str, tuple[int, Any]] = {
            "limited": (200, {"errcode": 130101}),
            "busy": (503, "<html>busy</html>"),
            "refused": (200, {"errcode": 300001}),
        }
        self.fake.faults.setdefault(SESSION, []).append(answers[how])
        if how == "refused":
            self.fake.faults.setdefault(SINGLE, []).append((400, {"code": "resource.not.found"}))

    def hurry(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(delivery, "_WAIT_CHAT", 0.2)

    def impatient(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(api, "ANSWER_SECONDS", 0.5)

    def expire_tokens(self) -> None:
        self.fake.revoke_tokens()

    def hang_next(self) -> None:
        self.fake.delays[SESSION] = 0.8
        asyncio.get_running_loop().call_later(0.6, self.fake.delays.clear)

    def cut_next(self) -> None:
        self.proxy.cuts = 1


class DingTalkHttp(_DingTalk, Webhook):
    name = "dingtalk-http"
    mode = "http"

    def request(self, payload: Payload, at: float | None = None, secret: str = "") -> Request:
        headers = signed_headers(secret or self.fake.client_secret, at)
        return Request("/dingtalk", json.dumps(payload).encode(), headers)

    def forgeries(self) -> Mapping[str, Request]:
        data = self.message("伪造", "forged")
        right = self.request(data)
        return {
            "wrong signature": right.with_headers(sign="A" * 43 + "="),
            "no signature": right.with_headers(sign=None),
            "empty signature": right.with_headers(sign=""),
            "signature not ASCII": right.with_headers(sign="é" * 44),
            "no headers": Request("/dingtalk", right.body),
            "another secret": self.request(data, secret="another"),
            "stale": self.request(data, ago(3700)),
            "from the future": self.request(data, ago(-3700)),
            "no timestamp": right.with_headers(timestamp=None),
            "timestamp no number": right.with_headers(timestamp="x"),
            "another timestamp": right.with_headers(timestamp=str(int(ago(1) * 1000))),
            "over the limit": Request("/dingtalk", b"x" * (70 << 10), right.headers),
        }


class DingTalkStream(_DingTalk):
    name = "dingtalk-stream"
    mode = "stream"

    async def connected(self) -> None:
        await self.fake.wait_connected()

    async def deliver(self, gateway: Gateway, payload: Payload) -> bool:
        known = isinstance(payload, dict) and "headers" in payload
        number = await self.fake.push(payload if known else self.fake.frame("CALLBACK", BOT_TOPIC, payload))
        await until(lambda: self.fake.acks_of(number), what="acknowledgement")
        return bool(self.fake.acks_of(number)[0].body["code"] == 200)

    def events(self) -> Sequence[Payload]:
        return (*super().events(), self.fake.event(), self.fake.frame("CALLBACK", "/v1.0/unknown", {"x": 1}))
