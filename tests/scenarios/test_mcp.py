"""MCP servers in a whole gateway: granted tool by tool, waited for by nobody, ended with it."""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents.test_mcp_servers import ended, processes
from tests.platforms.mcp_server import HttpMcpServer
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.gateway import CANARY, ROOT, Inside, Process
from tests.waiting import until, until_told

JOB, GENERAL = "job-recommend-agent", "general-agent"
PROGRAM = ROOT / "tests" / "platforms" / "mcp_program.py"


def call(name: str, arguments: str = "{}", id_: str = "c1") -> Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def program(folder: Path, *words: str) -> dict[str, Any]:
    return {"command": [sys.executable, "-S", str(PROGRAM), str(folder), *words]}


def servers(**entries: dict[str, Any]) -> dict[str, Any]:
    return {"tools": {"mcp": entries}}


async def up(gateway: Inside | Process, name: str) -> None:
    async def question() -> bool:
        _, status = await gateway.get("/api/status")
        return bool(status["mcp"][name]["ok"] and status["mcp"][name]["tools"])

    await until_told(question, True)


def offered(model: ModelServer) -> set[str]:
    """The tools of the last request."""
    return {tool["function"]["name"] for tool in model.requests[-1].get("tools", [])}


async def test_an_agent_calls_what_it_was_granted(tmp_path: Path, model: ModelServer) -> None:
    async with HttpMcpServer(token=CANARY) as http:
        over = servers(sums={"url": http.url, "headers": {"Authorization": CANARY}, "timeout": "5s"})
        agents = {JOB: {"tools": ["current_time", "mcp:sums/add", "mcp:sums/wait"]}, GENERAL: {}}
        async with Inside(tmp_path, model, over, agents=agents) as gateway:
            await up(gateway, "sums")
            model.answers = [call("sums_add", '{"a": 2, "b": 3}'), "等于五"]
            said = await gateway.chat("u", "二加三", agent=JOB)
            assert (said.text, said.error) == ("等于五", None)
            assert offered(model) == {"current_time", "sums_add", "sums_wait"}
            assert model.requests[-1]["messages"][-1] == {"role": "tool", "content": "5", "tool_call_id": "c1"}
            assert [item.role for item in await gateway.items(JOB)] == ["user", "assistant", "tool", "assistant"]
            model.answers = [call("sums_wait", '{"seconds": 60}'), "等不到"]
            begun = time.monotonic()
            assert (await gateway.chat("u", "等一下", agent=JOB)).text == "等不到"
            assert time.monotonic() - begun < 30
            assert "没有完成" in model.requests[-1]["messages"][-1]["content"]
            model.answers = [call("sums_fail"), "没有这个工具"]
            await gateway.chat("u", "试试", agent=JOB)
            assert "没有名为 sums_fail" in model.requests[-1]["messages"][-1]["content"]
            await gateway.chat("u", "你好", agent=GENERAL)
            assert not offered(model), "nobody else has it"
            _, status = await gateway.get("/api/status")
            assert status["mcp"]["sums"]["ok"]
            assert "add" in status["mcp"]["sums"]["tools"]
            assert CANARY not in str(status)


async def test_a_result_is_data_like_every_tools(tmp_path: Path, model: ModelServer) -> None:
    """It is masked, capped and stored; nothing in it is taken for more than a result."""
    over = servers(p=program(tmp_path / "p"))
    async with Inside(tmp_path, model, over, agents={JOB: {"tools": ["mcp:p/*"]}}) as gateway:
        await up(gateway, "p")
        model.answers = [
            call("p_echo", '{"text": "电话 13812345678"}'),
            call("p_echo", '{"text": "' + "长" * 9000 + '"}'),
        ]
        await gateway.chat("u", "查一下", agent=JOB)
        first, second = [item.text for item in await gateway.items(JOB) if item.role == "tool"]
        assert "13812345678" not in first
        assert "138" in first
        assert second.endswith("（结果过长，已截断）")
        assert len(second) <= 8000


async def test_a_server_that_is_dead_or_mute_delays_no_start_and_no_answer(tmp_path: Path, model: ModelServer) -> None:
    over = servers(mute=program(tmp_path / "mute", "mute"), gone={"url": "http://127.0.0.1:9/mcp"})
    async with Inside(tmp_path, model, over, agents={JOB: {"tools": ["mcp:mute/*", "mcp:gone/*"]}}) as gateway:
        begun = time.monotonic()
        assert (await gateway.chat("u", "你好", agent=JOB)).text == "答复：你好"
        assert time.monotonic() - begun < 15
        assert not offered(model)
        await until_told(gateway.health, (200, "degraded"))
        assert (await gateway.chat("u", "再问", agent=JOB)).text == "答复：再问"
    await ended(tmp_path / "mute")


async def test_more_tools_than_a_model_can_be_told_of(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    over = servers(p=program(tmp_path / "p", "many")) | {"models": {"main": {"context-tokens": 4000}}}
    async with Inside(tmp_path, model, over, agents={JOB: {"tools": ["current_time", "mcp:p/*"]}}) as gateway:
        await up(gateway, "p")
        for _ in range(2):
            assert (await gateway.chat("u", "你好", agent=JOB)).text == "答复：你好"
        assert 5 < len(offered(model)) < 60
        assert "current_time" in offered(model)
    assert [record.message.split()[0] for record in caplog.records].count("mcp.left_out") == 1


async def test_servers_follow_the_config(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model) as gateway:
        assert (await gateway.get("/api/status"))[1]["mcp"] == {}
        await gateway.change(servers(p=program(tmp_path / "p")), {JOB: {"tools": ["mcp:p/echo"]}})
        await until(lambda: "p" in gateway.app.live.current.tools.mcp)
        await up(gateway, "p")
        await gateway.chat("u", "你好", agent=JOB)
        assert offered(model) == {"p_echo"}
        await gateway.change({}, {JOB: {"tools": []}})
        gateway.settings["tools"] = {}
        await gateway.change({})
        await ended(tmp_path / "p")
        await gateway.chat("u", "再来", agent=JOB)
        assert not offered(model)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_no_program_outlives_the_gateway(tmp_path: Path, model: ModelServer, number: signal.Signals) -> None:
    """Not even one that ignores the end of its input: terminated it is killed; killed, the kernel tells it."""
    words = ("stubborn",) if number is signal.SIGTERM else ()
    over = servers(p=program(tmp_path / "p", *words))
    async with Process(tmp_path, model, over) as gateway:
        await up(gateway, "p")
        assert len(await asyncio.to_thread(processes, tmp_path / "p")) == 1
        if number is signal.SIGTERM:
            assert await gateway.stop() == 0
        else:
            await gateway.kill()
        await ended(tmp_path / "p")
        assert CANARY not in gateway.output()
