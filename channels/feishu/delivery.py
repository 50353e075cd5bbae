"""One part of an answer goes to Feishu: paced, with an idempotency key, mended by what each error code calls for."""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from channels.access_token import TokenError
from channels.channel import SendError, SendFailed, SendLimited, SendRefused
from channels.feishu.api import ApiError, FeishuApi
from channels.feishu.codes import Remedy
from channels.feishu.origin import Origin
from channels.feishu.render import post_content, text_content
from channels.health import Troubles
from channels.message import Part
from channels.pace import Pace

_log = logging.getLogger("sanqiao.channels.feishu")

SEND_SECONDS = 30.0
"""No send waits for its turn longer than this."""

APP_RATE, APP_BURST = 45.0, 5
CHAT_RATE = 4.0
"""Below the platform's 50 a second per app and 5 a second per chat, which all bots of the chat share."""
APP_PACED_SECONDS = 60.0
"""How long the app's rate is kept to after the platform refused one too many; some tenants may send far more."""

_MOST_TRIES = 12
_MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How the part is tried next."""

    part: Part
    origin: Origin
    post: bool = True
    reply: bool = True
    in_thread: bool = False
    failures: int = 0

    @property
    def uuid(self) -> str:
        """The platform sends one uuid at most once in an hour (at most 50 characters)."""
        return hashlib.sha1(self.part.key.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class Delivery:
    """Sends parts of one app; the waits in between are random but bounded."""

    def __init__(
        self,
        api: FeishuApi,
        troubles: Troubles,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._troubles = troubles
        self._now = now
        self._sleep = sleep
        self._rng = rng
        self._app_pace = Pace(APP_RATE, APP_BURST)
        self._chat_pace = Pace(CHAT_RATE)
        self._app_paced_until = float("-inf")

    async def send(self, part: Part) -> str:
        """Sends one part as an answer to its message; returns the new message's id. Raises SendError."""
        try:
            return await self._deliver(part, self._now() + SEND_SECONDS)
        except SendError as error:
            _log.warning("feishu_not_sent entry=%s part=%d reason=%r", part.message.entry, part.number, str(error))
            raise

    async def _deliver(self, part: Part, deadline: float) -> str:
        origin = Origin.of(part.message)
        attempt = _Attempt(part, origin, in_thread=bool(origin.thread))
        for _ in range(_MOST_TRIES):
            await self._wait_turn(self._chat_pace, attempt.origin.chat, deadline)
            if self._now() < self._app_paced_until:
                await self._wait_turn(self._app_pace, "", deadline)
            try:
                number = await self._post(attempt)
            except TokenError as error:
                raise SendFailed(f"no access token: {error}") from error
            except ApiError as error:
                attempt = await self._mend(attempt, error, deadline)
            else:
                self._troubles.clear("api")
                return number
        raise SendLimited("the platform's limits were hit too often", 1 + self._rng())

    async def _wait_turn(self, pace: Pace, key: str, deadline: float) -> None:
        now = self._now()
        wait = pace.wait(key, now)
        if now + wait >= deadline:
            raise SendLimited("too many messages are waiting", wait)
        if pace.take(key, now):
            await self._sleep(wait)

    async def _post(self, attempt: _Attempt) -> str:
        text = attempt.part.text
        kind, content = ("post", post_content(text)) if attempt.post else ("text", text_content(text))
        if not attempt.reply:
            return await self._api.create(attempt.origin.chat, kind, content, attempt.uuid)
        asked, uuid = attempt.origin.message, attempt.uuid
        return await self._api.reply(asked, kind, content, uuid, in_thread=attempt.in_thread)

    async def _mend(self, attempt: _Attempt, error: ApiError, deadline: float) -> _Attempt:
        """What to try next after this error. Raises SendError where nothing helps."""
        match error.remedy:
            case Remedy.WAIT_APP:
                seconds = error.retry_after or 1 + self._rng()
                self._app_pace.pause("", self._now(), seconds)
                self._app_paced_until = self._now() + seconds + APP_PACED_SECONDS
                if self._now() + seconds >= deadline:
                    raise SendLimited(str(error), seconds) from error
                return attempt
            case Remedy.WAIT_CHAT:
                self._chat_pace.pause(attempt.origin.chat, self._now(), 0.3 + 0.7 * self._rng())
                return attempt
            case Remedy.ASK_AGAIN if attempt.failures + 1 < _MOST_FAILURES:
                await self._sleep(0.3 * 2**attempt.failures * (1 + self._rng()))
                return replace(attempt, failures=attempt.failures + 1)
            case Remedy.ASK_AGAIN | Remedy.NEW_TOKEN:
                raise SendFailed(str(error)) from error
            case Remedy.PLAIN_TEXT if attempt.post:
                return replace(attempt, post=False)
            case Remedy.LEAVE_THREAD if attempt.in_thread:
                return replace(attempt, in_thread=False)
            case Remedy.SEND_TO_CHAT | Remedy.LEAVE_THREAD if attempt.reply:
                return replace(attempt, reply=False)
        raise SendRefused(str(error)) from error
