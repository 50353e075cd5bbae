"""Answers by 客服消息: within the quota, mended by what each error code calls for, else left for the next contact."""

import logging
import random
import time
from collections.abc import Callable

from channels.access_token import TokenError
from channels.channel import SendDeferred, SendError, SendFailed, SendLimited, SendRefused, SendUncertain, Texts
from channels.health import Troubles
from channels.message import InboundMessage, Part
from channels.split import split
from channels.wechat.api import ApiError, WeChatApi
from channels.wechat.codes import Remedy
from channels.wechat.quota import Quota
from channels.wechat.reply import ACTIVE_BYTES, with_hint

_log = logging.getLogger("sanqiao.channels.wechat")

_LIMITED_SECONDS = 60.0
_SHORTEST = 200


class Active:
    """Sends parts of one account. `mode` is `active-send` of the config. A part is posted once: who calls tries again."""

    def __init__(
        self,
        api: WeChatApi,
        troubles: Troubles,
        texts: Texts,
        mode: str,
        *,
        now: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._troubles = troubles
        self._texts = texts
        self._mode = mode
        self._now = now
        self._rng = rng
        self._quota = Quota()
        self._has_right = True

    @property
    def on(self) -> bool:
        """Whether answers go this way: until the platform says, in mode `auto`, that the account has no right to."""
        return self._mode == "on" or (self._mode == "auto" and self._has_right)

    def heard(self, message: InboundMessage) -> None:
        """A person's message arrived: it allows further sends."""
        self._quota.heard(message.platform_user, self._now(), event="event" in message.reply)

    async def send(self, part: Part) -> None:
        """Sends one part. Raises SendError; SendDeferred where only the next contact helps."""
        try:
            await self._send(part.message.platform_user, part.text, part.number + 1 < part.total)
        except SendDeferred:
            raise
        except SendError as error:
            _log.warning("wechat_not_sent entry=%s part=%d reason=%r", part.message.entry, part.number, str(error))
            raise
        self._troubles.clear("api")

    async def _send(self, user: str, text: str, more: bool) -> None:
        """Sends a text; of one that is too long for the platform, its halves one after the other."""
        if not self._quota.take(user, self._now()):
            raise SendDeferred("the quota of this message is used up")
        last = more and self._quota.left(user, self._now()) == 0
        try:
            await self._api.send_text(user, with_hint(text, "more" if last else "", self._texts, ACTIVE_BYTES))
        except TokenError as error:
            raise SendFailed(f"no access token: {error}") from error
        except ApiError as error:
            size = len(text.encode())
            if error.remedy is not Remedy.SHORTEN or size < _SHORTEST:
                raise self._refusal(user, error) from error
            halves = split(text, max(size // 2 + 8, _SHORTEST // 2))
        else:
            return
        for number, half in enumerate(halves):
            try:
                await self._send(user, half, more or number + 1 < len(halves))
            except SendFailed as error:
                if number == 0:
                    raise
                raise SendUncertain(f"half of it was sent: {error}") from error

    def _refusal(self, user: str, error: ApiError) -> SendError:
        """What a failed call means for the part."""
        match error.remedy:
            case Remedy.NO_RIGHT:
                self._lost_right()
                return SendDeferred("the account may not send by itself")
            case Remedy.NEXT_CONTACT:
                self._quota.spent(user, self._now())
                return SendDeferred(f"the platform takes no more until the next contact: {error}")
            case Remedy.WAIT:
                return SendLimited(str(error), _LIMITED_SECONDS * (0.5 + self._rng()))
            case Remedy.UNKNOWN:
                return SendUncertain(str(error))
            case Remedy.ASK_AGAIN | Remedy.NEW_TOKEN:
                return SendFailed(str(error))
        return SendRefused(str(error))

    def _lost_right(self) -> None:
        if self._has_right:
            _log.warning("wechat_no_active_send mode=%s errcode=48001", self._mode)
        self._has_right = False
        if self._mode == "on":
            remedy = "公众号没有客服消息的权限（错误码 48001），请认证账号，或把 active-send 改为 off"
            self._troubles.report("api", remedy)
