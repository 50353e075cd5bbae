"""An event of a platform in, the model's request, the platform's call out: web, Feishu webhook, Feishu connection."""

from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Gateway, Inside

WAYS = ("web", "webhook", "websocket")


async def say(gateway: Gateway, way: str, text: str) -> str:
    """What one person is answered on this way."""
    if way == "web":
        return (await gateway.chat("zhang", text)).text
    return await gateway.feishu_says(text)


@pytest.mark.parametrize("way", WAYS)
async def test_two_turns(tmp_path: Path, model: ModelServer, feishu: FakeFeishu, way: str) -> None:
    async with Inside(tmp_path, model, feishu=feishu, mode="websocket" if way == "websocket" else "webhook") as gateway:
        assert await say(gateway, way, "我叫张三，帮我推荐岗位") == "答复：我叫张三，帮我推荐岗位"
        assert await say(gateway, way, "我叫什么？") == "你叫张三"
        first, second = (request["messages"] for request in model.requests)
        assert [message["role"] for message in first] == ["system", "user"]
        assert "PROMPT-JOB" in first[0]["content"]
        assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
        assert [message["content"] for message in second[1:]] == [
            "我叫张三，帮我推荐岗位",
            "答复：我叫张三，帮我推荐岗位",
            "我叫什么？",
        ]
        items = await gateway.items("job-recommend-agent")
        assert [item.text for item in items] == [*(m["content"] for m in second[1:]), "你叫张三"]
        assert [item.meta["to"] for item in items if item.role == "assistant"] == [
            item.meta["id"] for item in items if item.role == "user"
        ]
