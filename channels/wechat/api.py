"""Calls to WeChat's API: the account's token, 客服消息, the typing sign.

Own calls, because those of wechatpy 1.8.18 block, have no time limit, know no stable_token and repeat a call without
end while its token is refused.
"""

import time
from collections.abc import Callable, Mapping

from yarl import URL

from channels.access_token import Grant, TokenRefused
from channels.calls import Answer, CallError, Calls, NoAnswer
from channels.health import Troubles
from channels.json_values import Object, int_at, load_object, text_at, to_json
from channels.wechat.codes import ADMIN_REMEDIES, PASSING, Remedy, remedy_for
from channels.wechat.settings import WeChatSettings

_EARLY_SECONDS = 240.0
"""The platform gives the same token until five minutes before its end, then a new one; both are good meanwhile."""


class ApiError(CallError):
    """A call failed; `remedy` says what to do."""

    def __init__(self, reason: str, remedy: Remedy, code: int = 0) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code
        self.token_refused = remedy is Remedy.NEW_TOKEN


class WeChatApi:
    """One account's calls."""

    def __init__(self, settings: WeChatSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._calls = Calls(
            "微信", troubles, self._fetch_token, proxy=settings.proxy, clock=clock, early=_EARLY_SECONDS
        )

    async def close(self) -> None:
        """Ends what is under way and closes the session."""
        await self._calls.close()

    async def authorise(self) -> None:
        """Has a token at hand. Raises TokenError."""
        await self._calls.authorise()

    async def send_text(self, user: str, text: str) -> None:
        """One 客服消息 (POST /cgi-bin/message/custom/send). Raises ApiError, TokenError."""
        await self._call("/cgi-bin/message/custom/send", {"touser": user, "msgtype": "text", "text": {"content": text}})

    async def typing(self, user: str) -> None:
        """Shows for 15 s that an answer is being written (POST /cgi-bin/message/custom/typing).

        Raises ApiError, TokenError.
        """
        await self._call("/cgi-bin/message/custom/typing", {"touser": user, "command": "Typing"})

    async def _call(self, path: str, body: Mapping[str, object]) -> Object:
        return await self._calls.with_token(lambda token: self._request(path, body, token))

    async def _request(self, path: str, body: Mapping[str, object], token: str = "") -> Object:
        url = URL(self._base + path)
        try:
            answer = await self._calls.request(
                "POST", url.update_query(access_token=token) if token else url, to_json(body)
            )
        except NoAnswer as error:
            raise ApiError(str(error), Remedy.UNKNOWN if error.reached else Remedy.ASK_AGAIN) from error
        return self._read(answer)

    def _read(self, answer: Answer) -> Object:
        """The answer's object unless it holds an error. The platform's `errmsg` is left out: it may quote a text."""
        told = load_object(answer.body)
        if told is None or answer.status >= 300:
            remedy = remedy_for(answer.status if answer.status >= 300 else 500, 0)
            raise ApiError(f"status {answer.status}, {len(answer.body)} bytes", remedy)
        code = int_at(told, "errcode", 0)
        if code == 0:
            self._calls.answered()
            return told
        if code in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[code]}（错误码 {code}）")
        raise ApiError(f"errcode {code}", remedy_for(answer.status, code), code)

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
            if error.code in (40164, 61004):
                raise TokenRefused(str(error)) from error  # the trouble is reported already
            if error.remedy in PASSING:
                raise self._calls.no_token(error) from error
            detail = f"微信拒绝了 app-id 或 app-secret（错误码 {error.code}），请核对后重启"
            raise self._calls.refused(error, detail) from error
        return self._calls.grant(text_at(answer, "access_token"), int_at(answer, "expires_in", 0))
