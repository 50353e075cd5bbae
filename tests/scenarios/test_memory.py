"""Files and windows under the whole gateway: B22, B25, B27-B30, B35, B56."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from memory.conversation import ConversationId, LaneKey, Role, ToolCall, Turn, session_id, user_id
from memory.yamlform import write_item
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import checked, said
from tests.scenarios.gateway import TOKEN, Inside, asked

AT = "2026-01-05T10:00:00.000+08:00"


def seed(path: Path, turns: list[Turn]) -> None:
    """A file as earlier runs left it. Blocking."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(b"".join(write_item(replace(turn, n=n, epoch=0)) for n, turn in enumerate(turns)))


def talk(*texts: str) -> list[Turn]:
    """Turns of user and assistant by turns, beginning with the user."""
    turns: list[Turn] = []
    for n, text in enumerate(texts):
        user = n % 2 == 0
        to = None if user else turns[-1].id
        turns.append(Turn(role=Role.USER if user else Role.ASSISTANT, text=text, id=f"s{n}", at=AT, to=to))
    return turns


async def seeded(gateway: Inside, turns: list[Turn]) -> Path:
    """The file of web user u with the general agent, as if these turns had been said."""
    lane = LaneKey(user_id("web", "web", "u"), "web", session_id("web", "web", "u"), False)
    path = gateway.file_of(str(lane.with_agent("general-agent")))
    await asyncio.to_thread(seed, path, turns)
    return path


# ---------------------------------------------------------------- B22

NAMES = [
    "a:b",
    "a",
    "../../etc/x",
    ".",
    "CON",
    "$:LWCP_v1:$Ab/Cd+Ef==",
    "好" * 86,
    "a/b",
    "A",
    "x" * 200,
    "名 字",
    "🙂",
]


async def test_no_two_chats_share_a_file_and_none_leaves_its_folder(gateway: Inside, feishu: FakeFeishu) -> None:
    """B22: whatever names and ids hold, different people and chats have different files, all below conversations/."""
    pairs = [
        (user, group) for user in NAMES for group in (None, "b:c", "c", "..", "cidAAAA…D2th61w=", "cidBBBB…D2th61w=")
    ]
    ids = {(await gateway.chat(user, "你好呀", group=group)).conversation for user, group in pairs}
    assert len(ids) == len(pairs)
    for number in ids:
        assert str(ConversationId.parse(number or "")) == number
    everything = await asyncio.to_thread(lambda: [path for path in gateway.root.rglob("*.yaml") if path.is_file()])
    below = [path for path in everything if path.is_relative_to(gateway.workspace / "conversations")]
    assert len(below) == len(pairs)
    assert len(everything) - len(below) == 1 + len(gateway.agents), "nothing was written elsewhere"
    await gateway.feishu_says("你好呀", "ou_a", chat_id="oc_x:y")
    await gateway.feishu_says("你好呀", "ou_a:x", chat_id="oc_y")
    assert len(await asyncio.to_thread(gateway.files)) == len(pairs) + 2


