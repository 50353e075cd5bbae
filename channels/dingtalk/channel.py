"""The DingTalk channel: one application's robot, its messages by long connection or HTTP, its answers by webhook or API."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from channels import markup
from channels.channel import Accept, EntrySettings, Health, Route, route_path
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.callback import Callback
from channels.dingtalk.delivery import Delivery
from channels.dingtalk.frame import Frame
from channels.dingtalk.long_connection import LongConnection
from channels.dingtalk.render import PART_BYTES
from channels.dingtalk.robot_message import Robot, read_message
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.json_values import Object
from channels.message import GatewayClosed, InboundMessage, Part, Progress
from channels.split import split

_log = logging.getLogger("sanqiao.channels.dingtalk")


class DingTalkChannel:
    """One entry of kind ``dingtalk``."""

    repeatable = False

    def __init__(
        self,
        name: str,
        settings: DingTalkSettings,
        accept: Accept,
        *,
        clock: Callable[[], float] = time.time,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._accept = accept
        self._http_mode = settings.mode == "http"
        self._robot = Robot(
            entry=name,
            client_id=settings.client_id,
            account=settings.account,
            group_policy=settings.group_policy,
        )
        self._troubles = Troubles(name, clock)
        self._api = DingTalkApi(settings, self._troubles, clock=clock)
        self._delivery = Delivery(self._api, self._troubles, settings.oapi_base_url, clock=clock, rng=rng)
        self._connection = LongConnection(self._api, settings, name, self._troubles, self._on_frame, rng=rng)
        self._callback = Callback(settings.client_secret.get_secret_value(), name, self._take, clock=clock)
        self._closed = False

    @property
    def name(self) -> str:
        """The entry's name in the config."""
        return self._name

    def parts(self, text: str, notice: str) -> list[str]:
        """Parts that each fit a session webhook as well as the robot API."""
        return split(markup.dingtalk(text), PART_BYTES, notice=notice)

    def routes(self) -> Sequence[Route]:
        """The callback's route, in HTTP mode."""
        if not self._http_mode:
            return ()
        path = route_path("dingtalk", self._name)
        return (Route("POST", path, self._callback.handle),)

    def apply(self, settings: EntrySettings) -> None:
        """Takes over what may change while running: the group policy. All else needs a restart."""
        self._robot = replace(self._robot, group_policy=settings.group_policy)

    async def run(self) -> None:
        """In stream mode, receives until stopped or cancelled."""
        if not self._http_mode:
            await self._connection.run()

    async def send(self, part: Part) -> str:
        """Answers the part's message. Raises SendError."""
        return await self._delivery.send(part)

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Nothing is shown while an answer is being made."""

    async def stop_receiving(self) -> None:
        """Closes the long connection; the callback answers 503 from now on."""
        self._closed = True
        await self._connection.stop()

    async def close(self) -> None:
        """Releases the session."""
        await self.stop_receiving()
        await self._api.close()

    def health(self) -> Health:
        """What is wrong now, with its remedy."""
        return self._troubles.health()

    async def _take(self, data: Object, delivery: str = "") -> None:
        """Stores the message in `data` if it is one for us. Raises GatewayClosed."""
        if self._closed:
            raise GatewayClosed
        message = read_message(data, self._robot, delivery)
        if message is None:
            return
        admission = await self._accept(message)
        _log.info("dingtalk_message entry=%s lane=%s admission=%s", self._name, message.lane, admission)

    async def _on_frame(self, frame: Frame) -> bool:
        """One robot message of the long connection: False leaves it unacknowledged."""
        data = frame.message()
        if data is None:
            _log.warning("dingtalk_unreadable_message entry=%s characters=%d", self._name, len(frame.data))
            return True
        try:
            await self._take(data, frame.id)
        except GatewayClosed:
            return False
        return True
