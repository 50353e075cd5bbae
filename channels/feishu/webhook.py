"""Feishu's webhook: one POST comes in, is proved authentic, and is answered once its message is stored.

open.feishu.cn, 事件订阅 › 将事件发送至开发者服务器. An exact repeat is handed on like any delivery: the inbox knows
its message id, and the platform must hear 200 again.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from channels.feishu.settings import FeishuSettings
from channels.json_values import Object, load_object, object_at, text_at
from channels.message import GatewayClosed
from channels.verify import Undecryptable, feishu_decrypt, feishu_signature, fresh, same

_log = logging.getLogger("sanqiao.channels.feishu")

FRESH_SECONDS = 8 * 3600.0
"""Deliveries are repeated for 7.1 h, and whether a repeat is signed anew is not documented."""


class _Refused(Exception):
    """The request is not authentic, or no request of the platform's at all."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Webhook:
    """The handler of one entry's route. `take` stores what the envelope says; it raises GatewayClosed."""

    def __init__(
        self,
        settings: FeishuSettings,
        entry: str,
        take: Callable[[Object], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._entry = entry
        self._take = take
        self._clock = clock

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one POST. No answer tells more than its status."""
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        try:
            envelope, signed = self._open(request, body)
            if text_at(envelope, "type") == "url_verification":
                return web.json_response({"challenge": text_at(envelope, "challenge")})
            self._admit_event(envelope, signed)
            await self._take(envelope)
        except _Refused as refused:
            _log.warning("feishu_webhook_refused entry=%s status=%d reason=%s", self._entry, refused.status, refused)
            return web.Response(status=refused.status)
        except GatewayClosed:
            return web.Response(status=503)
        except Exception:  # border: one HTTP handler; 503 has the platform deliver again
            _log.exception("feishu_webhook_failed entry=%s", self._entry)
            return web.Response(status=503)
        return web.json_response({})

    def _open(self, request: web.Request, body: bytes) -> tuple[Object, bool]:
        """The decrypted envelope and whether the request was signed; challenges need not be. Raises _Refused."""
        key = self._settings.encrypt_key.get_secret_value()
        if not key:
            raise _Refused(403, "encrypt-key is not set")
        signed = self._signed(request, key, body)
        encrypted = text_at(load_object(body) or {}, "encrypt")
        if not encrypted:
            raise _Refused(400, "body is not encrypted: set the same Encrypt Key on both sides")
        try:
            envelope = load_object(feishu_decrypt(key, encrypted))
        except Undecryptable:
            envelope = None
        if envelope is None:
            raise _Refused(403, "body cannot be decrypted: encrypt-key differs from the platform's")
        token = text_at(object_at(envelope, "header"), "token") or text_at(envelope, "token")
        if not same(token, self._settings.verification_token.get_secret_value()):
            raise _Refused(403, "verification-token differs from the platform's")
        return envelope, signed

    def _signed(self, request: web.Request, key: str, body: bytes) -> bool:
        """Whether there is a good signature; False when the headers are missing. Raises _Refused for a bad one."""
        names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
        timestamp, nonce, signature = (request.headers.get(name, "") for name in names)
        if not (timestamp and nonce and signature):
            return False
        if not same(signature, feishu_signature(timestamp, nonce, key, body)):
            raise _Refused(401, "bad signature: forged, or encrypt-key differs from the platform's")
        if not fresh(timestamp, self._clock(), FRESH_SECONDS):
            raise _Refused(401, "stale timestamp")
        return True

    def _admit_event(self, envelope: Object, signed: bool) -> None:
        if not signed:
            raise _Refused(401, "no signature")
        header = object_at(envelope, "header")
        app = text_at(header, "app_id") or text_at(object_at(envelope, "event"), "app_id")
        if app != self._settings.app_id:
            raise _Refused(403, "event of another app")
