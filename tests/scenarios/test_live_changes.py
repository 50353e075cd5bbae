"""Config files are changed while the gateway runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.live_settings import LiveSettings, changed_keys
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Gateway, Inside, asked
from tests.waiting import until, until_told


@contextlib.asynccontextmanager
async def taken_over(gateway: Inside) -> AsyncIterator[None]:
    """What is written inside is what the gateway runs with behind it."""
    before, snapshots = gateway.app.live.current, gateway.app._snapshots
    yield
    await until(lambda: gateway.app.live.current is not before, what="take-over")
    await until_told(lambda: _as_written(gateway.app.live), answer=True)  # of all files, each of which may come alone
    await until(lambda: snapshots.now().settings is gateway.app.live.current, what="models of the new settings")


async def _as_written(live: LiveSettings) -> bool:
    written, waiting = await live.look()
    return set(changed_keys(live.current, written)) <= set(waiting)


async def problems(gateway: Gateway) -> list[str]:
    status, body = await gateway.get("/api/status")
    assert status == 200
    found: list[str] = body["config"]["problems"]
    return found


async def test_window_prompt_texts_and_admins(gateway: Inside, model: ModelServer) -> None:
    for n in range(6):
        await gateway.chat("u", f"第{n}个问题")
    assert len(asked(model)[-1]) == 11
    async with taken_over(gateway):
        await gateway.change(
            {
                "agent": {"context": {"window": {"max-messages": 4, "keep-recent": 2}}},
                "texts": {"help": "自定的帮助"},
                "admins": ["ou_boss"],
            },
            {"general-agent": {"prompt": "你是新的助手。PROMPT-CHANGED"}},
        )
    await gateway.chat("u", "改了之后")
    turns = [("user", "第5个问题"), ("assistant", "答复：第5个问题"), ("user", "改了之后")]
    assert asked(model)[-1] == turns
    assert "PROMPT-CHANGED" in model.requests[-1]["messages"][0]["content"]
    assert "PROMPT-GENERAL" not in model.requests[-1]["messages"][0]["content"]
    assert (await gateway.chat("u", "/help")).text == "自定的帮助"
    assert gateway.app.live.current.admins == ("ou_boss",)
    assert len(await gateway.items()) == 14, "trimming is on the way to the model only"


async def test_a_larger_window_shows_what_was_trimmed(tmp_path: Path, model: ModelServer) -> None:
    small = {"agent": {"context": {"window": {"max-messages": 4, "keep-recent": 2}}}}
    async with Inside(tmp_path, model, small) as gateway:
        for n in range(6):
            await gateway.chat("u", f"第{n}个问题")
        assert len(asked(model)[-1]) == 3
        async with taken_over(gateway):
            await gateway.change({"agent": {"context": {"window": {"max-messages": 20}}}})
        await gateway.chat("u", "现在呢")
        assert asked(model)[-1][0] == ("user", "第0个问题")
        assert len(asked(model)[-1]) == 13


async def test_agents_and_rules_come_and_go(gateway: Inside, model: ModelServer) -> None:
    assert (await gateway.chat("u", "今天下雨吗")).agent == "general-agent"
    weather = {"description": "天气", "prompt": "PROMPT-WEATHER", "intents": {"keywords": ["下雨"]}}
    async with taken_over(gateway):
        await gateway.change({}, {"weather-agent": weather})
    assert (await gateway.chat("u", "今天下雨吗")).agent == "weather-agent"
    assert "weather-agent" in (await gateway.chat("u", "/agents")).text
    del gateway.agents["weather-agent"]
    async with taken_over(gateway):
        await asyncio.to_thread((gateway.config / "agents" / "weather-agent.yaml").unlink)
    said = await gateway.chat("u", "那明天呢")
    assert (said.agent, said.reason) == ("general-agent", "默认"), "an agent that is gone is not sticky"


async def test_a_broken_file_changes_nothing_and_says_so(gateway: Inside, model: ModelServer) -> None:
    path = gateway.config / "gateway.yaml"
    good = await asyncio.to_thread(path.read_text)
    await asyncio.to_thread(path.write_text, good.replace("messages-per-minute: 0", "messages-per-minute: viele"))
    await until(lambda: gateway.app.live.problems)
    (problem,) = await problems(gateway)
    line = good.splitlines().index("  messages-per-minute: 0") + 1
    assert f"gateway.yaml:{line}: limits.messages-per-minute: " in problem
    assert await gateway.health() == (200, "degraded")
    assert (await gateway.chat("u", "还好吗")).text == "答复：还好吗"
    await asyncio.to_thread(path.write_text, "a: [1\n\tb")
    await until(lambda: len(gateway.app.live.problems) == 1 and "limits" not in str(gateway.app.live.problems[0]))
    assert (await gateway.chat("u", "还好吗")).text == "答复：还好吗"
    await asyncio.to_thread(path.write_text, good + "texts: {help: 修好了}\n")
    await until_told(lambda: problems(gateway), [])
    assert await gateway.health() == (200, "ok")
    assert (await gateway.chat("u", "/help")).text == "修好了"


async def test_an_answer_under_way_ends_on_the_old_model(gateway: Inside, model: ModelServer) -> None:
    async with ModelServer() as other:
        async with model.held("慢慢说") as released:
            slow = asyncio.create_task(gateway.chat("u", "慢慢说"))
            await until(lambda: model.requests)
            async with taken_over(gateway):
                await gateway.change({"models": {"main": {"base-url": other.base_url, "model": "fake-other"}}})
            assert (await gateway.chat("other", "已换了吗")).text == "答复：已换了吗"
            assert other.requests[-1]["model"] == "fake-other"
            assert not slow.done()
            released.set()
            assert (await slow).text == "答复：慢慢说"
        assert (await gateway.chat("u", "然后呢")).text == "答复：然后呢"
        assert asked(other)[-1] == [("user", "慢慢说"), ("assistant", "答复：慢慢说"), ("user", "然后呢")]
        assert len(model.requests) == 1


async def test_policies_and_limits(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    assert await gateway.feishu_says("你好呀") == "答复：你好呀"
    async with taken_over(gateway):
        await gateway.change({"channels": {"feishu": {"dm-policy": "allowlist", "allow-from": ["ou_li"]}}})
    assert "没有使用权限" in await gateway.feishu_says("你好呀")
    assert await gateway.feishu_says("你好呀", "ou_li") == "答复：你好呀"
    async with taken_over(gateway):
        await gateway.change({"limits": {"max-text-bytes": 30}})
    assert "太长" in await gateway.feishu_says("长" * 11, "ou_li")
    async with taken_over(gateway):
        await gateway.change({"limits": {"messages-per-minute": 1}})
    await gateway.feishu_says("你好呀", "ou_li")
    assert "太快" in await gateway.feishu_says("你好呀", "ou_li")


async def test_what_needs_a_restart_is_told_and_waits(gateway: Inside) -> None:
    async with taken_over(gateway):
        await gateway.change({"server": {"drain": "7s"}, "texts": {"help": "新的帮助"}})
    assert (await gateway.chat("u", "/help")).text == "新的帮助"
    assert gateway.app.live.current.server.drain == 5.0
    _, status = await gateway.get("/api/status")
    assert "server.drain" in str(status["config"])


async def test_the_last_of_many_writes_at_the_pace_of_the_product(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Inside(tmp_path, model)
    monkeypatch.setattr(gateway, "_live", lambda config, settings: LiveSettings(config, {}, settings))
    async with gateway:
        for n in range(4):  # an editor that saves again and again
            await gateway.change({"texts": {"help": f"第 {n} 次"}})
            await asyncio.sleep(0.1)

        async def told() -> str:
            return (await gateway.chat("u", "/help")).text

        await until_told(told, "第 3 次")
