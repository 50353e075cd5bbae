"""What is written while an answer is being made: merged or not, always in order, never lost; B26."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Inside, Process, asked, texts
from tests.waiting import until, until_told

SLOW = "慢慢想"


async def test_what_waits_becomes_one_turn(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    async with model.held(SLOW):
        first = await gateway.feishu_event(SLOW)
        await until(lambda: model.requests)
        queued = [await gateway.feishu_event(text) for text in ("上海的", "Python", "25k")]
    await until(lambda: texts(feishu, queued[-1]))
    assert texts(feishu, first) == [f"答复：{SLOW}"]
    assert asked(model)[1:] == [[("user", SLOW), ("assistant", f"答复：{SLOW}"), ("user", "上海的\nPython\n25k")]]
    assert texts(feishu) == [f"答复：{SLOW}", "答复：上海的\nPython\n25k"], "one answer, to the newest message"
    items = await gateway.items()
    assert items[2].meta["ids"] == queued
    assert items[2].meta["id"] == queued[0]
    assert items[3].meta["to"] == queued[0]
    assert "ids" not in items[0].meta
    for number in queued:  # none of them is handled once more
        again = message_event("Python", open_id="ou_zhang", chat_id="oc_ou_zhang", message_id=number)
        assert await gateway.deliver(again)
    await gateway.feishu_says("还有吗")
    assert len(model.requests) == 3


async def test_every_reader_of_a_merged_turn_sees_its_answer(gateway: Inside, model: ModelServer) -> None:
    async def waiting() -> int:
        number: int = (await gateway.get("/api/status"))[1]["queue"]["waiting"]
        return number

    async with model.held(SLOW):
        first = asyncio.create_task(gateway.chat("u", SLOW))
        await until(lambda: model.requests)
        queued = [asyncio.create_task(gateway.chat("u", text)) for text in ("甲", "乙")]
        await until_told(waiting, 3)
    assert (await first).text == f"答复：{SLOW}"
    said = [await each for each in queued]
    assert said[0].text == said[1].text
    assert sorted(said[0].text.removeprefix("答复：").split("\n")) == ["乙", "甲"]
    assert len(model.requests) == 2


async def test_never_across_a_command_or_to_another_agent(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with model.held(SLOW):
        await gateway.feishu_event(SLOW)
        await until(lambda: model.requests)
        for text in ("一", "二", "/new", "三", "帮我推荐岗位", "四"):
            last = await gateway.feishu_event(text)
    await until(lambda: texts(feishu, last))
    assert [messages[-1][1] for messages in asked(model)] == [SLOW, "一\n二", "三", "帮我推荐岗位\n四"]
    assert asked(model)[2] == [("user", "三")], "/new stands between them"
    assert ["PROMPT-JOB" in request["messages"][0]["content"] for request in model.requests] == [*[False] * 3, True]


async def test_without_merging_each_has_its_turn_in_order(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    rng = random.Random(26)
    model.delay = lambda messages: rng.random() * 0.02
    async with Inside(tmp_path, model, {"conversations": {"merge-queued": False}}, feishu=feishu) as gateway:
        numbers = [await gateway.feishu_event(f"第{n:02d}条") for n in range(20)]
        await until(lambda: texts(feishu, numbers[-1]))
        assert texts(feishu) == [f"答复：第{n:02d}条" for n in range(20)]
        items = await gateway.items()
        assert [item.text for item in items if item.role == "user"] == [f"第{n:02d}条" for n in range(20)]
        assert [item.role for item in items] == ["user", "assistant"] * 20


@pytest.mark.parametrize("merge", [True, False])
async def test_twenty_at_once_and_twenty_other_people(tmp_path: Path, model: ModelServer, merge: bool) -> None:
    """B26: each question and each answer exactly once, linked; other people are not slowed."""
    rng = random.Random(26)
    model.delay = lambda messages: rng.random() * 0.05
    loop = asyncio.get_running_loop()
    async with Inside(tmp_path, model, {"conversations": {"merge-queued": merge}}) as gateway:
        ends: dict[str, float] = {}

        async def ask(user: str, text: str) -> None:
            assert (await gateway.chat(user, text)).text
            ends[text] = loop.time()

        await asyncio.gather(
            *(ask("u", f"问{n:02d}。") for n in range(20)), *(ask(f"other-{n}", f"他{n:02d}。") for n in range(20))
        )
        if not merge:
            others = sorted(at for text, at in ends.items() if text[0] == "他")
            assert others[10] < max(at for text, at in ends.items() if text[0] == "问")
        files = await asyncio.to_thread(lambda: [checked(path) for path in gateway.files()])
        assert len(files) == 21
        (busy,) = (items for items in files if "问" in items[0].text)
        said = "".join(item.text for item in busy if item.role == "user")
        assert sorted(said.replace("\n", "").split("。")[:-1]) == [f"问{n:02d}" for n in range(20)]
        assert [item.role for item in busy] == ["user", "assistant"] * (len(busy) // 2)
        for question, answer in zip(busy[::2], busy[1::2], strict=True):
            assert answer.meta["to"] == question.meta["id"]
            assert answer.text == f"答复：{question.text}"


async def test_debounce_waits_for_the_rest_of_a_thought(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    now = [time.time()]
    gateway = Inside(tmp_path, model, {"conversations": {"debounce": "200ms"}}, feishu=feishu)
    gateway.clock = lambda: now[0]
    async with gateway:
        for text in ("我想找", "上海的", "Python 岗"):
            last = await gateway.feishu_event(text)
            await asyncio.sleep(0.3)
            now[0] += 0.15
        assert not model.requests
        assert "/help" in await gateway.feishu_says("/help"), "a command does not wait"
        assert not model.requests
        now[0] += 0.05
        await until(lambda: texts(feishu, last))
        assert asked(model) == [[("user", "我想找\n上海的\nPython 岗")]]


async def test_debounce_ends_though_the_clock_steps_back(tmp_path: Path, model: ModelServer) -> None:
    """B56: a clock that is set back by an hour holds nobody up for an hour."""
    now = [1_767_225_600.0]
    gateway = Inside(tmp_path, model, {"conversations": {"debounce": "200ms"}})
    gateway.clock = lambda: now[0]
    async with gateway:
        question = asyncio.create_task(gateway.chat("u", "你好呀"))
        await asyncio.sleep(0.1)
        now[0] -= 3600
        async with asyncio.timeout(40):
            assert (await question).text == "答复：你好呀"


async def test_a_merged_turn_is_the_same_after_a_kill(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """What was taken as one turn stays one turn, whatever came in meanwhile."""
    async with Process(tmp_path, model, feishu=feishu) as gateway:
        async with model.held(SLOW):
            await gateway.feishu_event(SLOW)
            await until(lambda: model.requests)
            queued = [await gateway.feishu_event(text) for text in ("甲", "乙")]
            model.delay = lambda messages: 60.0 if messages[-1]["content"] != SLOW else 0.0
        await until(lambda: len(model.requests) == 2)
        later = await gateway.feishu_event("丙")
        await gateway.kill()
        model.delay = lambda messages: 0.0
        await gateway.start()
        await until(lambda: texts(feishu, later))
        assert [messages[-1][1] for messages in asked(model)] == [SLOW, "甲\n乙", "甲\n乙", "丙"]
        assert texts(feishu) == [f"答复：{SLOW}", "答复：甲\n乙", "答复：丙"]
        items = await gateway.items()
        assert [item.text for item in items if item.role == "user"] == [SLOW, "甲\n乙", "丙"]
        assert items[2].meta["ids"] == queued
