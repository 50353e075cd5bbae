"""All models of one configuration: fallbacks, taking over a change, the end; and what an entry may say."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from agents.model import (
    ChatMessage,
    ContextTooLong,
    ModelMisconfigured,
    ModelRequest,
    ModelSettings,
    ModelTimeout,
    ModelUnavailable,
    OddAnswer,
)
from agents.models import Models, UnknownModel
from tests.platforms.model_server import Chunks, ModelServer, delta

ASK = ModelRequest(messages=(ChatMessage("system", "s"), ChatMessage("user", "你好")))


def entry(server: ModelServer | None, **keys: Any) -> ModelSettings:
    url = server.base_url if server else "http://127.0.0.1:9/v1"
    return ModelSettings(**{"base_url": url, "api_key": "k", "timeout": 1, "total_timeout": 3, **keys})


@asynccontextmanager
async def models_of(settings: Mapping[str, ModelSettings]) -> AsyncIterator[Models]:
    models = await asyncio.to_thread(Models, settings)
    try:
        yield models
    finally:
        await models.close()


@pytest.fixture
async def first() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def backup() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        server.answer = lambda messages: "备用模型的答复"
        yield server


# ------------------------------------------------------------------ fallbacks
async def test_the_next_model_answers_when_nobody_is_there(backup: ModelServer) -> None:
    settings = {
        "main": entry(None, fallback=("gone", "backup")),
        "gone": entry(None),
        "backup": entry(backup, model="b"),
    }
    async with models_of(settings) as models:
        told: list[str] = []
        done = await models.client("main").complete(ASK, told.append)
        assert done.text == "".join(told) == "备用模型的答复"
        assert done.model == "b"


async def test_the_next_model_answers_after_a_wrong_key_and_after_silence(
    first: ModelServer, backup: ModelServer
) -> None:
    settings = {"main": entry(first, fallback=("backup",), timeout=0.2), "backup": entry(backup)}
    async with models_of(settings) as models:
        first.fail = [(401, {}, {})]
        assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
        first.delay = lambda messages: 5.0
        assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
        assert len(first.requests) == 2


async def test_nothing_is_said_twice(first: ModelServer, backup: ModelServer) -> None:
    first.answers = [Chunks([delta("半截")], cut=True)]
    async with models_of({"main": entry(first, fallback=("backup",)), "backup": entry(backup)}) as models:
        told: list[str] = []
        with pytest.raises(ModelUnavailable):
            await models.client("main").complete(ASK, told.append)
        assert told == ["半截"]
        assert not backup.requests


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [(400, {"error": {"code": "context_length_exceeded"}}, ContextTooLong), (200, {}, OddAnswer)],
)
async def test_what_another_model_would_not_better_is_not_asked_of_it(
    first: ModelServer, backup: ModelServer, status: int, body: object, kind: type[Exception]
) -> None:
    first.fail = [(status, body, {})]
    async with models_of({"main": entry(first, fallback=("backup",)), "backup": entry(backup)}) as models:
        with pytest.raises(kind):
            await models.client("main").complete(ASK, print)
        assert not backup.requests


async def test_the_first_ones_total_time_is_for_all(backup: ModelServer) -> None:
    backup.delay = lambda messages: 5.0
    settings = {
        "main": entry(None, fallback=("backup",), total_timeout=0.4),
        "backup": entry(backup, timeout=9, total_timeout=9),
    }
    async with models_of(settings) as models:
        start = time.monotonic()
        with pytest.raises((ModelTimeout, ModelUnavailable)):
            await models.client("main").complete(ASK, print)
        assert time.monotonic() - start < 2.5


async def test_when_all_fail_the_last_error_is_told(first: ModelServer) -> None:
    first.fail = [(403, {}, {})]
    async with models_of({"main": entry(None, fallback=("main", "other")), "other": entry(first)}) as models:
        with pytest.raises(ModelMisconfigured):
            await models.client("main").complete(ASK, print)


# ------------------------------------------------------------------ names
async def test_summary_is_main_unless_it_has_an_entry() -> None:
    demo = ModelSettings(provider="demo")
    async with models_of({"main": demo}) as models:
        assert models.client("summary") is models.client("main")
        assert "summary" not in models
        with pytest.raises(UnknownModel, match="embedding"):
            models.client("embedding")
    async with models_of({"main": demo, "summary": demo}) as models:
        assert models.client("summary") is not models.client("main")


def test_an_unknown_fallback_is_named() -> None:
    with pytest.raises(UnknownModel, match=r"models\.main\.fallback.*backup"):
        Models({"main": ModelSettings(provider="demo", fallback=("backup",))})


# ------------------------------------------------------------------ live change
async def test_unchanged_clients_are_kept_and_the_others_end_when_idle(first: ModelServer) -> None:
    async with models_of({"main": entry(first), "old": entry(first, model="old")}) as models:
        main, old = models.client("main"), models.client("old")
        first.delay = lambda messages: 0.2
        running = asyncio.create_task(old.complete(ASK, print))
        await asyncio.sleep(0.05)
        renewed = await models.renew({"main": entry(first), "new": entry(first)})
        assert renewed.client("main") is main
        assert "old" not in renewed
        assert (await running).text == "答复：你好", "what runs is finished on the old one"
        assert (await old.complete(ASK, print)).text == "答复：你好", "and whoever holds it may go on"
        assert (await renewed.client("new").complete(ASK, print)).text == "答复：你好"
        await renewed.close()


async def test_a_changed_entry_gets_a_new_client(first: ModelServer, backup: ModelServer) -> None:
    async with models_of({"main": entry(first)}) as models:
        renewed = await models.renew({"main": entry(backup)})
        assert (await renewed.client("main").complete(ASK, print)).text == "备用模型的答复"
        assert not first.requests
        await renewed.close()


async def test_a_broken_change_changes_nothing(first: ModelServer) -> None:
    async with models_of({"main": entry(first)}) as models:
        with pytest.raises(UnknownModel):
            await models.renew({"main": entry(first, fallback=("nobody",))})
        assert (await models.client("main").complete(ASK, print)).text == "答复：你好"


# ------------------------------------------------------------------ what is loaded
@pytest.mark.parametrize(("provider", "loaded"), [("demo", False), ("openai", True)])
def test_the_sdk_is_loaded_at_the_start_and_only_when_needed(provider: str, loaded: bool) -> None:
    code = (
        "import sys\n"
        "from agents.model import ModelSettings\n"
        "from agents.models import Models\n"
        f"Models({{'main': ModelSettings(provider={provider!r})}})\n"
        "print('openai' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loaded)


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base-url", "api.deepseek.com"),
        ("base-url", ""),
        ("base-url", "https://api.deepseek.com /v1"),
        ("base-url", "http://[::1/v1"),
        ("api-key", "sk-secret 123"),
        ("api-key", "sk-secret\u3000密"),
        ("timeout", "0s"),
        ("max-concurrency", 0),
        ("provider", "other"),
    ],
)
def test_a_wrong_entry_is_refused_without_showing_the_key(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelSettings.model_validate({key: value})
    assert caught.value.errors()[0]["loc"] == (key,)
    assert "sk-secret" not in str(caught.value)


def test_a_pasted_key_loses_its_line_break() -> None:
    settings = ModelSettings.model_validate({"api-key": "sk-1\n"})
    assert settings.api_key.get_secret_value() == "sk-1"
    assert "sk-1" not in repr(settings)
