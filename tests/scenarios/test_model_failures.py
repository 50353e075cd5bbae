"""A model that is slow, busy, broken or badly configured: B33, B34."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Chunks, ModelServer, Raw, delta
from tests.scenarios.gateway import CANARY, Inside, asked, free_port, texts
from tests.scenarios.test_live_changes import taken_over
from tests.waiting import until

FRIENDLY = {
    "failed": "抱歉，刚才出了点问题，请稍后再试。",
    "busy": "现在使用的人较多，请稍后再试。",
    "unavailable": "抱歉，现在暂时无法回答，请稍后再试。",
    "broke-off": "抱歉，回答到一半时连接断开了，请再问一次。",
    "timeout": "抱歉，这次思考的时间太长了，请稍后再试，或把问题说得更具体一些。",
    "refused-by-model": "抱歉，这个问题我无法回答，请换一种说法试试。",
}
QUICK = {"models": {"main": {"timeout": "300ms", "total-timeout": "1500ms"}}}
"""For a model that is not waited for; who needs its answer takes `patient`."""


async def patient(gateway: Inside) -> None:
    """From now on the model is waited for as long as a busy machine needs."""
    async with taken_over(gateway):
        await gateway.change({"models": {"main": {"timeout": "20s", "total-timeout": "40s"}}})


async def test_one_slow_answer_holds_up_nobody_else(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    """B33: others are answered, webhooks acknowledged; the slow person's next message comes after the slow answer."""
    async with model.held("慢"):
        slow = await gateway.feishu_event("慢慢想", "ou_slow")
        await until(lambda: model.requests)
        after = await gateway.feishu_event("接着问", "ou_slow")
        people = [gateway.say("feishu", "快问", f"ou_{n}") for n in range(5)]
        people += [gateway.say("web", "快问", f"u{n}") for n in range(5)]
        assert await asyncio.gather(*people) == ["答复：快问"] * 10
        assert not texts(feishu, slow)
        assert not texts(feishu, after)
    await until(lambda: texts(feishu, after))
    assert [text for text in texts(feishu) if "快问" not in text] == ["答复：慢慢想", "答复：接着问"]


async def test_calls_at_once_are_bounded(tmp_path: Path, model: ModelServer) -> None:
    """B33: at most `max-concurrency` calls at a time; everybody gets their own answer."""
    async with Inside(tmp_path, model, {"models": {"main": {"max-concurrency": 2}}}) as gateway:
        async with model.held():
            asking = [asyncio.create_task(gateway.chat(f"u{n}", f"第{n}问")) for n in range(8)]
            await until(lambda: model.running == 2)
            await asyncio.sleep(0.1)
        assert [(await answer).text for answer in asking] == [f"答复：第{n}问" for n in range(8)]
        assert model.most_running == 2


async def test_overload_is_told(tmp_path: Path, model: ModelServer) -> None:
    """B33: who finds no place in time gets a fixed answer, not silence."""
    model.delay = lambda messages: 0.0 if "现在" in str(messages[-1]["content"]) else 60.0
    over = {"models": {"main": {"max-concurrency": 2, "total-timeout": "600ms"}}}
    async with Inside(tmp_path, model, over) as gateway:
        begun = time.monotonic()
        answers = await asyncio.gather(*(gateway.chat(f"u{n}", "问") for n in range(8)))
        assert time.monotonic() - begun < 25
        assert {answer.error for answer in answers} == {FRIENDLY["busy"], FRIENDLY["timeout"]}
        assert len(model.requests) < 8
        await patient(gateway)
        assert (await gateway.chat("u0", "现在呢")).text == "答复：现在呢"


CANARY_BODY = {"error": {"message": f"Incorrect API key provided: {CANARY} sk-test-123"}}
SLOW = {"error": {"message": "slow down"}}


