"""Calls to DingTalk: the application's token, the robot API, session webhooks, tickets of the long connection.

Own calls, because those of dingtalk-stream 0.24.3 ask for the token on the event loop, without a time limit, keep a
token that was revoked until it would have ended, and look at no `errcode`.
"""

import time
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from channels.access_token import Grant
from channels.calls import Answer, CallError, Calls, NoAnswer
from channels.dingtalk.codes import ADMIN_REMEDIES, PASSING, Remedy, api_remedy, webhook_remedy
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.json_values import Object, int_at, list_at, load_object, text_at, to_json
from channels.text import one_line

ANSWER_SECONDS = 20.0
"""A send has no idempotency key: one that was given up at 10 s and taken at 12 s would be sent twice."""

_REFRESH_EARLY = 300.0
_NO_CODE = -(1 << 31)


class ApiError(CallError):
    """A call failed; `remedy` says what to do."""

    def __init__(self, reason: str, remedy: Remedy, code: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.code = code
        self.token_refused = remedy is Remedy.NEW_TOKEN


class DingTalkApi:
    """One application's calls."""

    def __init__(
        self, settings: DingTalkSettings, troubles: Troubles, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._troubles = troubles
        self._base = settings.api_base_url.rstrip("/")
        self._calls = Calls(
            "钉钉", troubles, self._fetch_token, proxy=settings.proxy, clock=clock, early=_REFRESH_EARLY
        )

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session of this application."""
        return self._calls.session

    async def close(self) -> None:
        """Ends what is under way and closes the session."""
        await self._calls.close()

    async def authorise(self) -> None:
        """Has a token at hand. Raises TokenError."""
        await self._calls.authorise()

    async def post_to_session(self, webhook: URL, body: str) -> None:
        """Sends by a session webhook, whose address must have been checked. Raises ApiError."""
        try:
            answer = await self._calls.request("POST", webhook, body, seconds=ANSWER_SECONDS)
        except NoAnswer as error:
            raise ApiError(str(error), Remedy.UNKNOWN if error.reached else Remedy.OTHER_WAY) from error
        errcode = int_at(load_object(answer.body) or {}, "errcode", _NO_CODE)
        if answer.status < 400 and errcode == 0:
            self._calls.answered()
            return
        remedy = webhook_remedy(answer.status, None if errcode == _NO_CODE else errcode)
        self._report(remedy, str(errcode))
        raise ApiError(f"session webhook status {answer.status} errcode {errcode}", remedy, str(errcode))

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
        """Asks where to connect for the long connection; the answer's `ticket` is a secret. Raises ApiError."""
        body = {
            "clientId": self._settings.client_id,
            "clientSecret": self._settings.client_secret.get_secret_value(),
            "subscriptions": subscriptions,
            "ua": "sanqiao",
        }
        return await self._request("/v1.0/gateway/connections/open", body)

    async def _call(self, path: str, body: Mapping[str, object]) -> Object:
        return await self._calls.with_token(lambda token: self._request(path, body, token, ANSWER_SECONDS))

    async def _request(
        self, path: str, body: Mapping[str, object], token: str = "", seconds: float | None = None
    ) -> Object:
        headers = {"x-acs-dingtalk-access-token": token} if token else {}
        try:
            answer = await self._calls.request("POST", self._base + path, to_json(body), headers, seconds=seconds)
        except NoAnswer as error:
            raise ApiError(str(error), Remedy.UNKNOWN if error.reached else Remedy.ASK_AGAIN) from error
        return self._read(answer, token)

    def _read(self, answer: Answer, token: str) -> Object:
        told = load_object(answer.body)
        if told is not None and answer.status < 400:
            self._calls.answered()
            return told
        code = one_line(text_at(told or {}, "code"), 100)
        remedy = api_remedy(answer.status, code)
        if token:
            self._report(remedy, code)
        raise ApiError(f"status {answer.status} code {code!r}", remedy, code)

    def _report(self, remedy: Remedy, code: str) -> None:
        if remedy in ADMIN_REMEDIES:
            self._troubles.report("api", f"{ADMIN_REMEDIES[remedy]}（错误码 {code}）")

    async def _fetch_token(self) -> Grant:
        """A token (open.dingtalk.com, 获取企业内部应用的 accessToken); asked again, the platform gives the same one."""
        body = {"appKey": self._settings.client_id, "appSecret": self._settings.client_secret.get_secret_value()}
        try:
            answer = await self._request("/v1.0/oauth2/accessToken", body)
        except ApiError as error:
            if error.remedy in PASSING:
                raise self._calls.no_token(error) from error
            detail = f"钉钉拒绝了 client-id 或 client-secret（{error.code}），请核对后重启"
            raise self._calls.refused(error, detail) from error
        return self._calls.grant(text_at(answer, "accessToken"), int_at(answer, "expireIn", 0))
