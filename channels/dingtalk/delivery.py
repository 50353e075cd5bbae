"""One part of an answer goes to DingTalk: paced, by the session webhook while it lasts, else by the robot API."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from yarl import URL

from channels.access_token import TokenError
from channels.channel import SendError, SendFailed, SendLimited, SendRefused, SendUncertain
from channels.dingtalk.api import ANSWER_SECONDS, ApiError, DingTalkApi
from channels.dingtalk.codes import Remedy
from channels.dingtalk.origin import Origin
from channels.dingtalk.render import message_parameters, webhook_body
from channels.dingtalk.session_webhook import session_webhook
from channels.health import Troubles
from channels.message import Part
from channels.pace import Pace

_log = logging.getLogger("sanqiao.channels.dingtalk")

CHAT_RATE, CHAT_BURST = 10 / 60, 10
"""At most 20 in any minute: over it a robot is silenced in that group for ten minutes."""
API_RATE, API_BURST = 14.0, 1
"""At most 15 in any second; the standard edition allows 20 a second per application."""
WEBHOOK_MARGIN = 60.0
"""A session webhook that ends sooner than this, in seconds, is not used any more."""

_BEGUN_AT_ONCE = 4
"""In one turn of the event loop: a thousand answers that are ready together hold up nothing else."""
_LONGEST_TURN = 30.0 - ANSWER_SECONDS
"""A call that is begun is to be ended within the outbox's time: cut off, it may have been sent."""

_WAIT_CHAT, _WAIT_API = 20.0, 2.0


class Delivery:
    """Sends parts of one application."""

    def __init__(
        self,
        api: DingTalkApi,
        troubles: Troubles,
        oapi_base: str,
        *,
        clock: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._troubles = troubles
        self._oapi_base = oapi_base
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._rng = rng
        self._chat_pace = Pace(CHAT_RATE, CHAT_BURST)
        self._api_pace = Pace(API_RATE, API_BURST)
        self._beginning = asyncio.Semaphore(_BEGUN_AT_ONCE)

    async def send(self, part: Part) -> str:
        """Sends one part to where its message came from; the platform's key of it, or "". Raises SendError."""
        try:
            key = await self._deliver(part)
        except TokenError as error:
            raise SendFailed(f"no access token: {error}") from error
        except SendError as error:
            _log.warning("dingtalk_not_sent entry=%s part=%d reason=%r", part.message.entry, part.number, str(error))
            raise
        self._troubles.clear("api")
        return key

    async def _deliver(self, part: Part) -> str:
        origin = Origin.of(part.message)
        await self._wait_turn(self._chat_pace, origin.chat)
        async with self._beginning:
            await asyncio.sleep(0)
        webhook = self._webhook(origin, part.message.entry)
        if webhook is not None:
            try:
                await self._by_webhook(part, origin, webhook)
            except ApiError as error:
                if error.remedy is not Remedy.OTHER_WAY:
                    raise self._send_error(error, _WAIT_CHAT) from error
                _log.info("dingtalk_webhook_refused entry=%s reason=%r", part.message.entry, str(error))
            else:
                return ""
        return await self._by_api(part, origin)

    async def _wait_turn(self, pace: Pace, key: str) -> None:
        now = self._now()
        wait = pace.wait(key, now)
        if wait >= _LONGEST_TURN:
            raise SendLimited("too many messages are waiting", wait)
        if pace.take(key, now):
            await self._sleep(wait)

    def _webhook(self, origin: Origin, entry: str) -> URL | None:
        """The session webhook of a message, if it may and can still be used."""
        if not origin.webhook or origin.webhook_ends / 1000 - self._clock() <= WEBHOOK_MARGIN:
            return None
        webhook = session_webhook(origin.webhook, self._oapi_base)
        if webhook is None:
            _log.warning("dingtalk_webhook_untrusted entry=%s", entry)
        return webhook

    async def _by_webhook(self, part: Part, origin: Origin, webhook: URL) -> None:
        """In a group the first part mentions who asked, so that they are notified."""
        asker = origin.staff if part.message.lane.group and part.number == 0 else ""
        await self._api.post_to_session(webhook, webhook_body(part.text, asker))

    async def _by_api(self, part: Part, origin: Origin) -> str:
        if not part.message.lane.group and not origin.staff:
            raise SendRefused("the session webhook is gone, and the robot API reaches only people with a staff id")
        await self._wait_turn(self._api_pace, "")
        parameters = message_parameters(part.text)
        try:
            if part.message.lane.group:
                return await self._api.send_to_group(origin.robot, origin.chat, parameters)
            return await self._api.send_to_person(origin.robot, origin.staff, parameters)
        except ApiError as error:
            raise self._send_error(error, _WAIT_API) from error

    def _send_error(self, error: ApiError, wait: float) -> SendError:
        match error.remedy:
            case Remedy.WAIT:
                return SendLimited(str(error), wait * (1 + self._rng()))
            case Remedy.UNKNOWN:
                return SendUncertain(str(error))
            case Remedy.ASK_AGAIN | Remedy.NEW_TOKEN:
                return SendFailed(str(error))
        return SendRefused(str(error))
