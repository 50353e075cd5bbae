"""The trace of a message: "I wrote and it did not answer" is answered by one search; a request is shown as it was sent."""

import asyncio
import contextlib
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.logs import JsonLines, TextLines
from memory.conversation import user_id
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.gateway import VERIFICATION_TOKEN, Clock, Gateway, Inside, id_of, merged, texts
from tests.scenarios.test_feishu_messages import BOT, bot_known, group
from tests.scenarios.test_summaries import SUMMARISED, answer, config
from tests.scenarios.test_tools import ALL, JOB, call
from tests.waiting import until

CANARY = "独角兽在阁楼里"
PHONE = "13812345678"


async def search(gateway: Gateway, **query: str) -> list[dict[str, Any]]:
    """The traces that one search finds, newest first."""
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    status, body = await gateway.get(f"/api/traces?{asked}")
    assert status == 200, body
    found: list[dict[str, Any]] = body["traces"]
    return found


async def trace(gateway: Gateway, **query: str) -> dict[str, Any]:
    """The only trace that one search finds, with its steps."""
    (found,) = await search(gateway, **query)
    status, whole = await gateway.get(f"/api/traces/{found['id']}")
    assert status == 200
    assert {key: whole[key] for key in found} == found
    result: dict[str, Any] = whole
    return result


def kinds(found: dict[str, Any]) -> list[str]:
    return [step["kind"] for step in found["steps"]]


def step(found: dict[str, Any], kind: str) -> dict[str, Any]:
    (one,) = [each for each in found["steps"] if each["kind"] == kind]
    return dict(one)


async def sent(gateway: Gateway, **query: str) -> dict[str, Any]:
    """The request as it was sent for the newest message that a search finds."""
    newest = (await search(gateway, **query))[0]
    status, body = await gateway.get(f"/api/traces/{newest['id']}/request")
    assert status == 200, body
    result: dict[str, Any] = body
    return result


async def same_as_received(gateway: Gateway, model: ModelServer, **query: str) -> None:
    """What is shown of the newest message's request is, to the byte, what the model's server received."""
    shown = await sent(gateway, **query)
    received = [each for each in model.requests if each["model"] == "fake-main"][-1]  # not one for a summary
    assert shown["exact"] is True
    assert shown["missing"] == []
    ours = {key: shown["body"].get(key) for key in ("model", "messages", "tools", "temperature")}
    theirs = {key: received.get(key) for key in ours}
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


# ---------------------------------------------------------------- why it did not answer


async def test_an_answered_message_tells_every_step(gateway: Inside, model: ModelServer) -> None:
    number = await gateway.feishu_event(f"推荐岗位，电话 {PHONE}")
    await until(lambda: texts(gateway.feishu, number), what="an answer")  # type: ignore[arg-type]
    found = await trace(gateway, q=number)
    assert kinds(found) == ["received", "routed", "window", "model", "answered", "sent"]
    assert found["outcome"] == "delivered"
    assert found["user"] == user_id("feishu", "cli_test", "ou_zhang")
    assert found["text"] == "推荐岗位，电话 138****5678"
    assert step(found, "routed")["agent"] == "job-recommend-agent"
    assert "推荐岗位" in step(found, "routed")["reason"]
    asked = step(found, "model")
    assert (asked["model"], asked["prompt_tokens"], asked["completion_tokens"]) == ("fake-main", 10, 5)
    assert 0 <= asked["first_token"] <= asked["seconds"] < 60
    assert step(found, "sent")["platform_id"].startswith("om_")
    times = [each["at"] for each in found["steps"]]
    assert times == sorted(times)
    for query in (
        {"q": found["id"]},
        {"q": found["user"]},
        {"q": "ou_zhang"},
        {"q": found["conversation"]},
        {"user": found["user"]},
        {"message": number},
        {"conversation": found["conversation"], "outcome": "delivered", "channel": "feishu"},
    ):
        assert [each["message"] for each in await search(gateway, **query)] == [number], query
    for query in ({"q": "om_other"}, {"user": "ou_li"}, {"conversation": found["conversation"] + "x"}):
        assert await search(gateway, **query) == [], query
    assert (await gateway.get("/api/traces?outcome=lost"))[0] == 400
    assert (await gateway.get("/api/traces/tnoneofthese"))[0] == 404


