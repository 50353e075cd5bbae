"""Stands in for the gateway: keeps what a channel hands over."""

import asyncio

from channels.feishu.channel import FeishuChannel
from channels.feishu.settings import FeishuSettings
from channels.message import Admission, GatewayClosed, InboundMessage, Part
from tests.platforms.feishu_server import FakeFeishu

KEY, TOKEN = "feishu-encrypt-key", "v-test-token"


class Recorder:
    """Accepts like the gateway: one message after another, duplicates told, closed on demand, slow on demand, held by a gate."""

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []
        self.duplicates = 0
        self.asked = 0
        self.closed = False
        self.error: Exception | None = None
        self.delay = 0.0
        self.gate: asyncio.Event | None = None
        self._seen: set[tuple[str, str]] = set()

    async def accept(self, message: InboundMessage) -> Admission:
        self.asked += 1
        if self.closed:
            raise GatewayClosed
        if self.error:
            raise self.error
        await asyncio.sleep(self.delay)
        if self.gate is not None:
            await self.gate.wait()
        if (message.account, message.id) in self._seen:
            self.duplicates += 1
            return Admission.DUPLICATE
        self._seen.add((message.account, message.id))
        self.messages.append(message)
        return Admission.ACCEPTED

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]


def settings(fake: FakeFeishu, mode: str = "websocket", **more: object) -> FeishuSettings:
    return FeishuSettings.model_validate(
        {
            "enabled": True,
            "mode": mode,
            "app-id": fake.app_id,
            "app-secret": fake.app_secret,
            "encrypt-key": KEY,
            "verification-token": TOKEN,
            "api-base-url": fake.base,
            **more,
        }
    )


def channel(fake: FakeFeishu, recorder: Recorder, mode: str = "websocket", **more: object) -> FeishuChannel:
    return FeishuChannel("feishu", settings(fake, mode, **more), recorder.accept)


def part(message: InboundMessage, text: str, number: int = 0, total: int = 1, key: str = "") -> Part:
    return Part(message=message, text=text, number=number, total=total, key=key or f"{message.id}:{number}")
