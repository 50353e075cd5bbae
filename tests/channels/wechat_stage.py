"""Stands in for the gateway behind a 公众号 channel: takes messages, answers them when told, keeps a shelf."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from pydantic import SecretStr

from channels.channel import SendDeferred, ShelvedPart
from channels.message import Admission, InboundMessage, Joined, Part, Routed, Silent
from channels.wechat.channel import WeChatChannel
from channels.wechat.passive import Times
from channels.wechat.settings import WeChatSettings
from gateway.config.texts import Texts
from gateway.server import Listener, build_public
from memory.conversation import LaneKey
from tests.platforms.wechat_platform import AES_KEY, APP_ID, APP_SECRET, TOKEN, WeChatPlatform
from tests.waiting import until

MORE, LATER = Texts().get("more"), Texts().get("later")


@dataclass
class Patience:
    """Stands in for `Times`: nothing is late, however busy the machine is, but where a test wants it."""

    hold: float = 30.0
    join: float = 30.0
    look: float = 0.01

    @contextlib.contextmanager
    def short(self, seconds: float = 0.05) -> Iterator[None]:
        """Whatever is delivered meanwhile is held so long only; what is answered meanwhile may be in time or late."""
        self.hold = self.join = seconds
        yield
        self.hold, self.join = Patience.hold, Patience.join


def settings(**over: Any) -> WeChatSettings:
    """The entry of a complete account."""
    given: dict[str, Any] = {
        "enabled": True,
        "kind": "wechat",
        "app_id": APP_ID,
        "app_secret": SecretStr(APP_SECRET),
        "token": SecretStr(TOKEN),
        "encoding_aes_key": SecretStr(AES_KEY),
        "active_send": "off",
    }
    return WeChatSettings(**given | over)


@dataclass
class Stage:
    """`channel` is set by `staged`. `shelving`: a part is on its way to the shelf until it is set."""

    messages: list[InboundMessage] = field(default_factory=list)
    shelf: list[tuple[LaneKey, ShelvedPart]] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    react: Callable[[InboundMessage], Any] | None = None
    error: Exception | None = None
    shelf_error: Exception | None = None
    shelving: asyncio.Event | None = None
    times: Patience = field(default_factory=Patience)
    duplicates: int = 0
    channel: WeChatChannel = field(init=False)
    _work: set["asyncio.Task[Any]"] = field(default_factory=set)
    _turns: int = 0

    # ---- what the channel is given

    async def accept(self, message: InboundMessage) -> Admission:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0)
        if message.id in self.before or any(each.id == message.id for each in self.messages):
            self.duplicates += 1
            return Admission.DUPLICATE
        self.messages.append(message)
        if self.react is not None:
            self.spawn(self.react(message))
        return Admission.ACCEPTED

    async def waiting(self, lane: LaneKey) -> list[ShelvedPart]:
        if self.shelf_error is not None:
            raise self.shelf_error
        await asyncio.sleep(0)
        return [part for key, part in self.shelf if key == lane]

    async def fetched(self, part: ShelvedPart) -> None:
        await asyncio.sleep(0)
        self.shelf = [(key, each) for key, each in self.shelf if each != part]

    async def answered(self, message: InboundMessage) -> str | None:
        return self.before.get(message.id)

    # ---- what the gateway would do

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def message(self, text: str) -> InboundMessage:
        """The accepted message with this text."""
        return next(each for each in self.messages if each.text == text)

    async def taken(self, text: str) -> InboundMessage:
        """The message with this text, once it is accepted."""
        await until(lambda: any(each.text == text for each in self.messages), what=text)
        return self.message(text)

    async def held(self, deliveries: int = 1) -> None:
        """Returns once so many deliveries are held."""
        await until(lambda: self.channel._passive._held == deliveries, what="held")

    async def answer(self, message: InboundMessage, text: str) -> list[str]:
        """Answers as the outbox does: part by part, the rest to the shelf. What became of the parts."""
        self._turns += 1
        turn, parts, fate = self._turns, self.channel.parts(text, "…"), []
        for number, piece in enumerate(parts):
            part = Part(message=message, text=piece, number=number, total=len(parts), key=f"{message.id}:{number}")
            try:
                await self.channel.send(part)
            except SendDeferred:
                if self.shelving is not None:
                    await self.shelving.wait()
                for rest in range(number, len(parts)):
                    shelved = ShelvedPart(turn, rest, len(parts), parts[rest], message.id)
                    self.shelf.append((message.lane, shelved))
                    fate.append("shelved")
                break
            fate.append("sent")
        return fate

    async def reply_with(self, message: InboundMessage, text: str, after: float = 0.0) -> None:
        """A whole turn: begins, takes a while, is answered."""
        self.channel.progress(message, Routed("general-agent", "default"))
        await asyncio.sleep(after)
        await self.answer(message, text)

    def joined(self, older: InboundMessage, newer: InboundMessage) -> None:
        self.channel.progress(older, Joined(newer.id))

    def silent(self, message: InboundMessage) -> None:
        self.channel.progress(message, Silent())

    async def end(self) -> None:
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


@contextlib.asynccontextmanager
async def staged(platform: WeChatPlatform, stage: Stage, **over: Any) -> AsyncIterator[Stage]:
    """The channel behind the real public listener, with `stage` behind it and `platform` before it."""
    own = {"api_base_url": platform.base, "mode": "safe" if platform.safe else "plain", **over}
    entry = settings(**own)
    stage.channel = WeChatChannel("wechat", entry, stage.accept, stage, Texts().get, times=cast(Times, stage.times))
    app: web.Application = build_public(stage.channel.routes(), lambda: (200, "ok"), 1 << 20)
    listener = Listener(app, "127.0.0.1", 0, grace=0.1)
    await listener.start()
    platform.url = f"http://127.0.0.1:{listener.port}/wechat"
    run = asyncio.create_task(stage.channel.run())
    try:
        yield stage
    finally:
        await stage.channel.stop_receiving()
        await stage.channel.close()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await stage.end()
        await listener.stop()
