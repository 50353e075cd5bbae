"""Calls to Feishu's open API: the app's token, the bot's own id, messages.

Own calls, because those of lark-oapi 1.7.5 fetch the token with a request that blocks the event loop, never drop a
token that the platform refused, and build a new HTTP client for each call.
"""

import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

import aiohttp

from channels.access_token import Grant
from channels.calls import Answer, CallError, Calls, NoAnswer
from channels.feishu.codes import ADMIN_REMEDIES, Remedy, remedy_for
from channels.feishu.settings import FeishuSettings
from channels.health import Troubles
from channels.json_values import Object, int_at, load_object, object_at, text_at, to_json

_LONGEST_WAIT = 3600.0


class ApiError(CallError):
    """A call failed; `remedy` says what to do, `retry_after` how long the platform asks to wait (0 = it did not)."""

    def __init__(self, reason: str, remedy: Remedy, *, code: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code
        self.retry_after = retry_after
        self.token_refused = remedy is Remedy.NEW_TOKEN


class FeishuApi:
    """One app's calls."""

    def __init__(self, settings: FeishuSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._calls = Calls("飞书", troubles, self._fetch_token, proxy=settings.proxy, clock=clock)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session of this app."""
        return self._calls.session

    async def close(self) -> None:
        """Ends what is under way and closes the session."""
        await self._calls.close()

    async def own_open_id(self) -> str:
        """The bot's own open_id (GET /bot/v3/info). Raises ApiError, TokenError."""
        answer = await self._call("GET", "/open-apis/bot/v3/info")
        open_id = text_at(object_at(answer, "bot"), "open_id")
        if not open_id:
            raise ApiError("bot info without open_id", Remedy.ASK_AGAIN)
        return open_id

    async def reply(self, message: str, msg_type: str, content: str, uuid: str, *, in_thread: bool) -> str:
        """Answers a message; returns the new message's id. Raises ApiError, TokenError."""
        body: dict[str, str | bool] = {"msg_type": msg_type, "content": content, "uuid": uuid}
        body["reply_in_thread"] = in_thread
        return await self._send(f"/open-apis/im/v1/messages/{quote(message, safe='')}/reply", body)

    async def create(self, chat: str, msg_type: str, content: str, uuid: str) -> str:
        """Sends to a chat; returns the new message's id. Raises ApiError, TokenError."""
        body = {"receive_id": chat, "msg_type": msg_type, "content": content, "uuid": uuid}
        return await self._send("/open-apis/im/v1/messages?receive_id_type=chat_id", body)

    async def _send(self, path: str, body: Mapping[str, str | bool]) -> str:
        answer = await self._call("POST", path, body)
        return text_at(object_at(answer, "data"), "message_id")

    async def post(self, path: str, body: Mapping[str, str | bool]) -> Object:
        """One POST without a token and without retry. Raises ApiError."""
        return await self._request("POST", path, body, "")

    async def _call(self, method: str, path: str, body: Mapping[str, str | bool] | None = None) -> Object:
        return await self._calls.with_token(lambda token: self._request(method, path, body, token))

    async def _request(self, method: str, path: str, body: Mapping[str, str | bool] | None, token: str) -> Object:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else to_json(body)
        try:
            answer = await self._calls.request(method, self._base + path, data, headers)
        except NoAnswer as error:
            raise ApiError(str(error), Remedy.ASK_AGAIN) from error
        return self._read(answer)

    def _read(self, answer: Answer) -> Object:
        """The answer's object when its code is 0. The platform's `msg` is left out: it may quote what was sent."""
        told = load_object(answer.body)
        code = int_at(told, "code", -1) if told is not None else -1
        if told is not None and code == 0 and answer.status < 400:
            self._calls.answered()
            return told
        if code in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[code]}（错误码 {code}）")
        reset = answer.headers.get("x-ogw-ratelimit-reset", "")
        retry_after = min(float(reset), _LONGEST_WAIT) if reset.isascii() and reset.isdigit() else 0.0
        remedy = remedy_for(answer.status, code)
        raise ApiError(f"status {answer.status} code {code}", remedy, code=code, retry_after=retry_after)

    async def _fetch_token(self) -> Grant:
        """A tenant token. The platform gives the same one until 30 minutes before its end, then a new one."""
        body = {
            "app_id": self._settings.app_id,
            "app_secret": self._settings.app_secret.get_secret_value(),
        }
        try:
            answer = await self.post("/open-apis/auth/v3/tenant_access_token/internal", body)
        except ApiError as error:
            if error.remedy in (Remedy.ASK_AGAIN, Remedy.WAIT_APP) or error.code < 0:
                raise self._calls.no_token(error) from error
            detail = f"飞书拒绝了 app-id 或 app-secret（错误码 {error.code}），请核对后重启"
            raise self._calls.refused(error, detail) from error
        return self._calls.grant(text_at(answer, "tenant_access_token"), int_at(answer, "expire", 0))
