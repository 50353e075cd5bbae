"""Commands through Feishu and the web chat: never the model, never a turn, in every spelling; B11."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gateway import lanes
from gateway.storage.inbox import Inbox
from memory.conversation import user_id
from tests.platforms.feishu_server import FakeFeishu, mention, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import said
from tests.scenarios.gateway import Inside, Process, asked, id_of, texts
from tests.waiting import until

BOT = mention(1, "ou_bot", "助手", "bot")
BEGUN_ANEW = [
    ("user", "我叫张三"),
    ("assistant", "答复：我叫张三"),
    ("reset", "new"),
    ("user", "我叫什么？"),
    ("assistant", "我不知道你的名字"),
]
BOTH = pytest.mark.parametrize("way", ["web", "feishu"])


@BOTH
async def test_reading_commands(gateway: Inside, model: ModelServer, way: str) -> None:
    assert "还没有对话记录" in await gateway.say(way, "/history")
    await gateway.say(way, "我叫张三")
    for spellings, parts in (
        (("/help", "／help", "/HELP", "帮助", "/帮助", " /help\u200b"), ("/agents", "/new")),
        (("/agents", "智能体", "/智能体列表"), ("job-recommend-agent：推荐岗位", "resume-optimise-agent：优化简历")),
        (("/agent",), ("general-agent",)),
        (("/status", "状态", "／Status"), ("general-agent", "延续上一轮", "2 条", "fake-main")),
        (("/whoami", "我的标识"), ("ou_zhang",)),
        (("/history", "历史", "历史记录"), ("我：我叫张三", "答：答复：我叫张三")),
        (("/stop", "停止"), ("没有正在进行的回答",)),
        (("/frobnicate",), ("没有「/frobnicate」这个命令",)),
    ):
        for spelling in spellings:
            answer = await gateway.say(way, spelling)
            assert all(part in answer for part in parts), (spelling, answer)
    assert len(model.requests) == 1
    assert await gateway.said() == [("user", "我叫张三"), ("assistant", "答复：我叫张三")]


async def test_whoami_tells_the_id_of_the_conversations(gateway: Inside) -> None:
    assert user_id("feishu", "cli_test", "ou_zhang") in await gateway.feishu_says("/whoami")
    assert user_id("web", "web", "li") in (await gateway.chat("li", "/whoami")).text


async def test_a_command_has_no_route_and_no_conversation(gateway: Inside) -> None:
    answer = await gateway.chat("u", "/help")
    assert (answer.agent, answer.conversation, answer.streamed) == (None, None, "")


@BOTH
@pytest.mark.parametrize("spelling", ["/new", "／CLEAR", "新对话"])
async def test_a_new_conversation(gateway: Inside, model: ModelServer, way: str, spelling: str) -> None:
    await gateway.say(way, "我叫张三")
    await gateway.say(way, "帮我推荐岗位")
    assert "重新开始" in await gateway.say(way, spelling)
    assert await gateway.say(way, "我叫什么？") == "我不知道你的名字"
    assert "PROMPT-GENERAL" in model.requests[-1]["messages"][0]["content"], "no agent is sticky any more"
    await gateway.say(way, "再推荐岗位")
    assert asked(model)[-1] == [("user", "再推荐岗位")], "every agent of the lane begins afresh"
    roles = [role for role, _ in await gateway.said("general-agent")]
    assert roles == ["user", "assistant", "reset", "user", "assistant"], "nothing is deleted"


@BOTH
@pytest.mark.parametrize("way_to_say", ["/new 我叫什么？", "／CLEAR\n我叫什么？"])
async def test_a_question_behind_new_is_the_first_of_the_new_conversation(
    gateway: Inside, model: ModelServer, way: str, way_to_say: str
) -> None:
    await gateway.say(way, "我叫张三")
    await gateway.say(way, "/agent resume-optimise-agent")
    assert await gateway.say(way, way_to_say) == "我不知道你的名字"
    assert asked(model)[-1] == [("user", "我叫什么？")]
    assert "PROMPT-GENERAL" in model.requests[-1]["messages"][0]["content"], "no agent is sticky any more"
    assert await gateway.said("general-agent") == BEGUN_ANEW


async def test_new_with_a_question_after_a_stop_between_the_two(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversation was begun anew, the question not taken yet: both are there once after the next start."""
    await gateway.feishu_says("我叫张三")
    take, reached = Inbox.take, asyncio.Event()

    async def never(*_: object) -> bool:
        reached.set()
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(Inbox, "take", never)
    await gateway.change({"server": {"drain": "0s"}})
    number = await gateway.feishu_event("/new 我叫什么？")
    await reached.wait()
    await gateway.stop()
    monkeypatch.setattr(Inbox, "take", take)
    await gateway.start()
    await until(lambda: texts(feishu, number))
    assert texts(feishu, number) == ["我不知道你的名字"]
    assert await gateway.said() == BEGUN_ANEW


