"""One token, however many ask: single flight, early refresh, rejection, failures."""

import asyncio

import pytest

from channels.access_token import AccessToken, Grant, TokenError, TokenRefused, TokenUnavailable
from tests.waiting import until_told


class Platform:
    """Counts fetches; fails while `error` is set; holds the answer back while `gate` is closed."""

    def __init__(self) -> None:
        self.fetched = 0
        self.now = 1000.0
        self.lifetime = 7200.0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self) -> Grant:
        self.fetched += 1
        await self.gate.wait()
        if self.error:
            raise self.error
        return Grant(f"t-{self.fetched}", self.lifetime)

    def token(self) -> AccessToken:
        return AccessToken(self.fetch, lambda: self.now, rng=lambda: 1.0)


async def test_many_ask_and_one_fetches() -> None:
    platform = Platform()
    platform.gate.clear()
    token = platform.token()
    asking = [asyncio.create_task(token.get()) for _ in range(50)]
    await asyncio.sleep(0)
    platform.gate.set()
    assert set(await asyncio.gather(*asking)) == {"t-1"}
    assert platform.fetched == 1


async def test_one_who_gives_up_takes_nothing_from_the_others() -> None:
    platform = Platform()
    platform.gate.clear()
    token = platform.token()
    first, second = asyncio.create_task(token.get()), asyncio.create_task(token.get())
    await asyncio.sleep(0)
    first.cancel()
    platform.gate.set()
    assert await second == "t-1"


async def test_it_is_renewed_early_while_the_old_one_is_served() -> None:
    platform = Platform()
    token = platform.token()
    assert await token.get() == "t-1"
    platform.now += 7200 - 1501
    assert await token.get() == "t-1"
    assert platform.fetched == 1
    platform.now += 2
    platform.gate.clear()
    assert await token.get() == "t-1"
    assert await token.get() == "t-1"
    await asyncio.sleep(0)
    assert platform.fetched == 2
    platform.gate.set()
    await until_told(token.get, "t-2")
    await token.close()


async def test_a_short_lived_token_is_not_fetched_for_each_call() -> None:
    platform = Platform()
    platform.lifetime = 100
    token = platform.token()
    for _ in range(5):
        await token.get()
    assert platform.fetched == 1


async def test_a_rejected_token_is_fetched_again_once() -> None:
    platform = Platform()
    token = platform.token()
    old = await token.get()
    for _ in range(10):
        token.reject(old)
    assert set(await asyncio.gather(*(token.get() for _ in range(10)))) == {"t-2"}
    token.reject(old)
    assert await token.get() == "t-2"
    assert platform.fetched == 2


@pytest.mark.parametrize("error", [TokenRefused("code 10014"), TokenUnavailable("status 500")])
async def test_failures_are_typed_and_not_hammered(error: TokenError) -> None:
    platform = Platform()
    platform.error = error
    token = platform.token()
    for _ in range(20):
        with pytest.raises(type(error)):
            await token.get()
    assert platform.fetched == 1
    pauses = []
    for _ in range(9):
        before = platform.now
        while platform.fetched == len(pauses) + 1:
            platform.now += 0.25
            with pytest.raises(type(error)):
                await token.get()
        pauses.append(platform.now - before)
    assert pauses[:3] == [error.pause, 2 * error.pause, 4 * error.pause]
    assert max(pauses) == 30.0
    platform.error = None
    platform.now += 31
    assert (await token.get()).startswith("t-")


async def test_a_failed_renewal_leaves_the_good_token() -> None:
    platform = Platform()
    token = platform.token()
    await token.get()
    platform.now += 6000
    platform.error = TokenUnavailable("down")
    for _ in range(5):
        assert await token.get() == "t-1"
        await asyncio.sleep(0)
    assert platform.fetched == 2
    platform.now += 1200
    with pytest.raises(TokenUnavailable):
        await token.get()


async def test_an_unforeseen_error_is_an_unavailable_token(caplog: pytest.LogCaptureFixture) -> None:
    platform = Platform()
    platform.error = RuntimeError("secret-canary")
    with pytest.raises(TokenUnavailable, match="RuntimeError") as caught:
        await platform.token().get()
    assert "canary" not in str(caught.value)
    assert "token_fetch_failed" in caplog.text


async def test_no_secret_shows_and_close_ends_a_fetch() -> None:
    platform = Platform()
    token = platform.token()
    assert "t-1" not in repr(Grant("t-1", 5)) + repr(token)
    platform.gate.clear()
    asking = asyncio.create_task(token.get())
    await asyncio.sleep(0)
    await token.close()
    with pytest.raises(TokenUnavailable):
        await asking
