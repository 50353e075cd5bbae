"""Forgetting one turn from the console: no byte of the workspace or of Redis keeps a word of it, the rest goes on."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import redis as redis_client

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Message, ModelServer
from tests.platforms.redis_server import RedisServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import TOKEN, Inside, merged, texts
from tests.scenarios.test_forgetting import holding, left
from tests.scenarios.test_forgetting_crossed import ROUNDS, SEED, copied
from tests.waiting import until

SECRET = "独角兽"
JOB = "job-recommend-agent"
OVER = {
    "memory": {"masking": []},
    "agent": {
        "context": {
            "window": {"max-messages": 6, "keep-recent": 2},
            "summary": {"enabled": True, "after-turns": 2, "every-messages": 2, "keep": 2, "model": "main"},
        }
    },
}


async def forget(gateway: Inside, conversation: str, turn: str, **headers: str) -> tuple[int, str]:
    """What the console answers; headers that are given stand in the place of the login."""
    async with (
        aiohttp.ClientSession(headers=headers or {"Authorization": f"Bearer {TOKEN}", "HX-Request": "true"}) as session,
        session.post(gateway.console(f"/conversations/{conversation}/forget"), data={"turn": turn}) as response,
    ):
        return response.status, await response.text()


async def conversation_of(gateway: Inside) -> str:
    _, found = await gateway.get("/api/conversations?channel=feishu")
    (only,) = found["conversations"]
    return str(only["id"])


def answer(messages: list[Message]) -> Any:
    """A summary that tells the secret wherever it was heard, a call of a tool with it, else an echo."""
    said = str(messages[-1]["content"])
    if "【新的对话记录" in said:
        return f"摘要：用户提过{SECRET}" if SECRET in said else "摘要：别的"
    if messages[-1]["role"] == "user" and "推荐" in said:
        function = {"name": "search_jobs", "arguments": json.dumps({"query": SECRET}, ensure_ascii=False)}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }
    return f"答复：{said[:40]}"


async def test_no_byte_of_it_is_left_and_the_conversation_goes_on(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    model.answer = answer
    agents = {JOB: {"tools": ["search_jobs"]}, "general-agent": {"tools": ["search_jobs"]}}
    with RedisServer() as server:
        over = merged(OVER, {"memory": {"redis": {"url": server.url, "timeout": "20s"}}, "agent": {"default": JOB}})
        client = redis_client.Redis.from_url(server.url)

        def cached() -> bytes:
            return b"".join(b"".join(client.lrange(key, 0, -1)) for key in client.scan_iter("gateway:memory:*"))

        async with Inside(tmp_path, model, over, agents, feishu=feishu) as gateway:
            await gateway.feishu_says("你好呀，今天开始")
            await gateway.feishu_says(f"推荐岗位，{SECRET}公司", message_id="om_secret")
            await until(lambda: list(gateway.workspace.glob("archives/*/chat-*.yaml")), what="a summary")
            await gateway.feishu_says("再说说凤凰公司")
            await until(
                lambda: any(SECRET in holding_text for holding_text in archives(gateway)), what="a summary of it"
            )
            await gateway.feishu_says("还有麒麟公司")
            where = await conversation_of(gateway)
            _, traces = await gateway.get("/api/traces?q=om_secret")
            assert len(traces["traces"]) == 1
            found = {Path(path).name.partition("-")[0] for path in await left(gateway, SECRET)}
            assert {"chat", "trace.db"} <= found, found
            assert SECRET.encode() in await asyncio.to_thread(cached)
            status, text = await forget(gateway, where, "om_secret")
            assert status == 200, text
            assert "已删除：4 条内容、" in text
            assert await left(gateway, SECRET) == [], "while it runs: also gateway.db, trace.db and their logs"
            assert SECRET.encode() not in await asyncio.to_thread(cached)
            (path,) = gateway.files()
            items = await asyncio.to_thread(checked, path)
            assert [item.text for item in items if item.meta.get("removed")] == ["（已删除）"] * 4
            assert (await gateway.get("/api/traces?q=om_secret"))[1]["traces"] == []
            _, window = await gateway.get(f"/api/conversations/{where}/window")
            assert "已删除" not in json.dumps(window["messages"], ensure_ascii=False)
            asked = len(model.requests)
            await gateway.feishu_event(f"推荐岗位，{SECRET}公司", message_id="om_secret")
            assert await gateway.feishu_says("接着说吧") == "答复：接着说吧"
            for request in model.requests[asked:]:
                assert SECRET not in json.dumps(request, ensure_ascii=False)
            assert "（已删除）" in await gateway.feishu_says("/history")
            assert (await forget(gateway, where, "om_secret"))[1].startswith(
                '<p class="well" role="status">这一轮早已删除'
            )
            assert (await forget(gateway, where, "om_nobody"))[0] == 404
        assert await asyncio.to_thread(holding, tmp_path / "workspace", SECRET) == []
        await asyncio.to_thread(client.close)


def archives(gateway: Inside) -> list[str]:
    """The texts of all summaries."""
    return [path.read_text(encoding="utf-8") for path in gateway.workspace.glob("archives/*/chat-*.yaml")]


async def test_an_answer_under_way_to_it_is_not_kept(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    async with model.held(SECRET) as released:
        await gateway.feishu_event(f"我的秘密是{SECRET}", message_id="om_secret")
        await until(lambda: model.requests)
        where = await conversation_of(gateway)
        status, text = await forget(gateway, where, "om_secret")
        assert (status, "已删除：1 条内容" in text) == (200, True)
        assert await left(gateway, SECRET) == []
        released.set()
        await until(lambda: texts(feishu, "om_secret"), what="whoever waits is told")
    assert texts(feishu, "om_secret") == ["已停止回答。"]
    assert await gateway.feishu_says("你好") == "答复：你好"
    assert await left(gateway, SECRET) == []
    assert [message["content"] for message in model.requests[-1]["messages"][1:]] == ["你好"]


async def test_an_answer_that_waits_to_be_sent_leaves_no_text(
    gateway: Inside, feishu: FakeFeishu, model: ModelServer
) -> None:
    feishu.faults += [("/im/v1/messages", 500, 1, "down")] * 40
    await gateway.feishu_event(f"我的秘密是{SECRET}", message_id="om_secret")
    await until(lambda: [call for call in feishu.sent if "om_secret" in call["path"]])
    assert any(path.endswith((".db", ".db-wal")) for path in await left(gateway, SECRET))
    status, _ = await forget(gateway, await conversation_of(gateway), "om_secret")
    assert status == 200
    assert await left(gateway, SECRET) == []
    feishu.faults.clear()
    assert await gateway.feishu_says("你好") == "答复：你好", "the platform is up again"
    assert not [text for text in texts(feishu) if SECRET in text]


async def test_nobody_forgets_without_login_or_from_elsewhere(gateway: Inside) -> None:
    await gateway.feishu_says(SECRET, message_id="om_secret")
    where = await conversation_of(gateway)
    login = {"Authorization": f"Bearer {TOKEN}"}
    for headers, expected in (
        ({"X-None": "1"}, 401),
        ({**login, "Origin": "https://evil.example"}, 403),
        ({**login, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**login, "Sec-Fetch-Site": "same-site"}, 403),
    ):
        assert (await forget(gateway, where, "om_secret", **headers))[0] == expected
    assert await left(gateway, SECRET)


async def test_killed_anywhere_it_still_stands_or_is_gone_everywhere(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """The turn is the last to go, so whoever looks after the next start finds it, and can ask again."""
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    model.answer = answer
    async with Inside(tmp_path / "first", model, OVER, feishu=feishu) as gateway, copied(gateway) as copies:
        await gateway.feishu_says(f"我的秘密是{SECRET}", message_id="om_secret")
        await gateway.feishu_says("再说说凤凰公司")
        await until(lambda: archives(gateway), what="a summary")
        where = await conversation_of(gateway)
        copies.on = True
        assert (await forget(gateway, where, "om_secret"))[0] == 200
        copies.on = False
    moments = [*copies.made, tmp_path / "first"]
    stood = []
    for root in random.Random(SEED).sample(moments, min(ROUNDS + 1, len(moments))):
        async with Inside(root, model, OVER, feishu=feishu) as after:
            (item, *_) = await asyncio.to_thread(checked, after.files()[0])
            stood.append(not item.meta.get("removed"))
            if stood[-1]:
                assert "已删除：2 条内容" in (await forget(after, where, "om_secret"))[1]
            assert await left(after, SECRET) == [], (root.name, stood)
    print(f"{len(moments)} moments, {sum(stood)} of {len(stood)} with the turn in its place")
