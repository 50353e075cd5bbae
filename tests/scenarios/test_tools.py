"""Tools from outside: called, stored, bounded, carried on after a kill; the profile of one person; the seed's talk."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Gateway, Inside, Process, texts
from tests.shipped import shipped_config
from tests.waiting import until

JOB, RESUME = "job-recommend-agent", "resume-optimise-agent"
ALL = {
    JOB: {"tools": ["search_jobs", "update_profile", "read_profile", "recall"]},
    RESUME: {"tools": ["update_profile", "read_profile", "recall"]},
}


def call(name: str, arguments: Mapping[str, Any] | str, id_: str = "c1", text: str | None = None) -> Message:
    """An answer with one call."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": name, "arguments": written}
    return {"role": "assistant", "content": text, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def system(model: ModelServer) -> str:
    """The system message of the newest request."""
    return str(model.requests[-1]["messages"][0]["content"])


def profile(gateway: Gateway) -> dict[str, Any]:
    """The only profile there is. Blocking."""
    (file,) = (gateway.workspace / "users").glob("*.yaml")
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["profile"]
    return found


async def test_the_seeds_talk_is_answered_from_the_postings(tmp_path: Path, model: ModelServer) -> None:
    """帮我推荐 Java 岗位, then 薪资 25k 以上的: a model that calls as models do gives a list that is filtered."""

    def answer(messages: list[Message]) -> str | Message:
        if messages[-1]["role"] == "tool":
            jobs = json.loads(messages[-1]["content"])["jobs"]
            return "\n".join(f"{job['title']} {job['city']} {job['salary']}" for job in jobs)
        if "25k" in messages[-1]["content"]:
            return call("search_jobs", {"query": "Java", "min_salary": 25}, text="再查一次")
        return call("search_jobs", {"query": "Java"})

    model.answer = answer
    async with Inside(tmp_path, model, agents=ALL) as gateway:
        first = await gateway.chat("u", "帮我推荐岗位，Java 的")
        second = await gateway.chat("u", "薪资 25k 以上的", agent=JOB)
        items = await gateway.items(JOB)
        window = (await gateway.get(f"/api/conversations/{second.conversation}/window"))[1]
    lows = [[int(low) for low in re.findall(r" (\d+)-\d+k", said.text)] for said in (first, second)]
    assert min(lows[0]) < 25 <= min(lows[1])
    assert all("Java" in line for line in second.text.splitlines())
    assert [item.role for item in items] == ["user", "assistant", "tool", "assistant"] * 2
    asking, result = items[5], items[6]
    assert asking.text == "再查一次"
    assert asking.fields["tool_calls"][0]["name"] == "search_jobs"
    assert result.fields["call"] == asking.fields["tool_calls"][0]["id"]
    assert {item.meta["to"] for item in items[5:]} == {items[4].meta["id"]}
    assert second.streamed.endswith(second.text)
    assert "再查一次" not in second.text
    assert [message["role"] for message in window["messages"]] == ["user", "assistant", "tool", "assistant"] * 2
    assert window["tokens"]["tools"] > 100
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ALL[JOB]["tools"]
    assert second.usage is not None
    assert second.usage["prompt_tokens"] == 20


async def test_the_demo_model_looks_for_jobs_with_the_shipped_agents(tmp_path: Path) -> None:
    async with ModelServer() as unused:
        gateway = Process(tmp_path, unused, {"models": {"main": {"provider": "demo"}}})
        gateway.agents = {
            path.stem: yaml.safe_load(path.read_text("utf-8")) for path in shipped_config().glob("agents/*.yaml")
        }
        async with gateway:
            first = await gateway.chat("u", "帮我推荐 Java 岗位")
            second = await gateway.chat("u", "薪资 25k 以上的")
            third = await gateway.chat("u", "换成上海的岗位")
            assert (gateway.workspace / "knowledge" / "jobs.yaml").exists()
        assert unused.requests == []
    assert "演示模型" in first.text
    assert first.text.count("Java") >= 5
    assert second.text.count("Java") >= 2
    assert min(int(low) for low in re.findall(r"(\d+)-\d+k", second.text)) >= 25
    assert re.search(r"Java.*上海", third.text)


async def test_a_profile_is_one_persons_and_shown_in_direct_chats_only(tmp_path: Path, model: ModelServer) -> None:
    def answer(messages: list[Message]) -> str | Message:
        last = messages[-1]
        if last["role"] == "user" and "记住" in last["content"]:
            return call("update_profile", {"skills": ["Rust 暗号", "13800138000"], "city": "上海"})
        return "好"

    model.answer = answer
    async with Inside(tmp_path, model, agents=ALL) as gateway:
        said = await gateway.chat("u1", "记住我会 Rust", agent=JOB)
        assert await asyncio.to_thread(profile, gateway) == {"skills": ["Rust 暗号", "138****8000"], "city": "上海"}
        await gateway.chat("u1", "看看", agent=RESUME)
        assert "> skills：Rust 暗号、138****8000" in system(model)
        view = (await gateway.get(f"/api/conversations/{said.conversation}/window"))[1]
        assert "Rust 暗号" in view["system"]["text"]
        await gateway.chat("u2", "看看", agent=RESUME)
        assert "暗号" not in json.dumps(model.requests[-1], ensure_ascii=False)
        await gateway.chat("u1", "看看", group="team", agent=RESUME)
        assert "暗号" not in json.dumps(model.requests[-1], ensure_ascii=False)
        assert "tools" not in model.requests[-1], "nothing of a person's is read or written in groups"
        await gateway.chat("u1", "记住这个", group="team", agent=JOB)
        assert [tool["function"]["name"] for tool in model.requests[-1]["tools"]] == ["search_jobs"]
        assert "没有名为 update_profile" in model.requests[-1]["messages"][-1]["content"]

        (file,) = await asyncio.to_thread(lambda: list((gateway.workspace / "users").glob("*.yaml")))
        text = await asyncio.to_thread(file.read_text, "utf-8")
        edited = text.replace("Rust 暗号", "管理员写的 13900139000")
        await asyncio.to_thread(file.write_text, edited, "utf-8")
        await gateway.chat("u1", "看看", agent=RESUME)
        assert "管理员写的 139****9000" in system(model)
        await asyncio.to_thread(file.write_text, "profile: [", "utf-8")
        assert (await gateway.chat("u1", "看看", agent=RESUME)).text == "好", "a broken profile is left out"
        await gateway.chat("u1", "/forget")
        assert not await asyncio.to_thread(file.exists)


async def test_a_broken_profile_is_logged_once_a_turn(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its summary is looked after behind every answer here, and makes the room once more."""
    often = {"agent": {"context": {"summary": {"enabled": True, "after-turns": 1}}}}
    async with Inside(tmp_path, model, often) as gateway:
        said = await gateway.chat("u1", "第一问")
        assert said.conversation
        file = gateway.workspace / "users" / f"{said.conversation.partition(':')[0]}.yaml"
        await asyncio.to_thread(file.parent.mkdir, exist_ok=True)
        await asyncio.to_thread(file.write_text, "profile: [", "utf-8")
        caplog.set_level(logging.DEBUG, "sanqiao.answering")

        def told() -> list[int]:
            return [each.levelno for each in caplog.records if "profile left out" in each.getMessage()]

        await gateway.chat("u1", "再说说看")
        await until(lambda: {logging.ERROR, logging.DEBUG} <= set(told()), what="a summary's room is made")
    # By now the summary behind the second answer is made as well; that behind the first may have met the file too.
    assert told().count(logging.ERROR) == 1


async def test_what_was_said_elsewhere_is_recalled_on_demand_only(tmp_path: Path, model: ModelServer) -> None:
    def answer(messages: list[Message]) -> str | Message:
        if messages[-1]["role"] == "user" and "上次" in messages[-1]["content"]:
            return call("recall", {"query": "期望薪资"})
        return "好"

    model.answer = answer
    async with Inside(tmp_path, model, agents=ALL) as gateway:
        await gateway.chat("u1", "我的期望薪资是三万五", agent=JOB)
        await gateway.chat("u1", "群里的期望薪资是假的", agent=JOB, group="team")
        await gateway.chat("u2", "别人的期望薪资是九万", agent=JOB)
        await gateway.chat("u1", "你好", agent=RESUME)
        assert "三万五" not in json.dumps(model.requests[-1], ensure_ascii=False)
        await gateway.chat("u1", "上次说的是多少", agent=RESUME)
        result = model.requests[-1]["messages"][-1]["content"]
        assert "三万五" in result
        assert "假的" not in result
        assert "九万" not in result
        await gateway.chat("u1", "/new", agent=JOB)
        await gateway.chat("u1", "上次说的呢", agent=RESUME)
        assert "三万五" not in model.requests[-1]["messages"][-1]["content"], "a reset ends what was said before it"


async def test_own_functions_are_tools(tmp_path: Path, model: ModelServer) -> None:
    (tmp_path / "depot_tools.py").write_text(
        'def stock(product: str) -> str:\n    """查库存"""\n    return product + "有 12 件"\n'
    )
    model.answers = [call("stock", {"product": "台灯"}), "有货"]
    async with Inside(tmp_path, model, agents={JOB: {"tools": ["depot_tools:stock"]}}) as gateway:
        assert (await gateway.chat("u", "有台灯吗", agent=JOB)).text == "有货"
    assert model.requests[-1]["messages"][-1]["content"] == "台灯有 12 件"
    assert model.requests[0]["tools"][0]["function"]["description"] == "查库存"


async def test_stopping_while_a_tool_runs_keeps_no_answer(tmp_path: Path, model: ModelServer) -> None:
    (tmp_path / "slow_tools.py").write_text(
        "import asyncio\nasync def slow() -> str:\n    await asyncio.sleep(30)\n    return ''\n"
    )
    model.answers = [call("slow", {}, text="查一下"), "不该问到"]
    async with Inside(tmp_path, model, agents={JOB: {"tools": ["slow_tools:slow"]}}) as gateway:
        asking = asyncio.create_task(gateway.chat("u", "查", agent=JOB))
        await until(lambda: gateway.files() and len(checked(gateway.files()[0])) == 2)
        await gateway.chat("u", "/stop")
        await asking
        assert [item.role for item in await gateway.items()] == ["user", "assistant"]
        model.answers = []
        await gateway.chat("u", "还在吗", agent=JOB)
        roles = [message["role"] for message in model.requests[-1]["messages"]]
        assert "tool" not in roles
        assert all(not message.get("tool_calls") for message in model.requests[-1]["messages"])


async def test_a_server_that_takes_no_tools_answers_without_them(tmp_path: Path, model: ModelServer) -> None:
    model.refuses_keys = {"tools"}
    async with Inside(tmp_path, model, agents=ALL) as gateway:
        async with model.held():  # so that several are refused before the first is known to be
            asking = [asyncio.create_task(gateway.chat(f"u{n}", "你好", agent=JOB)) for n in range(3)]
            await until(lambda: len(model.requests) == 3)
        assert [(await each).text for each in asking] == ["答复：你好"] * 3
        assert (await gateway.chat("u", "再问", agent=JOB)).text == "答复：再问"
    assert ["tools" in request for request in model.requests] == [True] * 3 + [False] * 4


async def test_a_kill_while_tools_run(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """What was done is not done again; what was not is, where that does no harm, and else is told to the model."""
    (tmp_path / "kill_tools.py").write_text(
        "import pathlib, time\n"
        f"there = pathlib.Path({str(tmp_path)!r})\n"
        "def slow() -> str:\n"
        "    with (there / 'runs').open('a') as file:\n        file.write('x')\n"
        "    time.sleep(60)\n    return ''\n"
    )
    tools = {JOB: {"tools": ["kill_tools:slow", "update_profile"]}}

    def answer(messages: list[Message]) -> str | Message:
        done = [message["content"] for message in messages if message["role"] == "tool"]
        if done:
            return "结果：" + "；".join(done)
        first, second = call("update_profile", {"skills": ["Go"]}, "c1"), call("slow", {}, "c2")
        return {**first, "tool_calls": first["tool_calls"] + second["tool_calls"]}

    model.answer = answer
    async with Process(tmp_path, model, {"agent": {"default": JOB}}, agents=tools, feishu=feishu) as gateway:
        number = await gateway.feishu_event("记住我会 Go")
        users = gateway.workspace / "users"
        await until(lambda: (tmp_path / "runs").exists() and list(users.glob("u*.yaml")), what="both tools to begin")
        # The change of the profile is undone by hand, to see that it is not made again.
        (file,) = await asyncio.to_thread(lambda: list(users.glob("u*.yaml")))
        text = await asyncio.to_thread(file.read_text, "utf-8")
        await asyncio.to_thread(file.write_text, text.replace("Go", "Rust"), "utf-8")
        await gateway.kill()
        assert [item.role for item in await gateway.items()] == ["user", "assistant"]
        await gateway.start()
        await until(lambda: texts(feishu, number), what="the answer after the kill")
        (said,) = texts(feishu, number)
        items = await gateway.items()
        assert await asyncio.to_thread((tmp_path / "runs").read_text) == "x", "an own tool is not run twice"
        assert (await asyncio.to_thread(profile, gateway))["skills"] == "Rust"
    assert "已更新" in said
    assert said.endswith("（工具运行被中断）")
    assert [item.role for item in items] == ["user", "assistant", "tool", "tool", "assistant"]
    assert len(model.requests) == 2
