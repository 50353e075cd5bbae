"""All models of one configuration: fallbacks, taking over a change, the end; and what an entry may say."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker, Pass
from agents.model import (
    ChatMessage,
    Completion,
    ContextTooLong,
    ModelError,
    ModelMisconfigured,
    ModelRefused,
    ModelRequest,
    ModelResting,
    ModelSettings,
    ModelTimeout,
    ModelUnavailable,
    NoPlace,
    OddAnswer,
)
from agents.models import Models, UnknownModel, WatchedClient
from tests.platforms.model_server import Chunks, ModelServer, Raw, delta
from tests.waiting import until

ASK = ModelRequest(messages=(ChatMessage("system", "s"), ChatMessage("user", "你好")))


def entry(server: ModelServer | None, **keys: Any) -> ModelSettings:
    url = server.base_url if server else "http://127.0.0.1:9/v1"
    return ModelSettings(**{"base_url": url, "api_key": "k", "timeout": 20, "total_timeout": 40, **keys})


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
    first.fail = [(401, {}, {})]
    async with models_of({"main": entry(first, fallback=("backup",)), "backup": entry(backup)}) as models:
        assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
        assert len(first.requests) == 1
    first.delay = lambda messages: 60.0
    settings = {"main": entry(first, fallback=("backup",), timeout=0.2), "backup": entry(backup)}
    async with models_of(settings) as models:
        assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
        assert len(backup.requests) == 2


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
    [
        (400, {"error": {"code": "context_length_exceeded"}}, ContextTooLong),
        (400, {"error": {"code": "content_filter"}}, ModelRefused),
    ],
)
async def test_what_another_model_would_not_better_is_not_asked_of_it(
    first: ModelServer, backup: ModelServer, status: int, body: object, kind: type[Exception]
) -> None:
    first.fail = [(status, body, {})]
    async with models_of({"main": entry(first, fallback=("backup",)), "backup": entry(backup)}) as models:
        with pytest.raises(kind):
            await models.client("main").complete(ASK, print)
        assert not backup.requests


async def test_the_next_model_answers_where_the_first_gives_no_answer(first: ModelServer, backup: ModelServer) -> None:
    first.answers = [Raw("<html>登录</html>"), "", Chunks([{"choices": []}])]
    async with models_of({"main": entry(first, fallback=("backup",)), "backup": entry(backup)}) as models:
        for _ in range(3):
            assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
    assert len(first.requests) == 3


async def test_the_first_ones_total_time_is_for_all(backup: ModelServer) -> None:
    backup.delay = lambda messages: 60.0
    settings = {
        "main": entry(None, fallback=("backup",), total_timeout=0.4),
        "backup": entry(backup),
    }
    async with models_of(settings) as models:
        start = time.monotonic()
        with pytest.raises((ModelTimeout, ModelUnavailable)):
            await models.client("main").complete(ASK, print)
        assert time.monotonic() - start < 15


async def test_when_all_fail_the_last_error_is_told(first: ModelServer) -> None:
    first.fail = [(403, {}, {})]
    async with models_of({"main": entry(None, fallback=("main", "other")), "other": entry(first)}) as models:
        with pytest.raises(ModelMisconfigured):
            await models.client("main").complete(ASK, print)


# ------------------------------------------------------------------ a model that is dead
class Scripted:
    """A client whose answers are given one after another: an error is raised, anything else is an answer."""

    def __init__(self, clock: "Clock", **keys: Any) -> None:
        self.settings = entry(None, model="scripted", **keys)
        self.script: list[Exception | float] = []
        self.asked = 0

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None], **more: Any) -> Completion:
        self.asked += 1
        outcome = self.script.pop(0) if self.script else 0.0
        if isinstance(outcome, Exception):
            raise outcome
        await asyncio.sleep(outcome)
        return Completion(text="答", model="scripted")

    async def retire(self) -> None: ...


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Dead:
    """A watched client with a clock that is set by hand."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.client = Scripted(self.clock)
        self.watched = WatchedClient(self.client, self.clock, Breaker(self.clock, jitter=lambda: 1.0))

    async def ask(self, *script: Exception | float) -> str:
        self.client.script = list(script)
        try:
            return (await self.watched.complete(ASK, print)).text
        except ModelError as error:
            return type(error).__name__


async def test_a_model_that_fails_again_and_again_is_left_alone_and_then_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "sanqiao.model")
    dead = Dead()
    for _ in range(FAILURES):
        assert await dead.ask(ModelUnavailable("503")) == "ModelUnavailable"
    assert not dead.watched.health.ok
    assert [await dead.ask() for _ in range(3)] == ["ModelResting"] * 3
    assert dead.client.asked == FAILURES
    dead.clock.now += FIRST_PAUSE
    assert await dead.ask(ModelTimeout("…"), 0.0) == "ModelTimeout", "one is let through; here a late time-out"
    dead.clock.now += 1
    assert await dead.ask() == "答", "which was not given its time and so says nothing"
    assert dead.watched.health.ok
    assert [await dead.ask() for _ in range(3)] == ["答"] * 3
    logged = [record.getMessage().split()[0] for record in caplog.records]
    assert logged == ["model.down", "model.up"], "one line for each change"


