"""Summaries of what no longer fits, from a conversation in Feishu to the request that quotes them."""

import asyncio
from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.gateway import Inside, merged
from tests.waiting import until

SUMMARISED = "摘要：用户叫张三，想在上海找工作。"
SMALL = {
    "models": {"summary": {"provider": "openai", "base-url": "", "api-key": "sk-x", "model": "fake-summary"}},
    "agent": {
        "context": {
            "window": {"max-messages": 6, "keep-recent": 2},
            "summary": {"enabled": True, "after-turns": 3, "every-messages": 4, "keep": 4},
        }
    },
}


def config(model: ModelServer) -> dict[str, object]:
    return merged(SMALL, {"models": {"summary": {"base-url": model.base_url}}})


def summaries(model: ModelServer) -> list[list[Message]]:
    return [request["messages"] for request in model.requests if request["model"] == "fake-summary"]


def systems(model: ModelServer) -> list[str]:
    return [request["messages"][0]["content"] for request in model.requests if request["model"] == "fake-main"]


def answer(messages: list[Message]) -> str:
    return SUMMARISED if "摘要" in str(messages[-1]["content"]) else "好，知道了"


async def archived(gateway: Inside) -> list[str]:
    def read() -> list[str]:
        return [path.read_text(encoding="utf-8") for path in gateway.workspace.glob("archives/*/chat-*.yaml")]

    return await asyncio.to_thread(read)


async def test_what_left_the_window_is_in_the_summary(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    model.answer = answer
    async with Inside(tmp_path, model, config(model), feishu=feishu) as gateway:
        for text in ("我叫张三，在上海", "想找份工作", "要写 Python", "最好离家近"):
            assert await gateway.feishu_says(text) == "好，知道了"
        await until(lambda: summaries(model), what="a summary is asked for")
        await until(lambda: gateway.workspace.joinpath("archives").exists())
        assert "我叫张三，在上海" in summaries(model)[0][-1]["content"]
        for text in ("薪资要高一些", "还有别的吗"):
            await gateway.feishu_says(text)
        assert SUMMARISED in systems(model)[-1]
        assert len(model.requests[-1]["messages"]) <= 7
    async with Inside(tmp_path, model, config(model), feishu=feishu) as gateway:
        await gateway.feishu_says("重启之后呢")
        assert SUMMARISED in systems(model)[-1], "a restart keeps it"
        assert await archived(gateway)
        await gateway.feishu_says("/new")
        await gateway.feishu_says("从头来吧")
        assert SUMMARISED not in systems(model)[-1], "a reset ends its use"


@pytest.mark.parametrize("trouble", ["refused", "slow", "empty"])
async def test_a_summary_that_fails_is_noticed_by_nobody(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, trouble: str
) -> None:
    model.answer = lambda messages: "" if "摘要" in str(messages[-1]["content"]) else "好，知道了"
    over = config(model)
    if trouble == "refused":
        over = merged(over, {"models": {"summary": {"base-url": "http://127.0.0.1:9/v1"}}})
    if trouble == "slow":
        model.delay = lambda messages: 60.0 if "摘要" in str(messages[-1]["content"]) else 0.0
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        loop = asyncio.get_running_loop()
        for n in range(8):
            begun = loop.time()
            assert await gateway.feishu_says(f"第{n}件事，记住它") == "好，知道了"
            assert loop.time() - begun < 30, "no answer waits for a summary"
        assert "摘要：" not in systems(model)[-1]
        assert [role for role, _ in await gateway.said()] == ["user", "assistant"] * 8