@pytest.mark.parametrize(
    ("fails", "told", "calls"),
    [
        ([(429, SLOW, {"Retry-After": "0.2"})], "", 2),
        ([(429, SLOW, {"Retry-After": "3600"})], "busy", 1),
        ([(500, {"error": "x"}, {})] * 9, "unavailable", None),
        ([(500, {"error": "x"}, {})], "", 2),
        ([(401, CANARY_BODY, {})] * 9, "failed", 1),
        ([(403, CANARY_BODY, {})] * 9, "failed", 1),
        ([(404, {"error": {"message": "no such model"}}, {})] * 9, "failed", 1),
    ],
    ids=["429 soon", "429 late", "500 for ever", "500 once", "401", "403", "404"],
)
@pytest.mark.parametrize("way", ["web", "feishu"])
async def test_refusals(  # noqa: PLR0917 - pytest passes them by name
    tmp_path: Path,
    model: ModelServer,
    feishu: FakeFeishu,
    caplog: pytest.LogCaptureFixture,
    fails: list[Any],
    told: str,
    calls: int | None,
    way: str,
) -> None:
    """B34: in time, short, friendly, bounded; what was asked stays, no error is stored as an answer."""
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        model.fail = list(fails)
        begun = time.monotonic()
        said = await gateway.say(way, "第一问，说说看")
        assert time.monotonic() - begun < 30
        assert said == (FRIENDLY[told] if told else "答复：第一问，说说看")
        assert 1 <= len(model.requests) <= 4
        assert calls in (None, len(model.requests))
        stored = await gateway.said()
        assert stored == [("user", "第一问，说说看")] + ([] if told else [("assistant", said)])
        model.fail = []
        assert await gateway.say(way, "第二问，再说说") == "答复：第二问，再说说"
        answer = "（上一条未得到回答）" if told else said
        assert asked(model)[-1][:2] == [("user", "第一问，说说看"), ("assistant", answer)]
        logged = caplog.text + json.dumps(await gateway.get("/api/status"), ensure_ascii=False)
        assert CANARY not in logged
        assert "sk-test-123" not in logged


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Raw("<html>502 Bad Gateway</html>"), "failed"),
        (Raw('{"choices": []}', "application/json"), "failed"),
        ("", "failed"),
        ("<think>想想</think>", "failed"),
        (Chunks([delta("一半")], cut=True), "broke-off"),
        (Chunks([delta("一半"), *([": ping\n\n"] * 50)], pause=0.2), "timeout"),
    ],
    ids=["a web page", "no choices", "nothing", "only thoughts", "cut off", "silence in the middle"],
)
async def test_odd_answers(tmp_path: Path, model: ModelServer, answer: Any, told: str) -> None:
    """B34: what is no answer is told as a failure, and never stored; the next message works."""
    async with Inside(tmp_path, model, QUICK if told == "timeout" else {}) as gateway:
        model.answer = lambda messages: answer
        said = await gateway.chat("u", "第一问，说说看")
        assert said.error == FRIENDLY[told]
        assert [role for role, _ in await gateway.said()] == ["user"]
        if told == "timeout":
            await patient(gateway)
        model.answer = lambda messages: "好了"
        assert (await gateway.chat("u", "第二问")).text == "好了"


async def test_a_model_that_hangs(tmp_path: Path, model: ModelServer) -> None:
    """B34: told within the configured time."""
    async with Inside(tmp_path, model, QUICK) as gateway:
        model.delay = lambda messages: 60.0
        begun = time.monotonic()
        assert (await gateway.chat("u", "第一问")).error == FRIENDLY["timeout"]
        assert time.monotonic() - begun < 30
        model.delay = lambda messages: 0.0
        await patient(gateway)
        assert (await gateway.chat("u", "第二问")).text == "答复：第二问"


async def test_nobody_listens_where_the_model_should_be(tmp_path: Path, model: ModelServer) -> None:
    """B34: a refused connection, told in time and without the address."""
    nowhere = f"http://127.0.0.1:{free_port()}/v1"
    async with Inside(tmp_path, model, {"models": {"main": {"base-url": nowhere}}}) as gateway:
        begun = time.monotonic()
        said = await gateway.chat("u", "第一问")
        assert time.monotonic() - begun < 30
        assert said.error == FRIENDLY["unavailable"]
        assert not model.requests


async def test_reasoning_is_not_shown_and_not_stored(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    model.answer = lambda messages: {
        "role": "assistant",
        "content": "<think>想\n想</think>\n\n好的",
        "reasoning_content": "暗",
    }
    said = await gateway.chat("u", "说吧")
    assert (said.text, said.streamed) == ("好的", "好的")
    assert await gateway.feishu_says("说吧") == "好的"
    for path in await asyncio.to_thread(gateway.files):
        assert "想" not in await asyncio.to_thread(path.read_text)