@pytest.mark.parametrize("step", ["take", "finish"])
async def test_new_with_a_question_that_is_tried_again(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The database refuses once, before or after the question went to a file that /new did not see."""
    await gateway.feishu_says("帮我推荐岗位")
    right, calls = getattr(Inbox, step), len(model.requests)

    async def locked(*_: object, **__: object) -> None:
        monkeypatch.setattr(Inbox, step, right)
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(Inbox, step, locked)
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.01)
    number = await gateway.feishu_event("/new 我叫什么？")
    await until(lambda: texts(feishu, number))
    assert texts(feishu, number) == ["我不知道你的名字"]
    assert len(model.requests) == calls + 1
    assert [role for role, _ in await gateway.said("job-recommend-agent")] == ["user", "assistant", "reset"]
    assert await gateway.said("general-agent") == [("user", "我叫什么？"), ("assistant", "我不知道你的名字")]


async def test_new_with_a_question_delivered_again_and_killed_while_the_model_thinks(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with Process(tmp_path, model, feishu=feishu) as running:
        await running.feishu_says("我叫张三")
        model.delay = lambda messages: 60.0
        event = message_event("/new 我叫什么？", open_id="ou_zhang", chat_id="oc_ou_zhang")
        assert await running.deliver(event)
        assert await running.deliver(event)
        await until(lambda: len(model.requests) == 2)
        await running.kill()
        model.delay = lambda messages: 0.0
        await running.start()
        await running.deliver(event)
        await until(lambda: texts(feishu, id_of(event)))
        assert await running.feishu_says("还在吗") == "答复：还在吗"
        assert texts(feishu, id_of(event)) == ["我不知道你的名字"]
        assert (await running.said())[:5] == BEGUN_ANEW


async def test_what_stands_behind_other_commands_is_not_dropped_in_silence(gateway: Inside, model: ModelServer) -> None:
    await gateway.say("web", "我叫张三")
    answer = await gateway.say("web", "/status 怎么样")
    assert "当前智能体" in answer
    assert answer.endswith("命令后面的内容没有处理，需要的话请另发一条。")
    assert "没有处理" not in await gateway.say("web", "/status")
    assert "/forget」只能单独发送" in await gateway.say("web", "/forget 我刚才说的名字")
    assert len(await gateway.said()) == 2, "nothing was forgotten"
    assert len(model.requests) == 1


@BOTH
async def test_choosing_an_agent(gateway: Inside, model: ModelServer, way: str) -> None:
    assert "优化简历" in await gateway.say(way, "/agent resume-optimise-agent")
    await gateway.say(way, "帮我推荐岗位")
    assert "PROMPT-RESUME" in model.requests[-1]["messages"][0]["content"], "the choice stands above the rules"
    assert "推荐岗位" in await gateway.say(way, "切换 JOB")
    await gateway.say(way, "随便说说")
    assert "PROMPT-JOB" in model.requests[-1]["messages"][0]["content"]
    assert "没有名为「nobody」的智能体" in await gateway.say(way, "/agent nobody")
    assert "用户用 /agent 选定" in await gateway.say(way, "/status")
    await gateway.say(way, "/new")
    assert "默认" in await gateway.say(way, "/status")
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("said", "agent"),
    [
        ("/agent 简历", "resume-optimise-agent"),
        ("/agent 「简历」。", "resume-optimise-agent"),
        ("切换 找工作的", "job-recommend-agent"),
        ("/agent 通用", "general-agent"),
        ("/agent resume", "resume-optimise-agent"),
    ],
)
async def test_an_agent_is_chosen_by_what_it_is_about(gateway: Inside, said: str, agent: str) -> None:
    assert f"已换用 {agent}" in await gateway.say("web", said)


@pytest.mark.parametrize("said", ["/agent 找工作或简历", "/agent 岗", "/agent 聊天", "/agent ？"])
async def test_an_agent_that_is_not_clear_is_not_chosen(gateway: Inside, said: str) -> None:
    assert "可用的有：general-agent、job-recommend-agent、resume-optimise-agent" in await gateway.say("web", said)
    assert "默认" in await gateway.say("web", "/status")


@pytest.mark.parametrize("command", ["／clear", "/CLEAR \u200b", "新对话"])
async def test_behind_a_mention_only_the_own_conversation_ends(
    gateway: Inside, model: ModelServer, command: str
) -> None:
    """B11: `@bot /clear` in a group is the command, for this member in this group alone."""
    group = {"chat_id": "oc_group", "chat_type": "group", "mentions": [BOT]}
    other = {**group, "chat_id": "oc_other"}
    await gateway.feishu_says("@_user_1 我叫张三", **group)
    await gateway.feishu_says("@_user_1 我叫李四", "ou_li", **group)
    await gateway.feishu_says("@_user_1 我叫张三", **other)
    await gateway.feishu_says("我叫张三")
    assert "重新开始" in await gateway.feishu_says(f"@_user_1 {command}", **group)
    calls = len(model.requests)
    assert calls == 4
    question = "@_user_1 我叫什么？"
    assert await gateway.feishu_says(question, **group) == "我不知道你的名字"
    assert await gateway.feishu_says(question, "ou_li", **group) == "你叫李四"
    assert await gateway.feishu_says(question, **other) == "你叫张三"
    assert await gateway.feishu_says("我叫什么？") == "你叫张三"
    turns = [turn for path in await asyncio.to_thread(gateway.files) for turn in await asyncio.to_thread(said, path)]
    assert not [text for role, text in turns if role == "user" and "clear" in text.lower()]


async def test_reading_overtakes_an_answer_and_new_keeps_its_place(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with model.held("慢"):
        slow = await gateway.feishu_event("慢慢想，我叫张三")
        await until(lambda: model.requests)
        new = await gateway.feishu_event("/new")
        assert "/new" in await gateway.feishu_says("/help")
        assert not texts(feishu, slow)
        assert not texts(feishu, new), "/new waits for the answer before it"
    await until(lambda: texts(feishu, new))
    assert texts(feishu, slow) == ["答复：慢慢想，我叫张三"]
    assert [role for role, _ in await gateway.said()] == ["user", "assistant", "reset"]
