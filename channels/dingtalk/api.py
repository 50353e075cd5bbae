"""Calls to DingTalk over one HTTP session: the application's token, the robot API, session webhooks, stream tickets."""

import asyncio
import time
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from channels.access_token import AccessToken, Grant, TokenError, TokenRefused, TokenUnavailable
from channels.dingtalk.codes import ADMIN_REMEDIES, Remedy, api_remedy, webhook_remedy
from channels.dingtalk.render import to_json
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.json_values import Object, int_at, list_at, load_object, text_at
from channels.text import one_line

TRY_SECONDS = 10.0
ANSWER_SECONDS = 20.0
"""A send has no idempotency key: one that was given up at 10 s and taken at 12 s would be sent twice."""

_REFRESH_EARLY = 300.0
_MOST_CONNECTIONS = 200
_MOST_ANSWER = 1 << 20
_NO_CODE = -(1 << 31)


class ApiError(Exception):
    """A call failed; `remedy` says what to do. The message is for logs: no text, no secret, no address.

    `reached` is False when the platform cannot have seen the call.
    """

    def __init__(self, reason: str, remedy: Remedy, code: str = "", *, reached: bool = True) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code
        self.reached = reached


class DingTalkApi:
    """One application's calls. The session is opened by the first call and belongs to the loop that makes it."""

    def __init__(
        self, settings: DingTalkSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._token = AccessToken(self._fetch_token, clock, early=_REFRESH_EARLY)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session of this application; no proxy, cookie or redirect comes from outside."""
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

    async def authorise(self) -> None:
        """Has a token at hand. Raises TokenError."""
        await self._token.get()

    async def post_to_session(self, webhook: URL, body: str) -> None:
        """Sends by a session webhook, whose address must have been checked. Raises ApiError."""
        try:
            status, raw = await self._post(webhook, body, {}, ANSWER_SECONDS)
        except ApiError as error:
            raise error if error.reached else ApiError(str(error), Remedy.OTHER_WAY) from error
        answer = load_object(raw) or {}
        errcode = int_at(answer, "errcode", _NO_CODE)
        if status < 400 and errcode == 0:
            self._troubles.clear("network")
            return
        remedy = webhook_remedy(status, None if errcode == _NO_CODE else errcode)
        self._report(remedy, str(errcode))
        raise ApiError(f"session webhook status {status} errcode {errcode}", remedy, str(errcode))

    async def send_to_person(self, robot: str, staff: str, parameters: str) -> str:
        """Sends markdown to one person; returns the platform's key of it. Raises ApiError, TokenError."""
        body = {"robotCode": robot, "userIds": [staff], "msgKey": "sampleMarkdown", "msgParam": parameters}
        answer = await self._call("/v1.0/robot/oToMessages/batchSend", body)
        if list_at(answer, "invalidStaffIdList"):
            raise ApiError("the person is not known to this robot", Remedy.GIVE_UP, "invalidStaffId")
        if list_at(answer, "flowControlledStaffIdList"):
            raise ApiError("the person gets too many messages", Remedy.WAIT, "flowControlledStaffId")
        return text_at(answer, "processQueryKey")

    async def send_to_group(self, robot: str, chat: str, parameters: str) -> str:
        """Sends markdown to a group; returns the platform's key of it. Raises ApiError, TokenError."""
        body = {"robotCode": robot, "openConversationId": chat, "msgKey": "sampleMarkdown", "msgParam": parameters}
        return text_at(await self._call("/v1.0/robot/groupMessages/send", body), "processQueryKey")

    async def open_connection(self, subscriptions: list[dict[str, str]]) -> Object:
        """Asks where to connect for the stream; the answer's `ticket` is a secret. Raises ApiError."""
        body = {
            "clientId": self._settings.client_id,
            "clientSecret": self._settings.client_secret.get_secret_value(),
            "subscriptions": subscriptions,
            "ua": "sanqiao",
        }
        return await self._request("/v1.0/gateway/connections/open", body, "", TRY_SECONDS)

    async def _call(self, path: str, body: Mapping[str, object]) -> Object:
        """One call with a token; a refused token is dropped, another fetched, the call repeated, all of it once."""
        token = await self._token.get()
        try:
            return await self._request(path, body, token, ANSWER_SECONDS)
        except ApiError as error:
            if error.remedy is not Remedy.NEW_TOKEN:
                raise
        self._token.reject(token)
        return await self._request(path, body, await self._token.get(), ANSWER_SECONDS)

    async def _request(self, path: str, body: Mapping[str, object], token: str, seconds: float) -> Object:
        headers = {"x-acs-dingtalk-access-token": token} if token else {}
        status, raw = await self._post(URL(self._base + path), to_json(body), headers, seconds)
        answer = load_object(raw)
        if answer is not None and status < 400:
            self._troubles.clear("network")
            return answer
        code = one_line(text_at(answer or {}, "code"), 100)
        remedy = api_remedy(status, code)
        if token:
            self._report(remedy, code)
        raise ApiError(f"status {status} code {code!r}", remedy, code)

    async def _post(self, url: URL, body: str, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
        """One POST without retry: status and body of the answer, however it looks."""
        try:
            async with (
                asyncio.timeout(seconds),
                self.session.post(
                    url,
                    data=body.encode("utf-8", "replace"),
                    headers={"Content-Type": "application/json; charset=utf-8", **headers},
                    allow_redirects=False,
                    proxy=self._settings.proxy or None,
                    timeout=aiohttp.ClientTimeout(total=seconds, connect=TRY_SECONDS),
                ) as response,
            ):
                return response.status, await _beginning(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ApiError(type(error).__name__, Remedy.ASK_AGAIN, reached=False) from error
        except TimeoutError as error:
            raise ApiError(f"no answer within {seconds:g} s", Remedy.ASK_AGAIN) from error
        except aiohttp.ClientError as error:
            raise ApiError(type(error).__name__, Remedy.ASK_AGAIN) from error

    def _report(self, remedy: Remedy, code: str) -> None:
        if remedy in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[remedy]}（错误码 {code}）")

    async def _fetch_token(self) -> Grant:
        """A token (open.dingtalk.com, 获取企业内部应用的 accessToken); asked again, the platform gives the same one."""
        body = {"appKey": self._settings.client_id, "appSecret": self._settings.client_secret.get_secret_value()}
        try:
            answer = await self._request("/v1.0/oauth2/accessToken", body, "", TRY_SECONDS)
        except ApiError as error:
            raise self._token_error(error) from error
        token, lifetime = text_at(answer, "accessToken"), int_at(answer, "expireIn", 0)
        if not token or lifetime <= 0 or not (token.isascii() and token.isprintable()):
            raise TokenUnavailable("token answer without a token")
        self._troubles.clear("token")
        return Grant(token, float(lifetime))

    def _token_error(self, error: ApiError) -> TokenError:
        if error.remedy in (Remedy.ASK_AGAIN, Remedy.WAIT):
            self._troubles.report("network", "暂时无法从钉钉取得访问令牌，正在重试；请检查网络与 api-base-url")
            return TokenUnavailable(str(error))
        detail = f"钉钉拒绝了 client-id 或 client-secret（{error.code}），请核对后重启"
        self._troubles.report("token", detail)
        return TokenRefused(str(error))


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The body; of one that is too long to be an answer, the beginning."""
    read = bytearray()
    while len(read) < _MOST_ANSWER and (chunk := await response.content.readany()):
        read += chunk
    return bytes(read)
