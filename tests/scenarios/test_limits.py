"""Who is answered, how often, and how much one may write."""

import asyncio
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway import lanes
from gateway.storage.inbox import Inbox
from memory.errors import StoreFull
from memory.memory import Memory
from tests.platforms.feishu_server import FakeFeishu, mention
from tests.platforms.model_server import Chunks, ModelServer, Raw, delta
from tests.scenarios.gateway import Clock, Inside, asked, shown, texts
from tests.scenarios.test_tools import call
from tests.waiting import until

NO_RIGHT = "抱歉，你还没有使用权限，请联系管理员。"
TOO_FAST = "发送得太快了，请稍等一分钟再试。"
TOO_LONG = "这条内容太长了，请缩短或分几次发送。"
USED_UP = "你今天的用量已经用完，请明天再来。"
REFUSED = Raw('{"error": {"message": "no"}}', "application/json", 401)
LOOKS_UP = {"general-agent": {"tools": ["read_profile"]}}
EMPTY = "没有收到文字内容，请把问题写给我。"


def timed(gateway: Inside) -> Clock:
    clock = Clock()
    gateway.clock = clock
    return clock


async def test_direct_chats_by_allow_list(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    over = {"channels": {"feishu": {"dm-policy": "allowlist", "allow-from": ["ou_li"]}}}
    gateway = Inside(tmp_path, model, over, feishu=feishu)
    clock = timed(gateway)
    async with gateway:
        assert await gateway.feishu_says("让我进来") == NO_RIGHT
        await gateway.feishu_event("让我进来！")
        assert await gateway.feishu_says("你好呀", "ou_li") == "答复：你好呀"
        assert texts(feishu).count(NO_RIGHT) == 1, "told once a minute"
        clock.ahead += 61
        assert await gateway.feishu_says("/help") == NO_RIGHT, "commands neither"
        group = {"chat_id": "oc_g", "chat_type": "group", "mentions": [mention(1, "ou_bot", "助手", "bot")]}
        assert await gateway.feishu_says("@_user_1 大家好", **group) == "答复：大家好", "direct chats only"
        assert (await gateway.chat("u", "你好呀")).text == "答复：你好呀", "of this entry only"
        assert len(model.requests) == 3


async def test_no_direct_chats_at_all(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    async with Inside(tmp_path, model, {"channels": {"feishu": {"dm-policy": "off"}}}, feishu=feishu) as gateway:
        assert await gateway.feishu_says("让我进来") == NO_RIGHT
        assert not model.requests
        assert not gateway.files()


@pytest.mark.parametrize("way", ["web", "feishu"])
async def test_messages_a_minute(tmp_path: Path, model: ModelServer, feishu: FakeFeishu, way: str) -> None:
    gateway = Inside(tmp_path, model, {"limits": {"messages-per-minute": 3}}, feishu=feishu)
    clock = timed(gateway)
    async with gateway:
        for text in ("一条", "两条", "三条"):
            assert await gateway.say(way, text) == f"答复：{text}"
        assert await gateway.say(way, "四条") == TOO_FAST
        if way == "feishu":
            for text in ("五条", "六条"):
                await gateway.feishu_event(text)
        assert await gateway.say(way, "我没超", "ou_li") == "答复：我没超", "each person counts alone"
        assert sum(each.text == TOO_FAST for each in shown(feishu)) == (1 if way == "feishu" else 0)
        clock.ahead += 61
        assert await gateway.say(way, "七条") == "答复：七条"
        assert [messages[-1][1] for messages in asked(model)] == ["一条", "两条", "三条", "我没超", "七条"]
        assert len(asked(model)[-1]) == 7, "what was refused is no turn"


async def test_who_writes_too_fast_can_still_stop_and_be_forgotten(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    gateway = Inside(tmp_path, model, {"limits": {"messages-per-minute": 3}}, feishu=feishu)
    async with gateway:
        for text in ("一条", "两条", "三条"):
            assert await gateway.feishu_says(text) == f"答复：{text}"
        assert await gateway.feishu_says("四条") == TOO_FAST
        assert await gateway.feishu_says("/stop") == "现在没有正在进行的回答。"
        assert "删除" in await gateway.feishu_says("/forget")
        assert not gateway.files()
        before = len(shown(feishu))
        for text in ("/stop", "/stop", "/stop"):  # the first is the third beyond the limit: these are bounded too
            await gateway.feishu_event(text)
        await until(lambda: len(shown(feishu)) > before)
        assert len(shown(feishu)) == before + 1


async def test_what_is_refused_costs_nearly_nothing(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """However it looks: who writes too fast must not keep the others waiting."""
    gateway = Inside(tmp_path, model, {"limits": {"messages-per-minute": 1}}, feishu=feishu)
    async with gateway:
        assert await gateway.feishu_says("一条") == "答复：一条"
        took = time.process_time()
        for _ in range(5):
            await gateway.feishu_event("." * 16_000 + "x")
            await gateway.feishu_event("(" + " " * 16_000 + ")")
        took = time.process_time() - took
        plain = time.process_time()
        for _ in range(5):
            await gateway.feishu_event("字" * 5_300)
            await gateway.feishu_event("字" * 5_300)
        plain = time.process_time() - plain
        assert took < 5 * plain + 0.5


async def test_a_clock_set_back_locks_nobody_out(tmp_path: Path, model: ModelServer) -> None:
    """B56: limits that were reached in the future count no more."""
    gateway = Inside(tmp_path, model, {"limits": {"messages-per-minute": 1}})
    clock = timed(gateway)
    async with gateway:
        assert (await gateway.chat("u", "一条")).text
        assert (await gateway.chat("u", "两条")).error == TOO_FAST
        clock.ahead -= 3600
        assert (await gateway.chat("u", "三条")).text == "答复：三条"
        clock.ahead += 61
        assert (await gateway.chat("u", "四条")).text == "答复：四条"


async def test_a_flood_is_counted_once(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """Messages that wait in the inbox alone are not counted a second time when they are fetched."""
    over = {"limits": {"messages-per-minute": 75}, "conversations": {"merge-queued": False}}
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        model.delay = lambda messages: 0.5 if len(model.requests) == 1 else 0.0
        numbers = [await gateway.feishu_event(f"第{n:02d}条") for n in range(74)]
        await until(lambda: texts(feishu, numbers[-1]))
        assert texts(feishu) == [f"答复：第{n:02d}条" for n in range(74)]


async def test_tokens_a_day(tmp_path: Path, model: ModelServer) -> None:
    """What the model's server counts (15 an answer here) is held against the limit, over a restart and until midnight."""
    gateway = Inside(tmp_path, model, {"limits": {"tokens-per-day": 30}})
    clock = timed(gateway)
    clock.ahead = _seconds_to_noon()
    async with gateway:
        assert await gateway.say("web", "一条", "u") == "答复：一条"
        assert await gateway.say("web", "两条", "u") == "答复：两条"
        assert await gateway.say("web", "三条", "u") == USED_UP
        assert await gateway.say("web", "我没超", "v") == "答复：我没超", "each person counts alone"
    async with gateway:
        assert await gateway.say("web", "四条", "u") == USED_UP, "a restart changes nothing"
        assert "/help" in await gateway.say("web", "/help", "u"), "commands cost nothing"
        assert [messages[-1][1] for messages in asked(model)] == ["一条", "两条", "我没超"]
        clock.ahead += 11 * 3600
        assert await gateway.say("web", "还是今天", "u") == USED_UP
        clock.ahead += 3600
        assert await gateway.say("web", "五条", "u") == "答复：五条", "a new day, by the configured zone"
        assert len(asked(model)[-1]) == 5, "what was refused is no turn"


async def test_tokens_a_day_on_a_platform(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 15}}, feishu=feishu) as gateway:
        assert await gateway.feishu_says("一条") == "答复：一条"
        assert await gateway.feishu_says("两条") == USED_UP
        await gateway.feishu_event("三条")
        assert await gateway.feishu_says("我没超", "ou_li") == "答复：我没超"
        assert texts(feishu).count(USED_UP) == 1, "told once a minute"


async def test_tokens_a_day_follow_the_config_and_the_person(tmp_path: Path, model: ModelServer) -> None:
    gateway = Inside(tmp_path, model, {"limits": {"tokens-per-day": 15}, "texts": {"daily-limit": "明天见"}})
    timed(gateway).ahead = _seconds_to_noon()
    async with gateway:
        assert (await gateway.chat("u", "一条")).text
        assert (await gateway.chat("u", "两条", group="g")).error == "明天见", "in every chat of this person"
        await gateway.change({"limits": {"tokens-per-day": 0}})
        await until(lambda: gateway.app.live.current.limits.tokens_per_day == 0)
        assert (await gateway.chat("u", "三条")).text == "答复：三条"
        await gateway.change({"limits": {"tokens-per-day": 40}})
        await until(lambda: gateway.app.live.current.limits.tokens_per_day == 40)
        assert (await gateway.chat("u", "四条")).text == "答复：四条", "what was counted without a limit counts"
        assert (await gateway.chat("u", "五条")).error == "明天见"
        await gateway.chat("u", "/forget")
        assert (await gateway.chat("u", "六条")).error == "明天见", "nobody gets a new day by being forgotten"


async def test_tokens_are_estimated_where_the_server_tells_nothing(tmp_path: Path, model: ModelServer) -> None:
    model.answer = lambda messages: Chunks([delta("没有计数", "stop")])
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 100}}) as gateway:
        said = await gateway.chat("u", "一" * 60)
        assert said.text == "没有计数"
        assert said.usage is None
        assert (await gateway.chat("u", "两条")).error == USED_UP


