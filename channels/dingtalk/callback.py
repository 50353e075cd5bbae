"""DingTalk's HTTP mode: one POST comes in, is proved authentic, and is answered once its message is stored.

open.dingtalk.com, 机器人接收消息 › 校验. The signature does not cover the body: whoever holds a captured pair of headers
can post for an hour, so the address must be TLS, repeats are told by their message id, and a session webhook is
posted to only on DingTalk's hosts.
"""

import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from channels.json_values import Object, load_object
from channels.message import GatewayClosed
from channels.verify import fresh, same

_log = logging.getLogger("sanqiao.channels.dingtalk")

FRESH_SECONDS = 3600.0

_MILLISECONDS = re.compile(r"[0-9]{4,15}")


def signature(timestamp: str, secret: str) -> str:
    """The `sign` header: base64 of HMAC-SHA256 over timestamp, line feed and secret, with the secret as key."""
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.b64encode(digest.digest()).decode("ascii")


def refusal(timestamp: str, sign: str, secret: str, now: float) -> str:
    """Why these headers are not the platform's, at `now` (unix seconds); "" when they are."""
    if not _MILLISECONDS.fullmatch(timestamp) or not sign:
        return "no signature"
    if not same(sign, signature(timestamp, secret)):
        return "bad signature: client-secret differs from the platform's"
    return "" if fresh(timestamp[:-3], now, FRESH_SECONDS) else "stale timestamp: check this machine's clock"


class Callback:
    """The handler of one entry's route. `take` stores what the message says; it raises GatewayClosed."""

    def __init__(
        self,
        secret: str,
        entry: str,
        take: Callable[[Object], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._entry = entry
        self._take = take
        self._clock = clock

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one POST. No answer tells more than its status."""
        headers = request.headers
        refused = refusal(headers.get("timestamp", ""), headers.get("sign", ""), self._secret, self._clock())
        if refused:
            _log.warning("dingtalk_callback_refused entry=%s reason=%r", self._entry, refused)
            return web.Response(status=403)
        try:
            message = load_object(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        if message is None:
            _log.warning("dingtalk_callback_unreadable entry=%s", self._entry)
            return web.json_response({})
        try:
            await self._take(message)
        except GatewayClosed:
            return web.Response(status=503)
        except Exception:  # border: one HTTP handler; 503 lets the platform deliver again
            _log.exception("dingtalk_callback_failed entry=%s", self._entry)
            return web.Response(status=503)
        return web.json_response({})
