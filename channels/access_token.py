"""One access token per account: fetched once however many ask, refreshed early in the background, dropped when refused."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_log = logging.getLogger("sanqiao.channels")

_LONGEST_PAUSE = 30.0


class TokenError(Exception):
    """No token. The message is for logs: no secret. Nobody is asked again for `pause` seconds, growing."""

    pause = 0.5


class TokenUnavailable(TokenError):
    """The platform could not be asked, or failed: later it may answer."""


class TokenRefused(TokenError):
    """The platform refuses this account's credentials: an admin must mend them."""

    pause = 5.0


@dataclass(frozen=True, slots=True)
class Grant:
    """A token as the platform gave it, and for how many seconds it is good."""

    token: str
    lifetime: float

    def __repr__(self) -> str:
        return f"Grant(lifetime={self.lifetime:g})"


class AccessToken:
    """The token of one account.

    `fetch` asks the platform and raises TokenError. `early` is how many seconds before its end a token is replaced in
    the background; of a token that lives shorter than twice that, half its life. After a failure nobody is asked
    again for a pause that doubles up to 30 s, with jitter; meanwhile `get` raises the same error at once.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Grant]],
        clock: Callable[[], float],
        *,
        early: float = 1500.0,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._early = early
        self._rng = rng
        self._grant: Grant | None = None
        self._refresh_at = self._ends_at = 0.0
        self._failures = 0
        self._error: TokenError | None = None
        self._ask_again_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"AccessToken(held={self._grant is not None})"

    async def get(self) -> str:
        """A token that is good now. Raises TokenError."""
        now = self._clock()
        if self._grant and now < self._ends_at:
            if now >= self._refresh_at and not self._rests(now):
                self._start()
            return self._grant.token
        if self._error and self._rests(now) and not self._running:
            raise type(self._error)(str(self._error))
        await asyncio.wait((self._start(),))  # unlike a plain await, one who gives up does not cancel it for all
        if self._grant is None:
            error = self._error or TokenUnavailable("no token")
            raise type(error)(str(error))
        return self._grant.token

    def reject(self, token: str) -> None:
        """The platform refused this token: the next `get` fetches another, if this one is still held."""
        if self._grant and self._grant.token == token:
            self._grant = None

    async def close(self) -> None:
        """Ends a fetch that is under way."""
        if self._running:
            assert self._task is not None
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _rests(self, now: float) -> bool:
        """Whether nobody is to be asked yet. A pause that is longer than any comes of a clock that was set back."""
        return 0 < self._ask_again_at - now <= _LONGEST_PAUSE

    def _start(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._renew(), name="access-token")
        return self._task

    async def _renew(self) -> None:
        """Fetches once and keeps what came of it; never raises, so that a refresh nobody awaits leaves no trace."""
        try:
            grant = await self._fetch()
        except TokenError as error:
            self._failed(error)
        except Exception as error:  # border: one background task per account
            _log.exception("token_fetch_failed")
            self._failed(TokenUnavailable(type(error).__name__))
        else:
            now = self._clock()
            self._grant, self._error, self._failures = grant, None, 0
            self._ends_at = now + grant.lifetime
            self._refresh_at = self._ends_at - min(self._early, grant.lifetime / 2)
            self._ask_again_at = 0.0

    def _failed(self, error: TokenError) -> None:
        now = self._clock()
        if self._grant and now >= self._ends_at:
            self._grant = None
        pause = min(_LONGEST_PAUSE, error.pause * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._error = error
        self._ask_again_at = now + pause * (0.5 + 0.5 * self._rng())
