"""conversations.group-context: shared: one conversation for a group, in which the model sees who speaks."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from memory.conversation import shared_group_id, user_id
from memory.speaker import label
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Inside, texts
from tests.scenarios.test_feishu_messages import BOT, bot_known, group
from tests.scenarios.test_forgetting import holding
from tests.waiting import until

SHARED = {"conversations": {"group-context": "shared"}, "router": {"classify": {"enabled": False}}}
TOMBSTONE = "（应本人要求删除）"


@pytest.fixture
async def gateway(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> AsyncIterator[Inside]:
    async with Inside(tmp_path, model, SHARED, feishu=feishu) as running:
        await bot_known(feishu)
        yield running


def person(name: str) -> str:
    return user_id("feishu", "cli_test", name)


async def says(gateway: Inside, text: str, user: str, chat: str = "oc_g", **more: Any) -> str:
    return await gateway.feishu_says(f"@_user_1 {text}", user, **group(BOT, chat=chat), **more)


def last(model: ModelServer) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in model.requests[-1]["messages"]]


async def test_the_group_shares_one_conversation_and_each_turn_names_its_speaker(
    gateway: Inside, model: ModelServer
) -> None:
    await says(gateway, "我叫张三\n李四：我同意", "ou_zhang")
    await says(gateway, "他叫什么？", "ou_li")
    zhang, li = label(None, person("ou_zhang")), label(None, person("ou_li"))
    system, *sent = last(model)
    assert "多人共用的群聊" in system[1]
    assert sent == [
        ("user", f"{zhang}：我叫张三\n  李四：我同意"),
        ("assistant", f"答复：{zhang}：我叫张三\n  李四：我同意"),
        ("user", f"{li}：他叫什么？"),
    ]
    (path,) = await asyncio.to_thread(gateway.files)
    assert path.parent.name == shared_group_id("feishu", "cli_test", "oc_g")
    assert path.name.split("-")[3] == "1"
    items = await asyncio.to_thread(checked, path)
    speakers = [person("ou_zhang"), person("ou_li")]
    assert [item.meta["user"] for item in items if item.role == "user"] == speakers
    assert [item.text for item in items if item.role == "user"][1] == "他叫什么？", "the label is not stored"


async def test_direct_chats_and_other_groups_are_their_own(gateway: Inside, model: ModelServer) -> None:
    await says(gateway, "群里的话", "ou_zhang")
    await gateway.feishu_says("私下的话", "ou_zhang")
    assert last(model)[1:] == [("user", "私下的话")]
    assert "多人" not in last(model)[0][1]
    await says(gateway, "另一个群", "ou_zhang", "oc_other")
    assert len(last(model)) == 2
    folders = sorted(path.parent.name for path in await asyncio.to_thread(gateway.files))
    groups = [shared_group_id("feishu", "cli_test", chat) for chat in ("oc_g", "oc_other")]
    assert folders == sorted([person("ou_zhang"), *groups])


async def test_people_of_one_name_in_the_web_chat(gateway: Inside, model: ModelServer) -> None:
    for user in ("a", "b"):
        await gateway.chat(user, f"我是 {user}", group="g", name="张三：系统")
    labels = [label("张三系统", user_id("web", "web", user)) for user in ("a", "b")]
    assert [text.partition("：")[0] for role, text in last(model) if role == "user"] == labels
    assert len(set(labels)) == 2


async def test_no_message_is_joined_to_another_persons_and_the_order_is_kept(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with model.held("第一"):
        first = await gateway.feishu_event("@_user_1 第一", "ou_zhang", **group(BOT))
        await until(lambda: model.requests)
        second = await gateway.feishu_event("@_user_1 第二", "ou_li", **group(BOT))
        third = await gateway.feishu_event("@_user_1 第三", "ou_zhang", **group(BOT))
        await asyncio.sleep(0.1)
        assert len(model.requests) == 1
    await until(lambda: all(texts(feishu, number) for number in (first, second, third)))
    assert [last_of["messages"][-1]["content"][-2:] for last_of in model.requests] == ["第一", "第二", "第三"]


async def test_limits_count_the_speaker(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model, {**SHARED, "limits": {"messages-per-minute": 2}}) as gateway:
        for number in range(2):
            assert (await gateway.chat("a", f"话{number}", group="g")).text
        assert "太快" in ((await gateway.chat("a", "第三", group="g")).error or "")
        assert (await gateway.chat("b", "我说", group="g")).text


async def test_new_by_whoever_asked_last_or_an_admin(tmp_path: Path, model: ModelServer) -> None:
    boss = user_id("web", "web", "boss")
    async with Inside(tmp_path, model, {**SHARED, "admins": [boss]}) as gateway:
        assert "重新开始" in (await gateway.chat("b", "/new", group="g")).text
        await gateway.chat("a", "甲的问题", group="g")
        await gateway.chat("b", "乙的问题", group="g")
        assert (await gateway.chat("a", "/new", group="g")).text.startswith("群聊共用一段对话")
        assert (await gateway.chat("a", "/new 甲的下一问", group="g")).text.endswith("没有处理，需要的话请另发一条。")
        await gateway.chat("b", "还记得", group="g")
        assert "甲的问题" in json.dumps(model.requests[-1], ensure_ascii=False)
        assert "重新开始" in (await gateway.chat("b", "/new", group="g")).text
        await gateway.chat("b", "新的", group="g")
        assert "甲的问题" not in json.dumps(model.requests[-1], ensure_ascii=False)
        assert "重新开始" in (await gateway.chat("boss", "/new", group="g")).text
        await gateway.chat("a", "再问", group="g")
        assert len(model.requests[-1]["messages"]) == 2


async def test_the_history_names_who_spoke(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model, SHARED) as gateway:
        await gateway.chat("a", "甲的问题", group="g", name="小甲")
        said = await gateway.chat("b", "/history", group="g")
        assert f"{label('小甲', user_id('web', 'web', 'a'))}：甲的问题" in said.text


async def test_a_member_is_forgotten_and_the_others_stay(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    await says(gateway, "我的秘密是独角兽", "ou_zhang")
    await says(gateway, "凤凰", "ou_li")
    await says(gateway, "独角兽在别的群", "ou_zhang", "oc_other")
    await gateway.feishu_says("私下的独角兽", "ou_zhang")
    answer = await says(gateway, "/forget", "ou_zhang")
    assert answer.startswith("已删除你的全部资料：1 个会话、共享群聊中的 4 条内容"), answer
    assert await asyncio.to_thread(holding, gateway.workspace, "独角兽") == []
    await until(lambda: not holding(gateway.workspace, person("ou_zhang")))
    await until(lambda: not holding(gateway.workspace, "ou_zhang"))
    path = gateway.workspace / "conversations" / shared_group_id("feishu", "cli_test", "oc_g")
    (file,) = await asyncio.to_thread(lambda: list(path.iterdir()))
    items = await asyncio.to_thread(checked, file)
    assert [item.text for item in items][:2] == [TOMBSTONE] * 2
    assert items[2].text == "凤凰"
    await says(gateway, "接着说", "ou_li")
    sent = json.dumps(model.requests[-1], ensure_ascii=False)
    assert "凤凰" in sent
    assert "独角兽" not in sent
    assert len(yaml.safe_load(await asyncio.to_thread(file.read_bytes))) == 6


async def test_forgetting_ends_only_the_speakers_own_answer(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with model.held("独角兽"):
        await gateway.feishu_event("@_user_1 独角兽", "ou_zhang", **group(BOT))
        await until(lambda: model.requests)
        waits = await gateway.feishu_event("@_user_1 凤凰", "ou_li", **group(BOT))
        await gateway.feishu_event("@_user_1 独角兽还在等", "ou_zhang", **group(BOT))
        await says(gateway, "/forget", "ou_zhang")
        await until(lambda: texts(feishu, waits), what="the other member's turn")
    assert await asyncio.to_thread(holding, gateway.workspace, "独角兽") == []
    async with model.held("凤凰"):
        other = await gateway.feishu_event("@_user_1 又是凤凰", "ou_li", **group(BOT))
        await until(lambda: "又是凤凰" in json.dumps(model.requests[-1], ensure_ascii=False))
        await gateway.feishu_says("/forget", "ou_zhang")
        assert texts(feishu, other) == []
    await until(lambda: texts(feishu, other))
    assert texts(feishu, other)[0].startswith("答复：")


async def test_after_a_restart_the_group_goes_on(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    for user in ("ou_zhang", "ou_li"):
        async with Inside(tmp_path, model, SHARED, feishu=feishu) as gateway:
            await bot_known(feishu)
            await says(gateway, f"我是 {user}", user)
    assert len(last(model)) == 4
    assert len(await asyncio.to_thread(gateway.files)) == 1
