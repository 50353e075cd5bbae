"""Linked accounts from outside: /link from Feishu to the web chat, and what follows the person; nothing in groups."""

import asyncio
import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import housekeeping
from memory.conversation import user_id
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.gateway import Inside
from tests.scenarios.test_feishu_messages import BOT, bot_known, group
from tests.scenarios.test_forgetting import UNICORN, holding, left
from tests.scenarios.test_limits import TOO_FAST
from tests.scenarios.test_tools import ALL, JOB, RESUME, call, system
from tests.waiting import until, until_told

FEISHU, WEB = user_id("feishu", "cli_test", "ou_zhang"), user_id("web", "web", "zhang")


async def linked(gateway: Inside) -> None:
    """One person on Feishu and in the web chat says so; Feishu's account stands for them."""
    found = re.search(r"^/link (\S{5}-\S{5})$", await gateway.feishu_says("/link"), re.MULTILINE)
    assert found
    assert (await gateway.chat("zhang", f"/link {found[1]}")).text.startswith("已关联")


def kept(gateway: Inside, text: str) -> list[str]:
    """The rows of databases, and the other files, that hold the text. Blocking."""
    found = [path for path in holding(gateway.workspace, text) if ".db" not in path]
    for path in gateway.workspace.glob("*.db"):
        with contextlib.closing(sqlite3.connect(path)) as database:
            found += [line for line in database.iterdump() if text in line]
    return found


async def document(gateway: Inside, user: str) -> dict[str, Any]:
    path = gateway.workspace / "users" / f"{user}.yaml"
    found: dict[str, Any] = yaml.safe_load(await asyncio.to_thread(path.read_text, "utf-8"))
    return found


async def test_a_code_goes_from_one_account_to_the_other(gateway: Inside, model: ModelServer) -> None:
    said = await gateway.feishu_says("关联账号")
    found = re.search(r"代码：(\S{5}-\S{5})\n", said)
    assert found
    code = found[1]
    assert "10 分钟" in said
    await until_told(lambda: asyncio.to_thread(kept, gateway, code), [])
    assert "另一个账号" in await gateway.feishu_says(f"/link {code}")
    assert "代码不对" in (await gateway.chat("zhang", "/link AAAAA-AAAAA")).text
    assert (await gateway.chat("zhang", f"／link {code.lower()}")).text.startswith("已关联")
    assert await document(gateway, WEB) == {"same-as": FEISHU}
    assert "代码不对" in (await gateway.chat("li", f"/link {code}")).text
    await until_told(lambda: asyncio.to_thread(kept, gateway, code.lower()), [])
    assert FEISHU in (await gateway.chat("zhang", "/whoami")).text
    assert WEB in await gateway.feishu_says("/whoami")
    assert WEB not in (await gateway.chat("zhang", "/whoami", group="g")).text.replace(f"标识：{WEB}", "")
    assert FEISHU not in (await gateway.chat("zhang", "/whoami", group="g")).text
    assert (await gateway.chat("zhang", "解除关联")).text.startswith("已取消关联")
    assert not (gateway.workspace / "users" / f"{WEB}.yaml").exists()
    assert model.requests == []


async def test_a_code_in_a_group_is_void(gateway: Inside, feishu: FakeFeishu) -> None:
    await bot_known(feishu)
    assert "私聊" in await gateway.feishu_says("@_user_1 /link", **group(BOT))
    found = re.search(r"代码：(\S+)", await gateway.feishu_says("/link"))
    assert found
    assert "作废" in await gateway.feishu_says(f"@_user_1 /link {found[1]}", **group(BOT))
    assert "代码不对" in (await gateway.chat("zhang", f"/link {found[1]}")).text


