"""Calls to Feishu's open API over one HTTP session: the app's token, the bot's own id, messages."""

import json
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

import aiohttp

from channels.access_token import AccessToken, Grant, TokenError, TokenRefused, TokenUnavailable
from channels.feishu.codes import ADMIN_REMEDIES, Remedy, remedy_for
from channels.feishu.settings import FeishuSettings
from channels.health import Troubles
from channels.json_values import Object, int_at, load_object, object_at, text_at

TRY_SECONDS = 10.0
_MOST_CONNECTIONS = 100
_LONGEST_WAIT = 3600.0


class ApiError(Exception):
    """A call failed; `remedy` says what to do, `retry_after` how long the platform asks to wait (0 = it did not)."""

    def __init__(self, reason: str, remedy: Remedy, *, code: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code
        self.retry_after = retry_after


class FeishuApi:
    """One app's calls. The session is opened by the first call and belongs to the loop that makes it."""

    def __init__(self, settings: FeishuSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._token = AccessToken(self._fetch_token, clock)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session of this app; no proxy, cookie or redirect comes from outside."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TRY_SECONDS),
            )
        return self._session

    async def close(self) -> None:
        """Ends what is under way and closes the session."""
        await self._token.close()
        if self._session is not None:
            await self._session.close()

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

    async def post(self, path: str, body: Mapping[str, str | bool], token: str = "") -> Object:
        """One POST without retry. Raises ApiError."""
        return await self._request("POST", path, body, token)

    async def _call(self, method: str, path: str, body: Mapping[str, str | bool] | None = None) -> Object:
        """One call with a token; a refused token is dropped, another fetched, the call repeated, all of it once."""
        token = await self._token.get()
        try:
            return await self._request(method, path, body, token)
        except ApiError as error:
            if error.remedy is not Remedy.NEW_TOKEN:
                raise
        self._token.reject(token)
        return await self._request(method, path, body, await self._token.get())

    async def _request(self, method: str, path: str, body: Mapping[str, str | bool] | None, token: str) -> Object:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        try:
            async with self.session.request(
                method,
                self._base + path,
                data=data,
                headers=headers,
                allow_redirects=False,
                proxy=self._settings.proxy or None,
            ) as response:
                status, raw = response.status, await response.read()
                reset = response.headers.get("x-ogw-ratelimit-reset", "")
        except TimeoutError as error:
            raise ApiError(f"no answer within {TRY_SECONDS:g} s", Remedy.ASK_AGAIN) from error
        except aiohttp.ClientError as error:
            raise ApiError(type(error).__name__, Remedy.ASK_AGAIN) from error
        return self._answer(status, raw, reset)

    def _answer(self, status: int, raw: bytes, reset: str) -> Object:
        """The answer's object when its code is 0. The platform's `msg` is left out: it may quote what was sent."""
        answer = load_object(raw)
        code = int_at(answer, "code", -1) if answer is not None else -1
        if answer is not None and code == 0 and status < 400:
            self._troubles.clear("network")
            return answer
        if code in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[code]}（错误码 {code}）")
        retry_after = min(float(reset), _LONGEST_WAIT) if reset.isascii() and reset.isdigit() else 0.0
        raise ApiError(f"status {status} code {code}", remedy_for(status, code), code=code, retry_after=retry_after)

    async def _fetch_token(self) -> Grant:
        """A tenant token. The platform gives the same one until 30 minutes before its end, then a new one."""
        body = {
            "app_id": self._settings.app_id,
            "app_secret": self._settings.app_secret.get_secret_value(),
        }
        try:
            answer = await self.post("/open-apis/auth/v3/tenant_access_token/internal", body)
        except ApiError as error:
            raise self._token_error(error) from error
        token, lifetime = text_at(answer, "tenant_access_token"), int_at(answer, "expire", 0)
        if not token or lifetime <= 0 or not (token.isascii() and token.isprintable()):
            raise TokenUnavailable("token answer without a token")
        self._troubles.clear("token")
        return Grant(token, float(lifetime))

    def _token_error(self, error: ApiError) -> TokenError:
        if error.remedy in (Remedy.ASK_AGAIN, Remedy.WAIT_APP) or error.code < 0:
            self._troubles.report("network", "暂时无法从飞书取得访问令牌，正在重试；请检查网络与 api-base-url")
            return TokenUnavailable(str(error))
        self._troubles.report("token", f"飞书拒绝了 app-id 或 app-secret（错误码 {error.code}），请核对后重启")
        return TokenRefused(str(error))