async def test_a_trial_that_fails_makes_the_pause_longer() -> None:
    dead = Dead()
    for _ in range(FAILURES):
        await dead.ask(ModelMisconfigured("401"))
    for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE):
        dead.clock.now += pause - 0.1
        assert await dead.ask() == "ModelResting"
        dead.clock.now += 0.1
        assert await dead.ask(ModelUnavailable("503")) == "ModelUnavailable"
    for _ in range(8):
        dead.clock.now += LONGEST_PAUSE
        assert await dead.ask(ModelUnavailable("503")) == "ModelUnavailable", "never longer than the longest"
    dead.clock.now += LONGEST_PAUSE
    assert await dead.ask() == "答"


@pytest.mark.parametrize(
    "error", [NoPlace("…"), ModelTimeout("…"), OddAnswer("…"), ContextTooLong("…"), ModelRefused("…")], ids=repr
)
async def test_what_says_nothing_of_a_model_leaves_it_in_use(error: Exception) -> None:
    dead = Dead()
    for _ in range(3 * FAILURES):
        assert await dead.ask(error) == type(error).__name__
    assert await dead.ask() == "答"


async def test_failures_that_are_not_in_a_row_do_not_count() -> None:
    dead = Dead()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            await dead.ask(ModelUnavailable("503"))
        assert await dead.ask() == "答"


async def test_one_trial_at_a_time_and_one_that_is_stopped_decides_nothing() -> None:
    dead = Dead()
    for _ in range(FAILURES):
        await dead.ask(ModelUnavailable("503"))
    dead.clock.now += FIRST_PAUSE
    trial = asyncio.create_task(dead.ask(9.0))
    await asyncio.sleep(0.01)
    dead.client.script = []
    with pytest.raises(ModelResting):
        await dead.watched.complete(ASK, print)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    assert await dead.ask() == "答"


async def test_a_dead_model_costs_no_time_where_another_answers(
    first: ModelServer, backup: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    first.fail = [(500, {}, {})] * 99
    settings = {"main": entry(first, fallback=("backup",)), "backup": entry(backup)}
    async with models_of(settings) as models:
        models._own["main"]._client._first_pause = 0.0  # type: ignore[attr-defined]
        for _ in range(FAILURES):
            await models.client("main").complete(ASK, print)
        asked = len(first.requests)
        caplog.clear()
        assert (await models.client("main").complete(ASK, print)).text == "备用模型的答复"
        assert len(first.requests) == asked
        assert not caplog.records
        assert not models.health()["main"].ok


@given(st.lists(st.tuples(st.sampled_from(["ask", "good", "bad", "none"]), st.floats(0, 100))))
def test_a_breaker_never_gives_two_trials_at_once_and_always_opens_again(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    breaker = Breaker(clock, jitter=lambda: 0.5)
    held: list[Pass] = []
    late: list[Pass] = []
    for what, seconds in steps:
        clock.now += seconds
        if late and what != "ask":
            breaker.failed(late.pop())
        if what == "ask":
            leave = breaker.ask()
            if leave:
                assert leave.trial == breaker.is_open
                held.append(leave)
            assert sum(each.trial for each in held) <= 1
        elif held:
            leave = held.pop()
            {"good": breaker.succeeded, "bad": breaker.failed, "none": breaker.undecided}[what](leave)
            if what == "good":
                assert not breaker.is_open
                late += [each for each in held if each.trial]  # its outcome decides nothing any more
                held = [each for each in held if not each.trial]
    for leave in held:
        breaker.undecided(leave)
    clock.now += LONGEST_PAUSE
    assert breaker.ask() is not None, "whoever asks long enough after is let through"


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
        async with first.held():
            running = asyncio.create_task(old.complete(ASK, print))
            await until(lambda: first.running)
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


def test_the_first_change_to_a_real_model_loads_the_sdk_beside_the_event_loop() -> None:
    code = (
        "import asyncio, sys, threading\n"
        "from agents.model import ModelSettings\n"
        "from agents.models import Models\n"
        "loaded_in = {}\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        loaded_in[name] = threading.current_thread()\n"
        "sys.meta_path.insert(0, Watch())\n"
        "async def change():\n"
        "    demo = Models({'main': ModelSettings(provider='demo')})\n"
        "    await (await demo.renew({'main': ModelSettings(provider='openai')})).close()\n"
        "asyncio.run(change())\n"
        "beside = [loaded_in[name] for name in ('agents.openai_client', 'openai', 'httpx2')]\n"
        "print(threading.main_thread() not in beside)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


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
