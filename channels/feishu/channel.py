"""The Feishu channel: one app, its events by long connection or webhook, its answers by the open API."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from channels import markup
from channels.access_token import TokenError
from channels.channel import Accept, EntrySettings, Health, Route, route_path
from channels.feishu.api import ApiError, FeishuApi
from channels.feishu.delivery import Delivery
from channels.feishu.events import Bot, read_event
from channels.feishu.long_connection import LongConnection
from channels.feishu.render import PART_BYTES
from channels.feishu.settings import FeishuSettings
from channels.feishu.webhook import Webhook
from channels.health import Troubles
from channels.json_values import Object, load_object
from channels.message import GatewayClosed, InboundMessage, Part, Progress
from channels.split import split

_log = logging.getLogger("sanqiao.channels.feishu")


class FeishuChannel:
    """One entry of kind ``feishu``."""

    repeatable = True

    def __init__(
        self,
        name: str,
        settings: FeishuSettings,
        accept: Accept,
        *,
        clock: Callable[[], float] = time.time,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._accept = accept
        self._rng = rng
        self._webhook_mode = settings.mode == "webhook"
        self._bot = Bot(
            entry=name, app_id=settings.app_id, account=settings.account, group_policy=settings.group_policy
        )
        self._troubles = Troubles(name, clock)
        self._api = FeishuApi(settings, self._troubles, clock=clock)
        self._delivery = Delivery(self._api, self._troubles, rng=rng)
        self._webhook = Webhook(settings, name, self._take, clock=clock)
        self._connection = LongConnection(self._api, settings, name, self._troubles, self._on_payload, rng=rng)
        self._closed = False

    @property
    def name(self) -> str:
        """The entry's name in the config."""
        return self._name

    def parts(self, text: str, notice: str) -> list[str]:
        """Parts that each fit a post of 30 KB, however much of them has to be escaped."""
        return split(markup.feishu(text), PART_BYTES, notice=notice)

    def routes(self) -> Sequence[Route]:
        """The webhook's route, in webhook mode."""
        if not self._webhook_mode:
            return ()
        path = route_path("feishu", self._name)
        return (Route("POST", path, self._webhook.handle),)

    def apply(self, settings: EntrySettings) -> None:
        """Takes over what may change while running: the group policy. All else needs a restart."""
        self._bot = replace(self._bot, group_policy=settings.group_policy)

    async def run(self) -> None:
        """Learns who the bot is and, in websocket mode, receives until stopped or cancelled."""
        if self._webhook_mode:
            await self._learn_open_id()
            return
        async with asyncio.TaskGroup() as tasks:
            learning = tasks.create_task(self._learn_open_id(), name=f"feishu-open-id-{self._name}")
            await self._connection.run()
            learning.cancel()

    async def send(self, part: Part) -> str:
        """Answers the part's message, in a thread where it came from one. Raises SendError."""
        return await self._delivery.send(part)

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Nothing is shown while an answer is being made."""

    async def stop_receiving(self) -> None:
        """Closes the long connection; the webhook answers 503 from now on."""
        self._closed = True
        await self._connection.stop()

    async def close(self) -> None:
        """Releases the session."""
        self._closed = True
        await self._connection.stop()
        await self._api.close()

    def health(self) -> Health:
        """What is wrong now, with its remedy."""
        return self._troubles.health()

    async def _take(self, envelope: Object) -> None:
        """Stores the envelope's message if it has one for us. Raises GatewayClosed."""
        if self._closed:
            raise GatewayClosed
        message = read_event(envelope, self._bot)
        if message is None:
            return
        admission = await self._accept(message)
        _log.info("feishu_message entry=%s id=%s lane=%s admission=%s", self._name, message.id, message.lane, admission)

    async def _on_payload(self, payload: bytes) -> bool:
        """One event of the long connection: False has the platform deliver it again."""
        envelope = load_object(payload)
        if envelope is None:
            _log.warning("feishu_unreadable_event entry=%s bytes=%d", self._name, len(payload))
            return True
        try:
            await self._take(envelope)
        except GatewayClosed:
            return False
        return True

    async def _learn_open_id(self) -> None:
        """Asks for the bot's own open_id until it is told; the pauses grow from 0.5 s to 60 s."""
        pause = 0.5
        while True:
            try:
                self._bot = replace(self._bot, open_id=await self._api.own_open_id())
            except (ApiError, TokenError) as error:
                _log.warning("feishu_bot_unknown entry=%s reason=%r", self._name, str(error))
                if isinstance(error, ApiError):
                    self._troubles.report("bot", "尚未取得机器人自身的 open_id，正在重试；请确认应用已启用机器人能力")
            else:
                self._troubles.clear("bot")
                return
            await asyncio.sleep(pause * (0.5 + 0.5 * self._rng()))
            pause = min(60.0, pause * 2)
