"""What the harness found, each by itself: the same without waiting for chance."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from agents.model import ChatMessage, ModelError, ModelRequest, ModelSettings
from agents.models import WatchedClient
from agents.openai_client import OpenAIClient
from channels.access_token import AccessToken, Grant, TokenUnavailable
from gateway import lanes
from gateway.route import By, Route
from memory.conversation import Role
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside


async def test_an_answer_that_could_not_be_recorded_is_sent_later_and_no_failure_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the answer is there, and has room again when the failure would be recorded."""
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.05)
    async with ModelServer() as model, FakeFeishu() as feishu, Inside(tmp_path, model, feishu=feishu) as gateway:
        finish, refusals = gateway.app._inbox.finish, [sqlite3.OperationalError("database or disk is full")]

        async def full_once(*given: Any, **named: Any) -> bool:
            if refusals:
                raise refusals.pop()
            return await finish(*given, **named)

        monkeypatch.setattr(gateway.app._inbox, "finish", full_once)
        assert await gateway.feishu_says("在吗") == "答复：在吗"
        assert len(model.requests) == 1
        assert await gateway.said() == [("user", "在吗"), ("assistant", "答复：在吗")]


async def test_a_turn_tried_again_stays_with_the_agent_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though whoever chooses would choose another one now: the question stands in one file."""
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.05)
    async with ModelServer() as model, FakeFeishu() as feishu, Inside(tmp_path, model, feishu=feishu) as gateway:
        finish, refusals = gateway.app._inbox.finish, [sqlite3.OperationalError("database or disk is full")]
        chosen = ["job-recommend-agent", "general-agent"]

        async def full_once(*given: Any, **named: Any) -> bool:
            if refusals:
                raise refusals.pop()
            return await finish(*given, **named)

        async def route(*given: Any) -> Route:
            return Route(chosen.pop(0), By.CLASSIFIER, "模型分类")

        monkeypatch.setattr(gateway.app._inbox, "finish", full_once)
        monkeypatch.setattr(gateway.app._pipeline._routing, "route", route)
        assert await gateway.feishu_says("在吗") == "答复：在吗"
        assert await gateway.said() == [("user", "在吗"), ("assistant", "答复：在吗")]
        assert (len(model.requests), chosen) == (1, ["general-agent"])


@pytest.mark.parametrize("charset", ["utf-8", "hologram", "base64", "undefined", "idna", "utf-16"])
async def test_a_login_nobody_can_read_is_its_sender_s_affair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, charset: str
) -> None:
    """Bytes that are no text, in a charset there is or is not: 400, and nothing in the log."""
    async with ModelServer() as model, Inside(tmp_path, model) as gateway, aiohttp.ClientSession() as session:
        headers = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
        async with session.post(gateway.console("/login"), data=b"token=\xff\xfe%00", headers=headers) as response:
            assert 400 <= response.status < 500
    assert "handler_failed" not in caplog.text


async def test_a_model_with_too_much_to_do_is_not_taken_for_dead() -> None:
    """Of those who wait for the one place, many get it too late to be answered; whoever comes afterwards is."""
    async with ModelServer() as model:
        model.delay = lambda messages: 1.5
        settings = ModelSettings(
            base_url=model.base_url, api_key=SecretStr("k"), max_concurrency=1, timeout=4, total_timeout=4
        )
        client = WatchedClient(OpenAIClient(settings))
        request = ModelRequest(messages=(ChatMessage(Role.USER, "问"),))

        async def ask() -> str:
            try:
                return (await client.complete(request, lambda piece: None)).text
            except ModelError as error:
                return type(error).__name__

        for _ in range(2):
            assert set(await asyncio.gather(*(ask() for _ in range(9)))) <= {"答复：问", "ModelTimeout", "NoPlace"}
        model.delay = lambda messages: 0.0
        assert await ask() == "答复：问"
        await client.retire()


async def test_a_clock_set_back_during_a_pause_keeps_nobody_from_a_token() -> None:
    """A failure, then the clock goes back by hours: the next one who asks is given a token, not the old error."""
    now, failures = [100_000.0], [TokenUnavailable("busy")]

    async def fetch() -> Grant:
        if failures:
            raise failures.pop()
        return Grant("t-1", 7200.0)

    token = AccessToken(fetch, lambda: now[0])
    with pytest.raises(TokenUnavailable):
        await token.get()
    with pytest.raises(TokenUnavailable):
        await token.get()
    now[0] -= 6 * 3600.0
    assert await token.get() == "t-1"