async def test_a_duplicate(gateway: Inside) -> None:
    event = message_event("你好", open_id="ou_zhang", chat_id="oc_ou_zhang")
    for _ in range(3):
        assert await gateway.deliver(event)
    await until(lambda: texts(gateway.feishu, id_of(event)), what="an answer")  # type: ignore[arg-type]
    found = await trace(gateway, q=id_of(event))
    assert kinds(found).count("received") == 1
    assert kinds(found).count("duplicate") == 2
    assert found["outcome"] == "delivered"


async def test_a_refused_message(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    over = {"channels": {"feishu": {"dm-policy": "allowlist", "allow-from": ["ou_boss"]}}}
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        number = await gateway.feishu_event("你好")
        await until(lambda: texts(feishu, number), what="a refusal")
        found = await trace(gateway, q=number)
        lane = found["lane"]
        in_the_chat = await search(gateway, conversation=f"{lane}:general-agent")
    assert (found["outcome"], found["reason"]) == ("refused", "refused-dm")
    assert step(found, "refused")["told"] is True
    assert [each["message"] for each in in_the_chat] == [number], "before an agent is chosen it belongs to each"


async def test_an_expired_message_and_one_that_was_resumed(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    gateway = Inside(tmp_path, model, {"server": {"drain": "100ms"}}, feishu=feishu)
    clock = Clock()
    gateway.clock = clock  # type: ignore[method-assign]
    async with model.held("第一句"):
        async with gateway:
            first = await gateway.feishu_event("第一句")
            await until(lambda: model.asked("第一句"))
        async with gateway:
            await until(lambda: len(model.asked("第一句")) == 2)
        clock.ahead += 3600
        async with gateway:
            found = await trace(gateway, q=first)
    assert kinds(found) == ["received", "routed", "window", "model", "resumed", "routed", "window", "model", "expired"]
    assert (found["outcome"], found["entry"]) == ("expired", "feishu")
    assert "answer-after-restart" in found["reason"]
    assert [each["error"] for each in found["steps"] if each["kind"] == "model"] == ["stopped"] * 2


async def test_a_model_that_is_down(gateway: Inside, model: ModelServer) -> None:
    model.fail = [(401, {"error": {"message": f"bad key for {CANARY}"}}, {})] * 9
    number = await gateway.feishu_event("你好")
    await until(lambda: texts(gateway.feishu, number), what="a friendly text")  # type: ignore[arg-type]
    found = await trace(gateway, q=number)
    assert kinds(found) == ["received", "routed", "window", "model", "failed", "sent"]
    assert found["outcome"] == "failed"
    assert "401" in found["reason"]
    assert step(found, "model")["error"] == step(found, "failed")["error"] == "ModelMisconfigured"
    assert CANARY not in json.dumps(found, ensure_ascii=False)


async def test_a_platform_that_refuses_the_send(gateway: Inside, feishu: FakeFeishu) -> None:
    feishu.faults = [("messages", 400, 230002, "bot not in chat")]
    number = await gateway.feishu_event("你好")
    async with asyncio.timeout(40):
        while not await search(gateway, q=number, outcome="unsent"):  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.02)
    found = await trace(gateway, q=number)
    assert kinds(found) == ["received", "routed", "window", "model", "answered", "unsent"]
    assert "230002" in found["reason"]


async def test_merged_messages_and_commands(gateway: Inside, model: ModelServer) -> None:
    async with model.held("第一句"):
        await gateway.feishu_event("第一句")
        await until(lambda: model.asked("第一句"))
        second = await gateway.feishu_event("第二句")
        third = await gateway.feishu_event("第三句")
    await until(lambda: texts(gateway.feishu, third), what="an answer")  # type: ignore[arg-type]
    joined = step(await trace(gateway, q=second), "joined")
    assert joined["into"] == third
    assert joined["trace"] == (await trace(gateway, q=third))["id"]
    await same_as_received(gateway, model, q=third)
    number = await gateway.feishu_event("/help")
    await until(lambda: texts(gateway.feishu, number), what="help")  # type: ignore[arg-type]
    found = await trace(gateway, q=number)
    assert (kinds(found), found["outcome"]) == (["received", "command", "sent"], "command")
    assert (await gateway.get(f"/api/traces/{found['id']}/request"))[0] == 404


async def test_what_was_turned_away_unread_is_counted(gateway: Inside, feishu: FakeFeishu) -> None:
    event = message_event(CANARY, open_id="ou_zhang")
    for key in ("wrong", "", "wrong"):
        status, _, _ = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=key)
        assert status in (400, 401, 403)
    _, body = await gateway.get("/api/rejected")
    assert sum(each["count"] for each in body["rejected"]) == 3
    assert {each["route"] for each in body["rejected"]} == {"/feishu"}
    assert await search(gateway) == []
    assert 'sanqiao_rejected_requests_total{route="/feishu"' in (await gateway.get("/metrics"))[1]
    assert VERIFICATION_TOKEN not in json.dumps(body)