@pytest.mark.parametrize("user", ["", "a\0b", "x" * 201, " ", "a\nb"])
async def test_ids_that_can_be_nobodys_are_refused(gateway: Inside, user: str) -> None:
    """B22: NUL, empty, over-long: one clear answer, nothing stored."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = {"user": user, "text": "你好"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(gateway.console("/api/chat"), json=body) as response,
    ):
        assert response.status == 400
        assert "user" in (await response.json())["error"]
    assert not gateway.files()


# ---------------------------------------------------------------- B25, B27

YAML_TEXTS = [
    *("yes", "no", "on", "null", "~", "1e3", "1_000", "0x1F", "017", "12:30", "2026-01-01", "a: b", "- x", "a # b"),
    *("  lead", "trail  ", "a\n", "a\r\nb", "\ta", "---", "...", "a\n...\nb", "<<", "=", "&a", "*a", "!x", "%YAML"),
    *(
        "@x",
        "|",
        ">",
        "''",
        "a\x85b",
        "a\u2028b",
        "a\u2029b",
        "\ufeffa",
        "a\0b",
        "a\x7fb",
        "👨‍👩‍👧",
        "a\u202eb",
        "长" * 5000,
    ),
    *("\n  indented\n- item", "a\n\n\n b", "#", '"', "?", "- user: |-\n    x", "  meta: {}", "\\", "{", "[1, 2]", "`"),
]


def _answer(text: str) -> str:
    """An answer is cleaned of NUL; a question is kept to the character."""
    return f"答复：{text}".replace("\0", "")


async def test_texts_that_yaml_would_change(tmp_path: Path, model: ModelServer) -> None:
    """B27: the very same text, a str, in the file, in the API, in the next request; also after a restart."""
    everything = {"agent": {"context": {"window": {"max-messages": 500, "max-tokens": 500_000}}}}
    everything["models"] = {"main": {"context-tokens": 1_000_000}}
    async with Inside(tmp_path, model, everything) as gateway:
        for text in YAML_TEXTS:
            answer = await gateway.chat("u", text)
            assert answer.text == _answer(text), repr(text)
        number = answer.conversation
    turns = [turn for text in YAML_TEXTS for turn in (("user", text), ("assistant", _answer(text)))]
    async with Inside(tmp_path, model, everything) as gateway:
        items = await gateway.items()
        assert [(item.role, item.text) for item in items] == turns
        path = gateway.file_of(number)
        loaded = await asyncio.to_thread(lambda: yaml.load(path.read_text(encoding="utf-8"), yaml.SafeLoader))
        assert [next(iter(item.values())) for item in loaded] == [text for _, text in turns]
        _, page = await gateway.get(f"/api/conversations/{number}?limit=200")
        assert [(turn["role"], turn["text"]) for turn in page["turns"]] == turns
        await gateway.chat("u", "最后一问，请把上面的都考虑进去")
        sent = asked(model)[-1][:-1]
        assert set(sent) <= set(turns)
        assert len(sent) >= len(turns) - 8, "acknowledgements are left out, with their answers"


async def test_a_torn_file_is_mended_with_the_next_message(gateway: Inside, model: ModelServer) -> None:
    """B25: what an interrupted write left is put aside; nothing else is lost."""
    path = await seeded(gateway, talk("我叫张三", "你好张三"))
    whole = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(path.write_bytes, whole + b"- user: |-\n    half a mess")
    assert (await gateway.chat("u", "我叫什么？")).text == "你叫张三"
    assert [text for _, text in await asyncio.to_thread(said, path)] == [
        "我叫张三",
        "你好张三",
        "我叫什么？",
        "你叫张三",
    ]
    await asyncio.to_thread(checked, path)
    kept = await asyncio.to_thread(
        lambda: [p.read_bytes() for p in gateway.workspace.rglob("quarantine/**/*") if p.is_file()]
    )
    assert any(b"half a mess" in raw for raw in kept)


@pytest.mark.parametrize(
    "written",
    [
        '- user: "\\uD83D简历"\n- assistant: 好的\n',
        "- user: |\n    我叫王五\n- assistant: |\n    你好王五\n",
        "- user: 我叫王五\n",
    ],
    ids=["poisoned", "block", "plain"],
)
async def test_a_file_that_a_person_or_another_program_wrote(gateway: Inside, model: ModelServer, written: str) -> None:
    """B28: also one with half an emoji, which the C loader refuses: read, answered, and healed with the next append."""
    path = await seeded(gateway, talk("占位", "占位"))
    await asyncio.to_thread(path.write_text, written)
    answer = await gateway.chat("u", "我叫什么？")
    assert answer.text == ("你叫王五" if "王五" in written else "我不知道你的名字")
    items = await asyncio.to_thread(checked, path)
    assert [item.text for item in items][-2:] == ["我叫什么？", answer.text]
    assert "\ufffd简历" in items[0].text or "王五" in items[0].text


# ---------------------------------------------------------------- B29, B30


def valid(messages: list[dict[str, Any]]) -> None:
    """What strict servers want: system first, then the user; results right behind their calls; the question last."""
    assert [message["role"] for message in messages].count("system") == 1
    assert (messages[0]["role"], messages[1]["role"], messages[-1]["role"]) == ("system", "user", "user")
    open_calls: list[str] = []
    for message in messages[1:]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            continue
        assert not open_calls
        assert message.get("content") or message.get("tool_calls"), message
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert not open_calls


def tool_turns(n: int, *results: str) -> list[Turn]:
    """A question, two calls, the results there are, an answer."""
    calls = tuple(ToolCall(f"call-{n}-{name}", "search_jobs", "{}") for name in "AB")
    turns = [Turn(role=Role.USER, text=f"第{n}个问题", id=f"s{n}", at=AT)]
    turns.append(Turn(role=Role.ASSISTANT, text="", id=f"s{n}c", at=AT, to=f"s{n}", tool_calls=calls))
    for name in results:
        turns.append(Turn(role=Role.TOOL, text="{}", id=f"s{n}{name}", at=AT, to=f"s{n}", call=f"call-{n}-{name}"))
    turns.append(Turn(role=Role.ASSISTANT, text=f"第{n}个回答", id=f"s{n}a", at=AT, to=f"s{n}"))
    return turns


@pytest.mark.parametrize("cap", [4, 5, 6, 8, 10, 11, 13, 16, 20])
async def test_calls_and_results_stay_together_wherever_the_cut_falls(
    tmp_path: Path, model: ModelServer, cap: int
) -> None:
    """B29: also a result without call and a call without result; reading changes nothing in the file."""
    turns = talk(*(f"第{n}句，随便说说" for n in range(8)))
    turns += tool_turns(100, "A", "B")
    stray = Turn(role=Role.TOOL, text="{}", id="stray", at=AT, to="s100", call="call-Z")
    turns += [stray, *tool_turns(200, "A"), *tool_turns(300, "A", "B"), *tool_turns(400)]
    over = {"agent": {"context": {"window": {"max-messages": cap, "keep-recent": min(cap, 10)}}}}
    async with Inside(tmp_path, model, over) as gateway:
        path = await seeded(gateway, turns)
        before = await asyncio.to_thread(path.read_bytes)
        await gateway.chat("u", "现在的问题")
        messages = model.requests[-1]["messages"]
        valid(messages)
        assert messages[-1]["content"] == "现在的问题"
        assert (await asyncio.to_thread(path.read_bytes)).startswith(before)


async def test_the_window_begins_with_a_user_and_keeps_its_cap(gateway: Inside, model: ModelServer) -> None:
    """B30: 21 entries and a cap of 20; two user turns in a row; an empty answer."""
    await seeded(gateway, talk(*(f"第{n}句，随便说说" for n in range(20))))
    await gateway.chat("u", "第20句，随便说说")
    messages = model.requests[-1]["messages"]
    valid(messages)
    assert len(messages) - 1 <= 20
    assert [m["content"] for m in messages[1:]] == [f"第{n}句，随便说说" for n in range(2, 21)]


async def test_questions_without_answer_and_empty_answers(gateway: Inside, model: ModelServer) -> None:
    """B30: neighbours are joined, what is empty is left out, the question stands alone."""
    turns = talk("第一问，没有下文", "", "第二问，也没有", "第二答", "第三问，还是没有")
    turns[1] = Turn(role=Role.USER, text="又一问", id="s1", at=AT)
    turns.append(Turn(role=Role.ASSISTANT, text="  ", id="s9", at=AT, to="s4"))
    await seeded(gateway, turns)
    await gateway.chat("u", "最后一问")
    messages = model.requests[-1]["messages"]
    valid(messages)
    roles = [message["role"] for message in messages[1:]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    assert messages[-1]["content"] == "最后一问"
    assert "（上一条未得到回答）" in messages[-2]["content"]


# ---------------------------------------------------------------- B35


async def test_the_model_s_context_stands_above_keep_recent(tmp_path: Path, model: ModelServer) -> None:
    """B35 a: ten old turns of 500 tokens, a small model: the request fits, room for the answer is left."""
    over = {
        "models": {"main": {"context-tokens": 3000, "max-output-tokens": 1000}},
        "agent": {"context": {"window": {"max-tokens": 1000, "keep-recent": 10}}},
    }
    async with Inside(tmp_path, model, over) as gateway:
        await seeded(gateway, talk(*(f"第{n}句" + "很长的话" * 60 for n in range(10))))
        assert (await gateway.chat("u", "你好呀")).text == "答复：你好呀"
        messages = model.requests[-1]["messages"]
        valid(messages)
        characters = sum(len(message["content"]) for message in messages)
        assert 0 < characters * 2 <= 3000 - 1000
        assert len(messages) > 2, "what fits is there"


async def test_one_huge_message_spoils_nothing(tmp_path: Path, model: ModelServer) -> None:
    """B35 b: refused with a clear text, and what comes after it is answered."""
    over = {"limits": {"max-text-bytes": 1_000_000}, "server": {"max-body-bytes": 4_000_000}}
    async with Inside(tmp_path, model, over) as gateway:
        answer = await gateway.chat("u", "长" * 50_000)
        assert answer.error == "这条内容太长了，请缩短或分几次发送。"
        assert not model.requests
        assert (await gateway.chat("u", "你好呀")).text == "答复：你好呀"
        valid(model.requests[-1]["messages"])
        assert len(json.dumps(model.requests[-1], ensure_ascii=False)) < 32_000


TOO_LONG = (400, {"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}, {})


@pytest.mark.parametrize("turns", [2, 4, 12])
async def test_a_model_that_finds_it_too_long_is_asked_once_more_with_less(
    gateway: Inside, model: ModelServer, turns: int
) -> None:
    """B35 c: less than was sent, however little of the budget that was; the next message works."""
    await seeded(gateway, talk(*(f"第{n}句" + "很长的话" * 60 for n in range(turns))))
    model.fail = [TOO_LONG]
    assert (await gateway.chat("u", "你好呀")).text == "答复：你好呀"
    first, second = (sum(len(m["content"]) for m in request["messages"]) for request in model.requests)
    assert second < first * 0.7
    valid(model.requests[1]["messages"])


async def test_a_model_that_finds_it_too_long_twice(gateway: Inside, model: ModelServer) -> None:
    """B35 c: the user is told, and not asked for ever; a question without any past is not asked again at all."""
    model.fail = [TOO_LONG]
    said = "这条内容太长了，请缩短或分几次发送。"
    assert (await gateway.chat("u", "第一问")).error == said
    assert len(model.requests) == 1
    model.fail = [TOO_LONG] * 2
    assert (await gateway.chat("u", "第二问")).error == said
    assert len(model.requests) == 3
    assert (await gateway.chat("u", "第三问")).text == "答复：第三问"


# ---------------------------------------------------------------- B56


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
async def test_stored_times_do_not_depend_on_the_machine_s_zone(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """B56: with their offset, in the configured zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        gateway = Inside(tmp_path, model)
        gateway.clock = lambda: 1767225600.25
        async with gateway:
            answer = await gateway.chat("u", "几点了")
            assert [item.meta["at"] for item in await gateway.items()] == ["2026-01-01T08:00:00.250+08:00"] * 2
            _, listed = await gateway.get("/api/conversations")
            assert [(each["id"], each["last"]) for each in listed["conversations"]] == [
                (answer.conversation, "2026-01-01T08:00:00.250+08:00")
            ]
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_clock_set_back_neither_drops_nor_repeats_turns(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """B56: order is the order of the file, not of the times in it."""
    now = [time.time()]
    gateway = Inside(tmp_path, model, feishu=feishu)
    gateway.clock = lambda: now[0]
    async with gateway:
        for text in ("第一句话", "第二句话", "第三句话"):
            assert await gateway.feishu_says(text) == f"答复：{text}"
            now[0] -= 3600
        users = [text for role, text in asked(model)[-1] if role == "user"]
        assert users == ["第一句话", "第二句话", "第三句话"]
        assert [role for role, _ in await gateway.said()] == ["user", "assistant"] * 3
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        assert await gateway.feishu_says("第四句话") == "答复：第四句话"
        assert len(model.requests) == 4
