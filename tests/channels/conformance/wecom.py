"""WeCom's 智能机器人 for the suite: long connection."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Self

import pytest

from channels.wecom import delivery, exchange
from tests.channels.conformance.platform import Payload, Platform
from tests.platforms.tcp_proxy import TcpProxy
from tests.platforms.wecom_bot import FakeWeComBot, Frame
from tests.scenarios.gateway import Gateway
from tests.waiting import until


def _text(frame: Frame) -> str | None:
    """What people see at last of this frame; None for one that is followed by others, or shows nothing."""
    body = frame.get("body", {})
    if frame["cmd"] == "aibot_send_msg":
        return str(body["markdown"]["content"])
    if frame["cmd"] == "aibot_respond_msg" and body["stream"]["finish"]:
        return str(body["stream"]["content"])
    return None


class WeComConnection(Platform):
    name = "wecom-websocket"
    kind = "wecom-bot"
    secrets = ("bot-id", "secret")
    part_bytes = 20_480
    token_expires = False

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.fake = await stack.enter_async_context(FakeWeComBot())
            self.proxy = await stack.enter_async_context(TcpProxy(self.fake.port))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def entry(self) -> dict[str, Any]:
        address = f"ws://127.0.0.1:{self.proxy.port}"
        return {"enabled": True, "bot-id": self.fake.bot_id, "secret": self.fake.secret, "websocket-url": address}

    async def connected(self) -> None:
        await until(lambda: self.fake.connected, what="subscribed")

    def message(self, text: str, number: str, user: str = "u1") -> Payload:
        return {"text": text, "msgid": f"msg/{number}==", "user": user}

    async def deliver(self, gateway: Gateway, payload: Payload) -> bool:
        if "cmd" in payload:
            await self.fake.push(**payload)
        else:
            await self.fake.says(**payload)
        return True

    def events(self) -> Sequence[Payload]:
        event = {"msgtype": "event", "chattype": "single", "from": {"userid": "u1"}}
        return (
            {"cmd": "aibot_event_callback", "body": {**event, "event": {"eventtype": "feedback_event"}}},
            {"cmd": "aibot_event_callback", "body": {**event, "event": {"eventtype": "hologram_event"}}},
            {"cmd": "aibot_event_callback", "body": {}},
            {"cmd": "aibot_msg_callback", "body": {"msgid": 7, "from": []}},
            {"cmd": "aibot_unknown_callback", "body": {"msgid": "x"}},
        )

    def unreadable(self) -> Sequence[Payload]:
        return (
            {"msgid": "odd1", "user": "u1", "msgtype": "hologram"},
            {"msgid": "odd2", "user": "u1", "msgtype": "image", "image": {"url": "https://h", "aeskey": "k"}},
        )

    def answers(self) -> list[str]:
        return [text for text in map(_text, self.fake.taken) if text is not None]

    @property
    def tries(self) -> int:
        return sum(_text(frame) is not None for frame in self.fake.frames)

    def fail_next(self, how: str) -> None:
        codes = [{"limited": 45009, "busy": -1, "refused": 40058}[how]]
        if how == "refused":
            codes *= 2  # the stream, and the message that is tried instead

        def errcode(frame: Frame) -> int | None:
            return codes.pop() if codes and _text(frame) is not None else None

        self.fake.errcode = errcode

    def hurry(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(delivery, "_REST_SECONDS", 0.2)

    def impatient(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(exchange, "ACK_SECONDS", 0.5)

    def hang_next(self) -> None:
        left = [1]

        def deaf(frame: Frame) -> bool:
            return _text(frame) is not None and bool(left) and bool(left.pop())

        self.fake.deaf = deaf

    def cut_next(self) -> None:
        left = [1]

        def deaf(frame: Frame) -> bool:
            if _text(frame) is None or not left:
                return False
            left.pop()
            self.fake.taken.append(frame)
            self._drop = asyncio.create_task(self.fake.drop(abort=True))
            return True

        self.fake.deaf = deaf
