"""/forget and `forget`: nothing of the person is left in any byte of the workspace or of Redis, nobody else notices."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_client

from memory.conversation import user_id
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.platforms.redis_server import RedisServer
from tests.scenarios.gateway import TOKEN, Inside, Process, texts
from tests.scenarios.test_feishu_messages import BOT, bot_known, group
from tests.waiting import until

UNICORN = "我的秘密是独角兽"


def holding(root: Path, secret: str) -> list[str]:
    """The files whose content or path holds the secret. Blocking."""
    return [
        str(path)
        for path in root.rglob("*")
        if secret in str(path) or (path.is_file() and secret.encode() in path.read_bytes())
    ]


async def left(gateway: Inside | Process, secret: str) -> list[str]:
    return await asyncio.to_thread(holding, gateway.workspace, secret)


async def test_at_once_without_asking_back_in_every_byte(gateway: Inside) -> None:
    """While it runs, not only after the next stop: also the bytes that SQLite has freed, and its log."""
    user = user_id("web", "web", "u9")
    await gateway.chat("u9", UNICORN)
    await gateway.chat("u9", "群里说独角兽", group="g1")
    await gateway.chat("u9", "推荐岗位，独角兽公司")
    other = await gateway.chat("u11", "我的秘密是凤凰")
    assert len(await left(gateway, "独角兽")) >= 3
    said = await gateway.chat("u9", "忘记我")
    assert said.conversation is None
    assert said.text == "已删除你的全部资料：3 个会话、3 条收件记录。"
    await until(lambda: not holding(gateway.workspace, user), what="the last trace of the command itself")
    assert await left(gateway, "独角兽") == []
    assert await left(gateway, "凤凰")
    status, listed = await gateway.get("/api/conversations")
    assert (status, [each["id"] for each in listed["conversations"]]) == (200, [other.conversation])
    assert (await gateway.chat("u9", "/forget")).text == "没有需要删除的资料。"


async def test_who_comes_back_is_new(gateway: Inside, model: ModelServer) -> None:
    await gateway.chat("u", "我叫钱七")
    await gateway.chat("u", "/agent job-recommend-agent")
    await gateway.chat("u", "/forget")
    said = await gateway.chat("u", "我叫什么？")
    assert said.agent == "general-agent"
    assert [each["content"] for each in model.requests[-1]["messages"][1:]] == ["我叫什么？"]
    assert await left(gateway, "钱七") == []


async def test_what_runs_and_what_waits_is_ended(gateway: Inside, model: ModelServer) -> None:
    """The answer under way is cancelled, what waits is never asked, and whoever waits for it is told."""
    async with model.held("独角兽") as released:
        running = asyncio.create_task(gateway.chat("u", UNICORN))
        await until(lambda: len(model.requests) == 1)
        waiting = asyncio.create_task(gateway.chat("u", "还有独角兽的角"))
        elsewhere = asyncio.create_task(gateway.chat("u", "别处的独角兽", session="s2"))
        other = asyncio.create_task(gateway.chat("v", "凤凰也说独角兽"))
        await until(lambda: len(model.requests) == 3)
        said = await gateway.chat("u", "/forget")
        assert said.text.startswith("已删除你的全部资料：2 个会话"), said.text
        for each in (running, waiting, elsewhere):
            assert (await each).error == "已按你的要求停止处理，并删除了你的资料。"
        released.set()
        assert (await other).text == "答复：凤凰也说独角兽"
    assert len(model.requests) == 3
    await until(lambda: not holding(gateway.workspace, user_id("web", "web", "u")))
    assert len(await left(gateway, "独角兽")) >= 1, "what another person said stays"
    assert (await gateway.chat("u", "你好")).text == "答复：你好", "the lane goes on"


async def test_a_repeat_of_a_forgotten_message_is_still_a_repeat(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    await gateway.feishu_says(UNICORN, message_id="om_before")
    assert (await gateway.feishu_says("/forget", message_id="om_forget")).startswith("已删除")
    await until(lambda: not holding(gateway.workspace, "ou_zhang"))
    for number in ("om_before", "om_forget"):
        await gateway.feishu_event(UNICORN, message_id=number)
    assert await gateway.feishu_says("你好") == "答复：你好"
    assert len(model.requests) == 2
    assert len(texts(feishu, "om_forget")) == 1
    assert await left(gateway, "独角兽") == []


async def test_an_answer_that_cannot_be_sent_is_tried_no_more(
    gateway: Inside, feishu: FakeFeishu, model: ModelServer
) -> None:
    await gateway.feishu_says("你好")
    feishu.faults += [("/im/v1/messages", 500, 1, "down")] * 20
    number = await gateway.feishu_event(UNICORN)
    await until(lambda: model.requests[1:])
    await until(lambda: [call for call in feishu.sent if number in call["path"]])
    feishu.faults.clear()
    assert (await gateway.feishu_says("/forget")).startswith("已删除")
    assert await left(gateway, "独角兽") == []
    assert texts(feishu, number) == []


async def test_from_a_group_the_persons_direct_chat_goes_too(gateway: Inside, feishu: FakeFeishu) -> None:
    await bot_known(feishu)
    await gateway.feishu_says(UNICORN)
    await gateway.feishu_says("@_user_1 群里的独角兽", **group(BOT))
    await gateway.feishu_says("@_user_1 凤凰", "ou_li", **group(BOT))
    said = await gateway.feishu_says("@_user_1 /forget", **group(BOT))
    assert "2 个会话" in said
    assert await left(gateway, "独角兽") == []
    assert await left(gateway, "凤凰")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


async def test_redis_keeps_nothing(tmp_path: Path, model: ModelServer, server: RedisServer) -> None:
    over = {"memory": {"redis": {"url": server.url, "timeout": "20s"}}}
    client = redis_client.Redis.from_url(server.url)

    def kept(user: str) -> list[bytes]:
        return list(client.scan_iter(f"gateway:*{user_id('web', 'web', user)}*"))

    async with Inside(tmp_path, model, over) as gateway:
        await gateway.chat("u", UNICORN)
        await gateway.chat("v", "凤凰")
        assert await asyncio.to_thread(kept, "u")
        said = await gateway.chat("u", "/forget")
        assert "Redis" not in said.text
        assert await asyncio.to_thread(kept, "u") == []
        assert await asyncio.to_thread(kept, "v")
    await asyncio.to_thread(client.close)


async def test_redis_that_is_down_is_told_of(tmp_path: Path, model: ModelServer) -> None:
    over = {"memory": {"redis": {"url": "redis://127.0.0.1:1/0", "timeout": "200ms"}}}
    async with Inside(tmp_path, model, over) as gateway:
        await gateway.chat("u", UNICORN)
        assert "Redis 暂时连不上" in (await gateway.chat("u", "/forget")).text
        assert await left(gateway, "独角兽") == []


async def test_by_the_command_line_beside_a_gateway_and_without_one(tmp_path: Path, model: ModelServer) -> None:
    user = user_id("web", "web", "u")
    async with Process(tmp_path, model) as gateway:
        await gateway.chat("u", UNICORN)
        await gateway.chat("v", "我的秘密是麒麟")
        await gateway.chat("w", "我的秘密是凤凰")
        code, out = await gateway.run("forget", "--user", user)
        assert (code, out) == (0, f"{user}：已删除 1 个会话、1 条收件记录\n")
        assert await left(gateway, "独角兽") == []
        code, out = await gateway.run("forget", "--user", user)
        assert (code, out) == (1, f"{user}：没有找到资料\n")
        code, out = await gateway.run("forget", "--user", "张三")
        assert code == 2
        assert "张三" in out
    user = user_id("web", "web", "v")
    code, out = await gateway.run("forget", "--user", user)
    assert (code, out) == (0, f"{user}：已删除 1 个会话、1 条收件记录\n")
    assert await left(gateway, "麒麟") == []
    assert await left(gateway, user) == []
    assert (await gateway.run("forget", "--user", user))[0] == 1
    assert await left(gateway, "凤凰")
    assert "Traceback" not in await asyncio.to_thread(gateway.output)
    assert TOKEN not in await asyncio.to_thread(gateway.output)


async def test_a_gateway_without_console_is_named(tmp_path: Path, model: ModelServer) -> None:
    async with Process(tmp_path, model, {"console": {"enabled": False}}) as gateway:
        code, out = await gateway.run("forget", "--user", user_id("web", "web", "u"))
        assert code == 2
        assert "console" in out
        assert len(out.splitlines()) == 1


async def test_a_kill_in_the_midst_is_made_good_by_asking_again(tmp_path: Path, model: ModelServer) -> None:
    """What was accepted before the kill is run again, /forget too: the person is forgotten in the end."""
    async with Process(tmp_path, model) as gateway:
        await gateway.chat("u", UNICORN)
        asking = asyncio.create_task(gateway.chat("u", "/forget"))
        await asyncio.sleep(0.01)
        await gateway.kill()
        await asyncio.gather(asking, return_exceptions=True)
        await gateway.start()
        await gateway.chat("u", "/forget")
        assert await left(gateway, "独角兽") == []


@pytest.mark.parametrize("command", ["/unlink", "/status", "/history", "/agent 简历", "你好", "/new"])
async def test_whatever_meets_a_forgetting_gets_its_last_word(gateway: Inside, command: str) -> None:
    """A command of the same person that is recorded in the very moment in which their work is ended is told as well."""
    for number in range(6):
        user = f"u{number}"
        await gateway.chat(user, "你好")
        async with asyncio.timeout(40):
            await asyncio.gather(gateway.chat(user, command), gateway.chat(user, "/forget"))
