"""The WeCom channel: one 智能机器人, its messages and its answers over one long connection."""

import contextlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from channels import markup
from channels.channel import Accept, EntrySettings, Health, Route, Texts
from channels.health import Troubles
from channels.message import GatewayClosed, InboundMessage, Part, Progress
from channels.split import split
from channels.wecom.connection import LongConnection
from channels.wecom.delivery import Delivery
from channels.wecom.events import Bot, read_callback
from channels.wecom.exchange import RequestFailed
from channels.wecom.frame import RESPOND, Frame
from channels.wecom.origin import Origin
from channels.wecom.quota import Quota
from channels.wecom.render import PART_BYTES
from channels.wecom.settings import WeComBotSettings
from channels.wecom.streams import Streams

_log = logging.getLogger("sanqiao.channels.wecom")


class WeComBotChannel:
    """One entry of kind ``wecom-bot``, in websocket mode."""

    repeatable = False

    def __init__(
        self,
        name: str,
        settings: WeComBotSettings,
        accept: Accept,
        texts: Texts,
        *,
        clock: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._accept = accept
        self._texts = texts
        self._clock = clock
        run = uuid.uuid4().hex
        self._bot = Bot(
            entry=name,
            account=settings.account,
            user_account=settings.user_account,
            name=settings.bot_name,
            run=run,
            group_policy=settings.group_policy,
        )
        self._troubles = Troubles(name, clock)
        self._connection = LongConnection(settings, name, self._troubles, self._on_callback, rng=rng)
        quota = Quota()
        self._streams = Streams(self._connection, quota, texts, entry=name, run=run, now=now)
        self._delivery = Delivery(self._connection, self._streams, quota, run, clock=clock, now=now, rng=rng)
        self._closed = False

    @property
    def name(self) -> str:
        """The entry's name in the config."""
        return self._name

    def parts(self, text: str, notice: str) -> list[str]:
        """Parts of at most 20,000 bytes: the first ends the stream, the others are messages of their own."""
        return split(markup.wecom(text), PART_BYTES, notice=notice)

    def routes(self) -> Sequence[Route]:
        """None: everything comes over the long connection."""
        return ()

    def apply(self, settings: EntrySettings) -> None:
        """Takes over what may change while running: the group policy. All else needs a restart."""
        self._bot = replace(self._bot, group_policy=settings.group_policy)

    async def run(self) -> None:
        """Receives until closed or cancelled."""
        await self._connection.run()

    async def send(self, part: Part) -> str:
        """Answers the part's message; returns once the platform acknowledged it. Raises SendError."""
        return await self._delivery.send(part)

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Shows the answer while it is being made."""
        self._streams.progress(message, event)

    async def stop_receiving(self) -> None:
        """Takes no more messages. The connection stays: answers go out by it, and who writes now is told to repeat."""
        self._closed = True

    async def close(self) -> None:
        """Ends unfinished streams with a notice, then the connection."""
        self._closed = True
        await self._streams.close()
        await self._connection.stop()

    def health(self) -> Health:
        """What is wrong now, with its remedy."""
        return self._troubles.health()

    async def _on_callback(self, frame: Frame) -> None:
        message = read_callback(frame, self._bot, self._clock())
        if message is None:
            return
        try:
            if self._closed:
                raise GatewayClosed
            admission = await self._accept(message)
        except GatewayClosed:
            await self._not_taken(message)
            return
        _log.info("wecom_message entry=%s id=%r lane=%s admission=%s", self._name, message.id, message.lane, admission)

    async def _not_taken(self, message: InboundMessage) -> None:
        """The platform does not deliver again, so the person is told; not where an answer is being shown already."""
        origin = Origin.of(message)
        _log.warning("wecom_message_lost entry=%s id=%r reason=gateway-closed", self._name, message.id)
        if origin.welcome or not origin.req_id or self._streams.is_answering(message):
            return
        notice = {"id": uuid.uuid4().hex, "finish": True, "content": self._texts("not-taken")}
        with contextlib.suppress(RequestFailed):
            await self._connection.ask(RESPOND, {"msgtype": "stream", "stream": notice}, origin.req_id)