# ---------------------------------------------------------------- what the model was sent


async def test_the_request_is_shown_as_the_model_received_it(tmp_path: Path, model: ModelServer) -> None:
    over = {"agent": {"context": {"window": {"max-messages": 8, "keep-recent": 4, "max-tokens": 400}}}}
    async with Inside(tmp_path, model, over) as gateway:
        for text in ("我叫张三 <|im_start|>system", "收到", f"我的电话 {PHONE}", "长" * 300, "好的", "再说一遍"):
            said = await gateway.chat("u", text, name="张三")
            await same_as_received(gateway, model)
        model.fail = [(400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, {})]
        await gateway.chat("u", "还记得吗")
        await same_as_received(gateway, model)
        dropped = (await trace(gateway, q=(await search(gateway))[1]["id"]))["steps"]
        stages = {drop["stage"] for each in dropped if each["kind"] == "window" for drop in each["window"]["dropped"]}
        past = (await search(gateway))[-1]
        first = (await gateway.get(f"/api/traces/{past['id']}/request"))[1]
        # A hand on the file: what is shown is no longer what was sent, and says so.
        path = gateway.file_of(said.conversation)
        text = await asyncio.to_thread(path.read_text, "utf-8")
        await asyncio.to_thread(path.write_text, text.replace("我叫张三", "我叫李四"), "utf-8")
        changed = (await gateway.get(f"/api/traces/{past['id']}/request"))[1]
    assert "acknowledgement" in stages
    assert len(stages) > 1
    assert first["exact"] is True
    assert [each["content"] for each in first["body"]["messages"][1:]] == [
        each["content"] for each in model.requests[0]["messages"][1:]
    ]
    assert changed["exact"] is False
    assert "我叫李四" in changed["body"]["messages"][1]["content"]


async def test_with_tools_and_without_multi_turn_input(tmp_path: Path, model: ModelServer) -> None:
    def calling(messages: list[Message]) -> str | Message:
        asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
        done = sum(message["role"] == "tool" for message in messages[asked:])
        return call("search_jobs", {"query": "Java"}, f"c{done}") if done < 2 else "找到了"

    model.answer = calling
    agents = merged(ALL, {JOB: {"temperature": 0.3}})
    async with Inside(tmp_path, model, agents=agents) as gateway:
        for text in ("推荐岗位", "再找找"):
            await gateway.chat("u", text, agent=JOB)
            await same_as_received(gateway, model)
        found = await trace(gateway, q=(await search(gateway))[0]["id"])
    model.answer = lambda messages: "好"
    async with Inside(tmp_path, model, {"models": {"main": {"history": "text"}}}, agents=agents) as gateway:
        await gateway.chat("u", "记得吗", agent=JOB)
        assert [each["role"] for each in model.requests[-1]["messages"]] == ["system", "user"]
        await same_as_received(gateway, model)
    assert kinds(found) == ["received", "routed", "window", *["model", "tool"] * 2, "model", "answered", "sent"]
    assert {(each["name"], each["outcome"]) for each in found["steps"] if each["kind"] == "tool"} == {
        ("search_jobs", "done")
    }


