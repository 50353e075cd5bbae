"""The 公众号 channel: one account, its messages by callback, its answers as replies or by 客服消息."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

from channels.access_token import TokenError
from channels.channel import Accept, EntrySettings, Health, Route, SendDeferred, Shelf, Texts, route_path
from channels.health import Troubles
from channels.message import GatewayClosed, InboundMessage, Part, Progress, Routed
from channels.wechat.active import Active
from channels.wechat.api import ApiError, WeChatApi
from channels.wechat.envelope import Envelope
from channels.wechat.events import Account
from channels.wechat.passive import Passive, Times, Write
from channels.wechat.reply import ACTIVE_BYTES, PASSIVE_BYTES
from channels.wechat.settings import WeChatSettings
from channels.wechat.webhook import Webhook

_log = logging.getLogger("sanqiao.channels.wechat")

_TYPING_AT_ONCE = 4
_MOST_TYPING = 100


class WeChatChannel:
    """One entry of kind ``wechat``. `times` are how long deliveries are held; `now` counts seconds."""

    repeatable = False

    def __init__(
        self,
        name: str,
        settings: WeChatSettings,
        accept: Accept,
        shelf: Shelf,
        texts: Texts,
        *,
        clock: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
        times: Times | None = None,
    ) -> None:
        self._name = name
        self._troubles = Troubles(name, clock)
        self._api = WeChatApi(settings, self._troubles, clock=clock)
        self._active = Active(self._api, self._troubles, texts, settings.active_send, now=now, rng=rng)
        self._passive = Passive(accept, shelf, texts, now=now, times=times)
        self._webhook = Webhook(Envelope(settings, clock), Account(name, settings.account), self._contact)
        self._typing: asyncio.Queue[str] = asyncio.Queue(_MOST_TYPING)
        self._closed = False
        if settings.mode == "plain":
            _log.warning("wechat_plain_mode entry=%s: bodies are not authenticated, safe mode is better", name)

    @property
    def name(self) -> str:
        """The entry's name in the config."""
        return self._name

    def parts(self, text: str, notice: str) -> list[str]:
        """Plain texts that each fit one reply, or one 客服消息."""
        return self._passive.parts(text, notice, ACTIVE_BYTES if self._active.on else PASSIVE_BYTES)

    def routes(self) -> Sequence[Route]:
        """The callback's route."""
        path = route_path("wechat", self._name)
        return (Route("GET", path, self._webhook.verify), Route("POST", path, self._webhook.push))

    def apply(self, settings: EntrySettings) -> None:
        """Nothing changes while running: there are no groups."""

    async def run(self) -> None:
        """Shows people that their answer is being written, where the account may."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_TYPING_AT_ONCE):
                tasks.create_task(self._show_typing(), name=f"wechat-typing-{self._name}")

    async def send(self, part: Part) -> str:
        """Gives a part to an open delivery or sends it as 客服消息. Raises SendError."""
        if not self._active.on:
            await self._passive.send(part)
            return ""
        try:
            await self._active.send(part)
        except SendDeferred:
            self._passive.defer(part.message)
            raise
        self._passive.sent(part)
        return ""

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """The turn begins: the person sees that; a turn ends without an answer: its deliveries end."""
        if not self._active.on:
            self._passive.progress(message, event)
        elif isinstance(event, Routed) and not self._typing.full():
            self._typing.put_nowait(message.platform_user)

    def forget(self, user: str) -> None:
        """Drops the replies that are remembered for the person with this id."""
        self._passive.forget(user)

    async def stop_receiving(self) -> None:
        """Deliveries are cut off from now on; those that are held may still get their answer."""
        self._closed = True

    async def close(self) -> None:
        """Lets go of what is held, releases the session."""
        self._closed = True
        self._passive.close()
        await self._api.close()

    def health(self) -> Health:
        """What is wrong now, with its remedy."""
        return self._troubles.health()

    async def _contact(self, message: InboundMessage, write: Write) -> bool:
        if self._closed:
            raise GatewayClosed
        self._active.heard(message)
        return await self._passive.contact(message, write, hold=not self._active.on)

    async def _show_typing(self) -> None:
        while True:
            user = await self._typing.get()
            try:
                await self._api.typing(user)
            except (ApiError, TokenError) as error:  # a courtesy: nothing depends on it
                _log.info("wechat_typing_failed entry=%s reason=%s", self._name, error)