async def test_an_answer_that_is_stopped_counts(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 1}}) as gateway, model.held("慢"):
        asking = asyncio.create_task(gateway.chat("u", "慢慢想"))
        await until(lambda: model.running)
        await gateway.chat("u", "/stop")
        await asking
        assert (await gateway.chat("u", "再来")).error == USED_UP


async def test_rounds_of_tools_count_when_the_model_fails_after_them(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 15}}, LOOKS_UP) as gateway:
        model.answer = lambda messages: call("read_profile", {}) if messages[-1]["role"] == "user" else REFUSED
        assert (await gateway.chat("u", "我是谁")).error not in (None, USED_UP)
        assert len(model.requests) == 2
        assert (await gateway.chat("u", "再来")).error == USED_UP
        assert (await gateway.chat("v", "我没超")).error != USED_UP


async def test_a_request_that_was_refused_counts_nothing(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 1}}) as gateway:
        model.answers = [REFUSED]
        assert (await gateway.chat("u", "你好呀")).error
        assert (await gateway.chat("u", "再来")).text == "答复：再来"


async def test_an_answer_that_cannot_be_stored_counts(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("满了")

    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 15}}) as gateway:
        monkeypatch.setattr(Memory, "remember", full)
        assert (await gateway.chat("u", "你好呀")).error not in (None, USED_UP)
        monkeypatch.undo()
        assert (await gateway.chat("u", "再来")).error == USED_UP