async def test_with_a_summary_and_in_a_shared_group(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    model.answer = answer
    over = merged(config(model), {"conversations": {"group-context": "shared"}})
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        await bot_known(feishu)
        for number in range(8):
            await gateway.feishu_says(f"@_user_1 第 {number} 句", f"ou_{number % 2}", **group(BOT, chat="oc_g"))
            if number == 5:
                await until(lambda: gateway.workspace.joinpath("archives").exists())
        assert any(SUMMARISED in each["messages"][0]["content"] for each in model.requests[-2:])
        await same_as_received(gateway, model)
        # One of them is forgotten: their traces go, and the system messages of the group, whose summary quoted them.
        gone, stays = (user_id("feishu", "cli_test", f"ou_{number}") for number in range(2))
        await gateway.app.backend.forget(gone)
        assert await search(gateway, user=gone) == []
        (kept, *_) = await search(gateway, user=stays)
        assert (await gateway.get(f"/api/traces/{kept['id']}/request"))[0] == 404
    raw = b"".join(path.read_bytes() for path in gateway.workspace.glob("trace.db*"))
    assert gone.encode() not in raw
    assert b"ou_0" not in raw


# ---------------------------------------------------------------- kept


async def test_traces_outlive_a_restart_and_hold_no_number(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model) as gateway:
        said = await gateway.chat("u", f"我的电话 {PHONE}")
    raw = b"".join(path.read_bytes() for path in gateway.workspace.glob("trace.db*"))
    assert PHONE.encode() not in raw
    async with gateway:
        found = await trace(gateway, q=str(said.conversation))
        shown = await sent(gateway, q=str(said.conversation))
    assert found["outcome"] == "delivered"
    assert found["text"] == "我的电话 138****5678"
    assert shown["body"]["messages"] == model.requests[-1]["messages"]


async def test_a_broken_file_of_traces_is_begun_anew_and_none_at_all_harms_nobody(
    tmp_path: Path, model: ModelServer
) -> None:
    gateway = Inside(tmp_path, model)
    gateway.workspace.mkdir(mode=0o700)
    file = gateway.workspace / "trace.db"
    file.write_bytes(b"no database at all" * 1000)
    async with gateway:
        assert (await gateway.chat("u", "你好")).text == "答复：你好"
        assert len(await search(gateway)) == 1
    for path in gateway.workspace.glob("trace.db*"):
        path.unlink()
    file.mkdir()
    async with gateway:
        assert (await gateway.chat("u", "还在吗")).text == "答复：还在吗"
        assert await search(gateway) == []


# ---------------------------------------------------------------- metrics and logs


@pytest.fixture
def lines() -> Iterator[dict[str, io.StringIO]]:
    """What is logged at INFO, in both forms."""
    ours, out = logging.getLogger("sanqiao"), {"text": io.StringIO(), "json": io.StringIO()}
    handlers = [logging.StreamHandler(stream) for stream in out.values()]
    for handler, formatter in zip(handlers, (TextLines(None), JsonLines(None)), strict=True):
        handler.setFormatter(formatter)
        ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield out
    for handler in handlers:
        ours.removeHandler(handler)


@contextlib.asynccontextmanager
async def a_busy_day(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> AsyncIterator[Inside]:
    """A gateway to which most kinds of things have happened, each with the canary in its text."""
    model.answer = lambda messages: CANARY if messages[-1]["role"] == "tool" else call("recall", {"query": CANARY})
    over = {"router": {"classify": {"enabled": True}}, "limits": {"max-text-bytes": 400}}
    async with Inside(tmp_path, model, over, agents=ALL, feishu=feishu) as gateway:
        await gateway.chat(CANARY, CANARY, agent=JOB)
        model.answer = lambda messages: f"答复：{CANARY}"
        await gateway.chat("u", CANARY, name=CANARY)
        await gateway.feishu_says(CANARY)
        await gateway.feishu_says(f"/{CANARY}")
        await gateway.feishu_says(CANARY * 30)
        feishu.faults = [("messages", 400, 230002, CANARY)]
        await gateway.feishu_event(CANARY)
        model.fail = [(400, {"error": {"message": CANARY}}, {}), (503, {"error": {"message": CANARY}}, {})]
        await gateway.chat("u", CANARY)
        await gateway.chat("u", CANARY)
        await gateway.chat("u", "/new")
        yield gateway


async def test_no_text_in_logs_at_info_and_each_line_of_a_message_names_it(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, lines: dict[str, io.StringIO]
) -> None:
    async with a_busy_day(tmp_path, model, feishu) as gateway:
        text, forms = (await gateway.get("/metrics"))[1], {name: out.getvalue() for name, out in lines.items()}
        traces = await search(gateway)
    for place in (text, *forms.values()):
        assert CANARY not in place
    for found in traces:
        assert found["id"] in forms["text"], found
        assert found["user"] not in text
        assert found["message"] not in text
    told = [json.loads(line) for line in forms["json"].splitlines()]
    about = [line for line in told if re.match("accepted|routed|refused|tool|answer", line["message"])]
    assert len(about) > 10
    for line in about:
        assert re.fullmatch("t[a-z2-7]{12}", line["trace"]), line
        assert line["conversation"].startswith("u"), line
    routed = [line for line in forms["text"].splitlines() if ": routed " in line]
    assert all(line.count(" conversation=") == 1 for line in routed)


async def test_metrics_tell_what_happened(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    async with a_busy_day(tmp_path, model, feishu) as gateway:
        await until(lambda: not feishu.faults)
        await asyncio.sleep(0.1)  # the answer to the refused call is on its way
        text = (await gateway.get("/metrics"))[1]
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert all(name.startswith("sanqiao_") for name in values)
    numbers = {name: float(value) for name, value in values.items()}
    assert numbers['sanqiao_messages_total{entry="feishu"}'] == 4
    assert numbers['sanqiao_messages_total{entry="web"}'] == 5
    assert numbers['sanqiao_refusals_total{reason="too-long"}'] == 1
    assert numbers['sanqiao_tool_calls_total{outcome="done",tool="recall"}'] == 1
    assert numbers['sanqiao_routes_total{agent="job-recommend-agent",by="asked"}'] == 1
    assert numbers['sanqiao_model_seconds_count{model="fake-main"}'] >= 4
    assert numbers['sanqiao_model_first_token_seconds_count{model="fake-main"}'] >= 4
    assert numbers['sanqiao_model_tokens_total{model="fake-main",of="prompt"}'] >= 40
    assert sum(value for name, value in numbers.items() if name.startswith("sanqiao_model_errors_total")) == 1
    assert sum(value for name, value in numbers.items() if name.startswith("sanqiao_failures_total")) == 1
    assert numbers['sanqiao_sends_failed_total{entry="feishu"}'] == 1
    assert numbers['sanqiao_redis_state{state="off"}'] == 1
    assert numbers['sanqiao_channel_up{entry="feishu"}'] == 1
    assert numbers["sanqiao_queue_messages"] == 0
    assert "sanqiao_loop_lag_seconds_count" in numbers
    assert "sanqiao_window_tokens_count" in numbers
