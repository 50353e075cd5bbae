"""An event of a platform in, the model's request, the platform's call out: web, Feishu webhook, Feishu connection."""

import signal
from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Inside, Process, asked

WAYS = ("web", "webhook", "websocket")


def mode_of(way: str) -> str:
    return "websocket" if way == "websocket" else "webhook"


@pytest.mark.parametrize("way", WAYS)
async def test_the_second_turn_knows_the_first(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, way: str
) -> None:
    async with Inside(tmp_path, model, feishu=feishu, mode=mode_of(way)) as gateway:
        assert await gateway.say(way, "我叫张三，帮我推荐岗位") == "答复：我叫张三，帮我推荐岗位"
        assert await gateway.say(way, "我叫什么？") == "你叫张三"
        first, second = model.requests
        assert first["messages"][0]["role"] == "system"
        assert "PROMPT-JOB" in first["messages"][0]["content"]
        assert asked(model)[0] == [("user", "我叫张三，帮我推荐岗位")]
        turns = [
            ("user", "我叫张三，帮我推荐岗位"),
            ("assistant", "答复：我叫张三，帮我推荐岗位"),
            ("user", "我叫什么？"),
        ]
        assert asked(model)[1] == turns
        assert second["model"] == "fake-main"
        items = await gateway.items("job-recommend-agent")
        assert [(item.role, item.text) for item in items] == [*turns, ("assistant", "你叫张三")]
        users = [item.meta["id"] for item in items if item.role == "user"]
        assert [item.meta["to"] for item in items if item.role == "assistant"] == users


@pytest.mark.parametrize("mode", ["webhook", "websocket"])
async def test_nothing_is_forgotten_by_a_stop_or_a_kill(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, mode: str
) -> None:
    """B24: after SIGTERM, and again after kill -9, the model gets the earlier turns in order, each once."""
    async with Process(tmp_path, model, feishu=feishu, mode=mode) as gateway:
        await gateway.say("web", "我叫李四，帮我推荐岗位")
        await gateway.say("feishu", "我叫张三，帮我推荐岗位")
        files = gateway.files()
        assert await gateway.stop() == 0
        for ending in (signal.SIGTERM, signal.SIGKILL):
            await gateway.start()
            said = await gateway.chat("ou_zhang", "我叫什么？")
            assert (said.text, said.agent, said.reason) == ("你叫李四", "job-recommend-agent", "延续上一轮")
            assert await gateway.say("feishu", "我叫什么？") == "你叫张三"
            gateway.signal(ending)
            assert await gateway.ended() == (0 if ending == signal.SIGTERM else -signal.SIGKILL)
        last = [message["content"] for message in model.requests[-1]["messages"][1:]]
        assert last == [
            "我叫张三，帮我推荐岗位",
            "答复：我叫张三，帮我推荐岗位",
            "我叫什么？",
            "你叫张三",
            "我叫什么？",
        ]
        assert gateway.files() == files, "ids are the same in every process"
        assert [len(checked(path)) for path in files] == [6, 6]


async def test_each_agent_with_its_reason(gateway: Inside, model: ModelServer) -> None:
    for text, agent, reason, prompt in (
        ("你好呀", "general-agent", "默认", "PROMPT-GENERAL"),
        ("帮我推荐岗位，Java 的", "job-recommend-agent", "规则：推荐岗位（1 处命中）", "PROMPT-JOB"),
        ("薪资 25k 以上的", "job-recommend-agent", "延续上一轮", "PROMPT-JOB"),
        ("看看我的简历", "resume-optimise-agent", "规则：简历（1 处命中）", "PROMPT-RESUME"),
        ("推荐岗位，再改简历", "resume-optimise-agent", "延续上一轮", "PROMPT-RESUME"),
    ):
        said = await gateway.chat("u", text)
        assert (said.agent, said.reason) == (agent, reason), text
        assert said.conversation is not None
        assert said.conversation.endswith(f":web:{said.conversation.split(':')[2]}:0:{agent}")
        assert prompt in model.requests[-1]["messages"][0]["content"]
        assert said.streamed == said.text == f"答复：{text}"
    said = await gateway.chat("u", "这条给通用助手", agent="general-agent")
    assert (said.agent, said.reason) == ("general-agent", "本条消息指定")
    assert asked(model)[-1] == [("user", "你好呀"), ("assistant", "答复：你好呀"), ("user", "这条给通用助手")]
    await gateway.chat("u", "/agent job")
    said = await gateway.chat("u", "简历也由你看")
    assert (said.agent, said.reason) == ("job-recommend-agent", "用户用 /agent 选定")


async def test_an_entry_may_have_an_agent_of_its_own(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    over = {"channels": {"feishu": {"agent": "resume-optimise-agent"}}}
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        await gateway.feishu_says("你好呀")
        assert "PROMPT-RESUME" in model.requests[-1]["messages"][0]["content"]
        assert (await gateway.chat("u", "你好呀")).agent == "general-agent"
