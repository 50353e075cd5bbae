"""A WeCom channel on the stand-in platform, with a recorder in place of the gateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from channels.message import Admission, GatewayClosed, InboundMessage, Part
from channels.wecom.channel import WeComBotChannel
from channels.wecom.settings import WeComBotSettings
from gateway.config.texts import Texts
from tests.platforms.wecom_bot import FakeWeComBot
from tests.waiting import until


class Recorder:
    """Accepts like the gateway: duplicates told, closed on demand."""

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []
        self.duplicates = 0
        self.asked = 0
        self.closed = False
        self.error: Exception | None = None
        self._seen: set[tuple[str, str]] = set()

    async def accept(self, message: InboundMessage) -> Admission:
        self.asked += 1
        if self.closed:
            raise GatewayClosed
        if self.error:
            raise self.error
        if (message.account, message.id) in self._seen:
            self.duplicates += 1
            return Admission.DUPLICATE
        self._seen.add((message.account, message.id))
        self.messages.append(message)
        return Admission.ACCEPTED

    async def next(self, count: int = 1) -> InboundMessage:
        """The newest message, once there are `count`."""
        await until(lambda: len(self.messages) >= count, what=f"{count} messages")
        return self.messages[-1]


def settings(fake: FakeWeComBot, **more: object) -> WeComBotSettings:
    keys = {"enabled": True, "bot-id": fake.bot_id, "secret": fake.secret, "websocket-url": fake.url, **more}
    return WeComBotSettings.model_validate(keys)


@contextlib.asynccontextmanager
async def running(
    fake: FakeWeComBot,
    recorder: Recorder,
    clock: Callable[[], float] | None = None,
    texts: Callable[[str], str] | None = None,
    **more: object,
) -> AsyncIterator[WeComBotChannel]:
    """The channel, connecting; closed at the end."""
    extra = {"clock": clock, "now": clock} if clock else {}
    channel = WeComBotChannel(
        "wecom-bot", settings(fake, **more), recorder.accept, texts or Texts().get, rng=lambda: 0.0, **extra
    )
    task = asyncio.create_task(channel.run())
    try:
        yield channel
    finally:
        await channel.stop_receiving()
        await channel.close()
        await asyncio.wait_for(task, 30)


def part(message: InboundMessage, text: str, number: int = 0, total: int = 1) -> Part:
    return Part(message=message, text=text, number=number, total=total, key=f"{message.id}:{number}")