async def test_an_answer_that_is_found_in_the_file_counts_by_estimate(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 100}}) as gateway:
        assert (await gateway.chat("u", "一" * 60)).text, "15 tokens, as the server tells"
        _not_recorded_once(monkeypatch)
        assert (await gateway.chat("u", "两条")).text == "答复：两条"
        assert len(model.requests) == 2, "it was not asked again"
        assert (await gateway.chat("u", "三条")).error == USED_UP, "what was said before is in the estimate"


async def test_rounds_of_tools_that_are_found_in_the_file_count_by_estimate(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Inside(tmp_path, model, {"limits": {"tokens-per-day": 100}}, LOOKS_UP) as gateway:
        model.answers = [call("read_profile", {}), REFUSED, "你是张三"]
        _not_recorded_once(monkeypatch)
        assert (await gateway.chat("u", "我是谁" * 20)).text == "你是张三"
        assert len(model.requests) == 3
        assert (await gateway.chat("u", "再来")).error == USED_UP


def _not_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next answer is in its file, but not in the database: it is run again, as after a kill."""
    finish = Inbox.finish

    async def locked(*_: object, **__: object) -> None:
        monkeypatch.setattr(Inbox, "finish", finish)
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(Inbox, "finish", locked)
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.01)


def _seconds_to_noon() -> float:
    """How far ahead (or back) noon of today is in the zone of the gateway."""
    now = datetime.now(ZoneInfo("Asia/Shanghai"))
    return (now.replace(hour=12, minute=0, second=0) - now).total_seconds()


@pytest.mark.parametrize("way", ["web", "feishu"])
async def test_too_long_a_text(tmp_path: Path, model: ModelServer, feishu: FakeFeishu, way: str) -> None:
    async with Inside(tmp_path, model, {"limits": {"max-text-bytes": 60}}, feishu=feishu) as gateway:
        assert await gateway.say(way, "长" * 21) == TOO_LONG
        assert not model.requests
        assert not gateway.files()
        assert await gateway.say(way, "长" * 20) == "答复：" + "长" * 20, "just within"
        assert await gateway.say(way, "你好呀") == "答复：你好呀"


@pytest.mark.parametrize("text", ["", "\u200b\u2060\ufeff", "\u3000\u3000", " \u200d\u00ad "])
async def test_nothing_to_answer(gateway: Inside, model: ModelServer, text: str) -> None:
    """B07: a message of invisible characters is no question."""
    assert await gateway.feishu_says(text) == EMPTY
    assert not model.requests
    assert not gateway.files()
    assert await gateway.feishu_says("👍") == "答复：👍", "an emoji is a message"
