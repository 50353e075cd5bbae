"""HTTP calls to a platform's API: one session and one access token per account, each call bounded in time.

What an answer means differs from platform to platform and is read there; what went wrong without one is told here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from yarl import URL

from channels.access_token import AccessToken, Grant, TokenRefused, TokenUnavailable
from channels.health import Troubles

TRY_SECONDS = 10.0
"""One try of a call that may be repeated without harm."""

_MOST_CONNECTIONS = 200
_MOST_ANSWER = 1 << 20

T = TypeVar("T")


class CallError(Exception):
    """A call failed. The message is for logs: no text of a user, no secret, no address."""

    token_refused = False
    """Whether the platform wants another access token."""


class NoAnswer(CallError):
    """A call got no answer. `reached` is False when the platform cannot have seen it."""

    def __init__(self, reason: str, *, reached: bool) -> None:
        super().__init__(reason)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class Answer:
    """Whatever came back; of a body that is too long to be an answer, the beginning."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Calls:
    """The calls of one account. The session is opened by the first of them and belongs to the loop that makes it.

    `platform` is its Chinese name, for admins. `fetch` asks for a token and raises TokenError; `early` as in
    AccessToken.
    """

    def __init__(
        self,
        platform: str,
        troubles: Troubles,
        fetch: Callable[[], Awaitable[Grant]],
        *,
        proxy: str,
        clock: Callable[[], float],
        early: float = 1500.0,
    ) -> None:
        self._platform = platform
        self._troubles = troubles
        self._proxy = proxy or None
        self._session: aiohttp.ClientSession | None = None
        self._token = AccessToken(fetch, clock, early=early)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The one session of this account; no proxy, cookie or redirect comes from outside."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS), cookie_jar=aiohttp.DummyCookieJar()
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

    async def with_token(self, call: Callable[[str], Awaitable[T]]) -> T:
        """One call with a token; a refused token is dropped, another fetched, the call repeated, all of it once.

        Raises what `call` raises, and TokenError.
        """
        token = await self._token.get()
        try:
            return await call(token)
        except CallError as error:
            if not error.token_refused:
                raise
        self._token.reject(token)
        return await call(await self._token.get())

    async def request(
        self,
        method: str,
        url: str | URL,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> Answer:
        """One request without retry, `seconds` (TRY_SECONDS) at most; `body` is JSON. Raises NoAnswer.

        The errors of aiohttp quote the address, which may hold a token: they are not passed on.
        """
        patience = TRY_SECONDS if seconds is None else seconds
        kind = {"Content-Type": "application/json; charset=utf-8"} if body is not None else {}
        try:
            async with (
                asyncio.timeout(patience),
                self.session.request(
                    method,
                    url,
                    data=None if body is None else body.encode("utf-8", "replace"),
                    headers={**kind, **(headers or {})},
                    allow_redirects=False,
                    proxy=self._proxy,
                    timeout=aiohttp.ClientTimeout(total=patience, connect=min(patience, TRY_SECONDS)),
                ) as response,
            ):
                return Answer(response.status, await _beginning(response), response.headers)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            failure = NoAnswer(type(error).__name__, reached=False)
        except TimeoutError:
            failure = NoAnswer(f"no answer within {patience:g} s", reached=True)
        except (aiohttp.ClientError, OSError) as error:
            failure = NoAnswer(type(error).__name__, reached=True)
        raise failure

    # ---- how the account is

    def answered(self) -> None:
        """The platform answered sensibly."""
        self._troubles.clear("network")

    def grant(self, token: str, lifetime: int) -> Grant:
        """The token of an answer, good for `lifetime` seconds. Raises TokenUnavailable where it is none."""
        if not token or lifetime <= 0 or not (token.isascii() and token.isprintable()):
            raise TokenUnavailable("token answer without a token")
        self._troubles.clear("token")
        return Grant(token, float(lifetime))

    def no_token(self, error: CallError) -> TokenUnavailable:
        """What to raise when the platform could not be asked for a token; admins are told."""
        detail = f"暂时无法从{self._platform}取得访问令牌，正在重试；请检查网络与 api-base-url"
        self._troubles.report("network", detail)
        return TokenUnavailable(str(error))

    def refused(self, error: CallError, detail: str) -> TokenRefused:
        """What to raise when the platform refuses the credentials; admins are told `detail`."""
        self._troubles.report("token", detail)
        return TokenRefused(str(error))


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    read = bytearray()
    while len(read) < _MOST_ANSWER and (chunk := await response.content.readany()):
        read += chunk
    return bytes(read)
