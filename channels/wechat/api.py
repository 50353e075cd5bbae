"""Calls to WeChat's API over one HTTP session: the account's token, 客服消息, the typing sign."""

import json
import time
from collections.abc import Callable, Mapping

import aiohttp

from channels.access_token import AccessToken, Grant, TokenError, TokenRefused, TokenUnavailable
from channels.health import Troubles
from channels.json_values import Object, int_at, load_object, text_at
from channels.wechat.codes import ADMIN_REMEDIES, Remedy, remedy_for
from channels.wechat.settings import WeChatSettings

TRY_SECONDS = 10.0
_MOST_CONNECTIONS = 100
_EARLY_SECONDS = 240.0
"""The platform gives the same token until five minutes before its end, then a new one; both are good meanwhile."""


class ApiError(Exception):
    """A call failed; `remedy` says what to do. The message is for logs: no secret."""

    def __init__(self, reason: str, remedy: Remedy, code: int = 0) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code


class WeChatApi:
    """One account's calls. The session is opened by the first call and belongs to the loop that makes it."""

    def __init__(self, settings: WeChatSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._token = AccessToken(self._fetch_token, clock, early=_EARLY_SECONDS)

    async def close(self) -> None:
        """Ends what is under way and closes the session."""
        await self._token.close()
        if self._session is not None:
            await self._session.close()

    async def authorise(self) -> None:
        """Has a token at hand. Raises TokenError."""
        await self._token.get()

    async def send_text(self, user: str, text: str) -> None:
        """One 客服消息 (POST /cgi-bin/message/custom/send). Raises ApiError, TokenError."""
        await self._call("/cgi-bin/message/custom/send", {"touser": user, "msgtype": "text", "text": {"content": text}})

    async def typing(self, user: str) -> None:
        """Shows for 15 s that an answer is being written (POST /cgi-bin/message/custom/typing).

        Raises ApiError, TokenError.
        """
        await self._call("/cgi-bin/message/custom/typing", {"touser": user, "command": "Typing"})

    async def _call(self, path: str, body: Mapping[str, object]) -> Object:
        """One call with a token; a refused token is dropped, another fetched, the call repeated, all of it once."""
        token = await self._token.get()
        try:
            return await self._request(path, body, token)
        except ApiError as error:
            if error.remedy is not Remedy.NEW_TOKEN:
                raise
        self._token.reject(token)
        return await self._request(path, body, await self._token.get())

    async def _request(self, path: str, body: Mapping[str, object], token: str = "") -> Object:
        """One POST. The errors of aiohttp quote the address, which holds the token: they are not passed on."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TRY_SECONDS),
            )
        # Real UTF-8: the platform shows \\u escapes as they are.
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        try:
            async with self._session.post(
                self._base + path,
                params={"access_token": token} if token else {},
                data=data,
                headers={"Content-Type": "application/json; charset=utf-8"},
                allow_redirects=False,
                proxy=self._settings.proxy or None,
            ) as response:
                status, raw = response.status, await response.read()
        except TimeoutError:
            reason = f"no answer within {TRY_SECONDS:g} s"
        except (aiohttp.ClientError, OSError) as error:
            reason = type(error).__name__
        else:
            return self._answer(status, raw)
        raise ApiError(reason, Remedy.ASK_AGAIN)

    def _answer(self, status: int, raw: bytes) -> Object:
        """The answer's object unless it holds an error. The platform's `errmsg` is left out: it may quote a text."""
        answer = load_object(raw)
        if answer is None or status >= 300:
            remedy = remedy_for(status if status >= 300 else 502, 0)
            raise ApiError(f"status {status}, {len(raw)} bytes", remedy)
        code = int_at(answer, "errcode", 0)
        if code == 0:
            self._troubles.clear("network")
            return answer
        if code in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[code]}（错误码 {code}）")
        raise ApiError(f"errcode {code}", remedy_for(status, code), code)

    async def _fetch_token(self) -> Grant:
        """A token by POST /cgi-bin/stable_token, which leaves tokens that others hold good."""
        body = {
            "grant_type": "client_credential",
            "appid": self._settings.app_id,
            "secret": self._settings.app_secret.get_secret_value(),
            "force_refresh": False,
        }
        try:
            answer = await self._request("/cgi-bin/stable_token", body)
        except ApiError as error:
            raise self._token_error(error) from error
        token, lifetime = text_at(answer, "access_token"), int_at(answer, "expires_in", 0)
        if not token or lifetime <= 0 or not (token.isascii() and token.isprintable()):
            raise TokenUnavailable("token answer without a token")
        self._troubles.clear("token")
        return Grant(token, float(lifetime))

    def _token_error(self, error: ApiError) -> TokenError:
        if error.code in (40164, 61004):
            return TokenRefused(str(error))  # the trouble is reported already
        if error.remedy in (Remedy.ASK_AGAIN, Remedy.WAIT):
            self._troubles.report("network", "暂时无法从微信取得访问令牌，正在重试；请检查网络与 api-base-url")
            return TokenUnavailable(str(error))
        self._troubles.report("token", f"微信拒绝了 app-id 或 app-secret（错误码 {error.code}），请核对后重启")
        return TokenRefused(str(error))