async def test_profile_and_recall_follow_the_person_in_direct_chats_only(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    def answer(messages: list[Message]) -> str | Message:
        last = messages[-1]
        if last["role"] == "user" and "记住" in last["content"]:
            return call("update_profile", {"skills": ["Rust 暗号"]})
        if last["role"] == "user" and "上次" in last["content"]:
            return call("recall", {"query": "期望薪资"})
        return "好"

    model.answer = answer
    everyone = {**ALL, "general-agent": ALL[RESUME]}
    async with Inside(tmp_path, model, agents=everyone, feishu=feishu) as gateway:
        await bot_known(feishu)
        await gateway.feishu_says("我的期望薪资是三万五")
        await gateway.feishu_says("@_user_1 群里的期望薪资是假的", **group(BOT))
        await gateway.chat("zhang", "上次说的是多少")
        assert "三万五" not in model.requests[-1]["messages"][-1]["content"]
        await linked(gateway)
        await gateway.chat("zhang", "上次说的是多少")
        recalled = model.requests[-1]["messages"][-1]["content"]
        assert "三万五" in recalled
        assert "假的" not in recalled
        await gateway.chat("zhang", "记住我会 Rust", agent=JOB)
        assert (await document(gateway, FEISHU))["profile"] == {"skills": "Rust 暗号"}
        await gateway.feishu_says("看看")
        assert "Rust 暗号" in system(model)

        for said in ("看看", "上次说的是多少"):
            await gateway.feishu_says(f"@_user_1 {said}", **group(BOT))
            asked = json.dumps(model.requests[-1], ensure_ascii=False)
            assert "暗号" not in asked
            assert "三万五" not in asked
            await gateway.chat("zhang", said, group="team", agent=JOB)
            assert "暗号" not in json.dumps(model.requests[-1], ensure_ascii=False)

        await gateway.chat("zhang", "/unlink")
        await gateway.chat("zhang", "看看", agent=JOB)
        assert "暗号" not in system(model)
        await gateway.chat("zhang", "上次说的呢", session="s2")
        assert "三万五" not in model.requests[-1]["messages"][-1]["content"]


async def test_unlinking_while_a_turn_runs(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """The turn goes on; what its tools do after that is of its own account alone."""
    model.answers = [call("update_profile", {"city": "上海"}), "记下了"]
    async with Inside(tmp_path, model, agents=ALL, feishu=feishu) as gateway:
        await linked(gateway)
        async with model.held("记住"):
            asking = asyncio.create_task(gateway.chat("zhang", "记住我在上海", agent=JOB))
            await until(lambda: model.requests)
            assert (await gateway.feishu_says("/unlink")).startswith("已取消关联")
        assert (await asking).text == "记下了"
        assert (await document(gateway, WEB))["profile"] == {"city": "上海"}
        assert not (gateway.workspace / "users" / f"{FEISHU}.yaml").exists()


async def test_both_accounts_at_once(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """Two turns of one person, side by side: what either notes is in the one profile."""

    def answer(messages: list[Message]) -> str | Message:
        last = messages[-1]
        return call("update_profile", {last["content"]: "是"}) if last["role"] == "user" else "好"

    model.answer = answer
    async with Inside(tmp_path, model, agents={"general-agent": ALL[RESUME]}, feishu=feishu) as gateway:
        await linked(gateway)
        names = [f"第{number}项" for number in range(6)]
        ways = [gateway.chat("zhang", name, session=name) for name in names[::2]]
        await asyncio.gather(*ways, *(gateway.feishu_says(name, thread_id=name) for name in names[1::2]))
        assert sorted((await document(gateway, FEISHU))["profile"]) == sorted(names)
        assert await document(gateway, WEB) == {"same-as": FEISHU}


async def test_the_rate_is_the_persons(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    async with Inside(tmp_path, model, {"limits": {"messages-per-minute": 4}}, feishu=feishu) as gateway:
        await linked(gateway)  # one of four on each account
        assert await gateway.feishu_says("二") == "答复：二"
        assert (await gateway.chat("zhang", "三")).text == "答复：三"
        assert (await gateway.chat("zhang", "四")).text == "答复：四"
        assert await gateway.feishu_says("五") == TOO_FAST
        assert (await gateway.chat("li", "一")).text == "答复：一"


async def test_forgetting_takes_all_accounts_and_the_link(gateway: Inside, feishu: FakeFeishu) -> None:
    await linked(gateway)
    await gateway.feishu_says(UNICORN)
    await gateway.chat("zhang", "网页里的独角兽")
    await gateway.chat("zhang", "群里的独角兽", group="g")
    await gateway.chat("li", "凤凰")
    said = await gateway.chat("zhang", "/forget")
    assert said.text.startswith("已删除你的全部资料：3 个会话")
    for trace in ("独角兽", WEB, FEISHU):
        await until(lambda trace=trace: not holding(gateway.workspace, trace), what=trace)  # type: ignore[misc]
    assert await left(gateway, "凤凰")
    assert "已关联" not in (await gateway.chat("zhang", "/whoami")).text
    await gateway.feishu_says("我又来了")
    said = await gateway.chat("zhang", "/forget")
    assert said.text == "已删除你的全部资料：1 条收件记录。", "who comes back is alone"
    assert await left(gateway, "我又来了")


async def test_the_other_accounts_turn_ends_when_the_person_is_forgotten(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    await linked(gateway)
    async with model.held("独角兽"):
        running = asyncio.create_task(gateway.chat("zhang", UNICORN))
        await until(lambda: model.requests)
        assert (await gateway.feishu_says("/forget")).startswith("已删除")
        assert (await running).error == "已按你的要求停止处理，并删除了你的资料。"
    assert await left(gateway, "独角兽") == []


async def test_what_an_admin_writes_counts_within_seconds_and_for_forgetting_at_once(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_LINKS_SECONDS", 0.05)
    monkeypatch.setattr(housekeeping, "_LINKS_REST", 0.0)
    users = tmp_path / "workspace" / "users"

    def write(user: str, text: str) -> None:
        users.mkdir(parents=True, exist_ok=True)
        (users / f"{user}.yaml").write_text(text, encoding="utf-8")

    await asyncio.to_thread(write, FEISHU, "profile: {city: 独角兽城}\n")
    await asyncio.to_thread(write, WEB, f"same-as: {FEISHU}\n")
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        await gateway.chat("zhang", "你好")
        assert "独角兽城" in system(model), "known from the start"
        li = user_id("web", "web", "li")
        await asyncio.to_thread(write, li, f"same-as: {WEB}\n")
        await until(lambda: gateway.app._memory.persons.of(li) == FEISHU)
        await gateway.chat("li", "你好")
        assert "独角兽城" in system(model)
        wang = user_id("web", "web", "wang")
        await gateway.chat("wang", "王也是")
        await asyncio.to_thread(write, wang, f"same-as: {li}\n")
        status = await gateway.app.backend.forget(FEISHU)
        assert status.profiles == 4
        for trace in ("独角兽城", WEB, FEISHU, li, wang):
            assert await left(gateway, trace) == [], trace
