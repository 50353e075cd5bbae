"""Answers reach people although the platform hangs, limits, fails, refuses or breaks off; nobody is asked twice for it."""

import pytest

from tests.channels.conformance.conftest import SENDING, named
from tests.channels.conformance.platform import Platform
from tests.platforms.model_server import ModelServer
from tests.waiting import until

WITH_TOKENS = [kind for kind in SENDING if kind.token_expires]


async def first_answer(platform: Platform, gateway) -> None:
    """Tokens are at hand, connections are open."""
    await platform.deliver(gateway, platform.by_token("先说一句", "first"))
    await until(platform.answers, what="answer")


@pytest.mark.parametrize("kind", WITH_TOKENS, ids=named)
async def test_a_token_that_expires_in_flight(kind: type[Platform], opened, model: ModelServer) -> None:
    async with opened(kind) as (platform, gateway):
        await first_answer(platform, gateway)
        model.delay = lambda messages: 0.2
        await platform.deliver(gateway, platform.by_token("还在吗", "2"))
        await until(lambda: len(model.requests) == 2, what="question")
        platform.expire_tokens()
        await until(lambda: len(platform.answers()) == 2, what="answer")
        assert "还在吗" in platform.answers()[1]
        assert len(model.requests) == 2


@pytest.mark.parametrize("how", ["limited", "busy"])
@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_send_that_fails_for_now_is_sent_again(
    kind: type[Platform], how: str, opened, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kind) as (platform, gateway):
        platform.hurry(monkeypatch)
        platform.fail_next(how)
        await platform.deliver(gateway, platform.message("限流了", "1"))
        await until(platform.answers, what="answer")
        await platform.deliver(gateway, platform.message("下一个", "2"))
        await until(lambda: len(platform.answers()) >= 2, what="answer")
        assert ["限流了" in answer for answer in platform.answers()] == [True, False]
        assert platform.tries <= 4
        assert len(model.requests) == 2


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_send_that_is_refused_for_good_is_given_up(
    kind: type[Platform], opened, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kind) as (platform, gateway):
        platform.hurry(monkeypatch)
        platform.fail_next("refused")
        await platform.deliver(gateway, platform.message("发不出去", "1"))
        await until(lambda: platform.tries >= 1, what="try")
        await platform.deliver(gateway, platform.message("下一个", "2"))
        await until(lambda: any("下一个" in answer for answer in platform.answers()), what="answer")
        assert platform.tries <= 4, "no storm"
        assert len(model.requests) == 2


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_send_that_hangs_holds_up_nobody_else(
    kind: type[Platform], opened, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hanging one is given up in bounded time and tried again; a platform without keys may have taken it."""
    platform: Platform
    with monkeypatch.context() as patch:
        async with kind() as probe:
            probe.hurry(patch)
            probe.impatient(patch)
        async with opened(kind) as (platform, gateway):
            await first_answer(platform, gateway)
            platform.hang_next()
            await platform.deliver(gateway, platform.message("卡住了", "1", "u2"))
            await until(lambda: model.asked("卡住了"), what="question")
            await platform.deliver(gateway, platform.message("别人的话", "2", "u3"))
            await until(lambda: any("别人的话" in answer for answer in platform.answers()), what="answer of another")
            await until(lambda: any("卡住了" in answer for answer in platform.answers()), what="answer that hung")
            seen = sum("卡住了" in answer for answer in platform.answers())
            assert seen == 1 if kind.idempotent else seen <= 2
            assert len(model.requests) == 3


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_connection_that_breaks_after_the_body(
    kind: type[Platform], opened, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform took the answer and could not say so: at most this one part is sent once more."""
    async with opened(kind) as (platform, gateway):
        platform.hurry(monkeypatch)
        await first_answer(platform, gateway)
        platform.cut_next()
        await platform.deliver(gateway, platform.message("断在最后", "1"))
        await until(lambda: any("断在最后" in answer for answer in platform.answers()), what="answer")
        await platform.connected()
        await platform.deliver(gateway, platform.message("下一个", "2"))
        await until(lambda: any("下一个" in answer for answer in platform.answers()), what="answer")
        assert sum("断在最后" in answer for answer in platform.answers()) <= (1 if kind.idempotent else 2)
        assert len(model.requests) == 3
