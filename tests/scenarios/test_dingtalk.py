"""DingTalk from a pushed message to the call that answers it: both modes, groups, restarts, many at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from memory.conversation import session_id, user_id
from tests.platforms.dingtalk_gateway import GROUP, SINGLE, FakeDingTalk, chat_data, signed_headers
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Gateway, Inside, Process
from tests.waiting import until

MODES = ("stream", "http")
SESSION = "/robot/sendBySession"


@pytest.fixture
async def ding() -> AsyncIterator[FakeDingTalk]:
    async with FakeDingTalk() as platform:
        yield platform


def entry(ding: FakeDingTalk, mode: str = "stream", **over: Any) -> dict[str, Any]:
    """What stands under `channels.dingtalk` for this stand-in."""
    account = {"client-id": ding.client_id, "client-secret": ding.client_secret}
    places = {"api-base-url": ding.base, "oapi-base-url": ding.base}
    return {"enabled": True, "mode": mode, **account, **places, **over}


def inside(root: Path, model: ModelServer, ding: FakeDingTalk, mode: str = "stream", **over: Any) -> Inside:
    return Inside(root, model, {"channels": {"dingtalk": entry(ding, mode)}, **over})


async def deliver(gateway: Gateway, ding: FakeDingTalk, mode: str, text: str | None, **over: Any) -> None:
    """A person speaks; returns when the platform knows that it was received."""
    if mode == "stream":
        await ding.wait_connected()
        number = await ding.push(ding.chat(text, **over))  # type: ignore[arg-type]
        await until(lambda: ding.acks_of(number), what="acknowledgement")
        return
    data = chat_data(text, base=ding.base, **over)
    headers = signed_headers(ding.client_secret)
    url = gateway.url("/dingtalk")
    async with aiohttp.ClientSession() as session, session.post(url, json=data, headers=headers) as response:
        assert response.status == 200


def texts(ding: FakeDingTalk) -> list[str]:
    """What session webhooks were sent, in order."""
    return [reply.text for reply in ding.replies]


@pytest.mark.parametrize("mode", MODES)
async def test_two_turns(tmp_path: Path, model: ModelServer, ding: FakeDingTalk, mode: str) -> None:
    async with inside(tmp_path, model, ding, mode) as gateway:
        await deliver(gateway, ding, mode, "我叫张三，帮我推荐岗位")
        await until(lambda: texts(ding) == ["答复：我叫张三，帮我推荐岗位"])
        await deliver(gateway, ding, mode, "我叫什么？")
        await until(lambda: texts(ding)[1:] == ["你叫张三"])
        assert "PROMPT-JOB" in model.requests[0]["messages"][0]["content"]
        (path,) = await asyncio.to_thread(gateway.files)
        user, session = (
            user_id("dingtalk", ding.client_id, "staff001"),
            session_id("dingtalk", ding.client_id, "cidA=="),
        )
        assert path.parent.name == user
        assert path.name == f"chat-dingtalk-{session}-0-job-recommend-agent.yaml"
        assert [role for role, _ in await gateway.said()] == ["user", "assistant"] * 2


@pytest.mark.parametrize("mode", MODES)
async def test_one_message_id_is_one_answer(tmp_path: Path, model: ModelServer, ding: FakeDingTalk, mode: str) -> None:
    model.delay = lambda messages: 0.5
    async with inside(tmp_path, model, ding, mode) as gateway:
        for _ in range(3):
            await deliver(gateway, ding, mode, "一次", msgId="msgSAME")
        await until(lambda: ding.replies)
        await deliver(gateway, ding, mode, "一次", msgId="msgSAME")
        await asyncio.sleep(0.3)
        assert (len(model.requests), len(ding.replies)) == (1, 1)


async def test_in_a_group_each_member_is_answered_by_mention(
    tmp_path: Path, model: ModelServer, ding: FakeDingTalk
) -> None:
    async with inside(tmp_path, model, ding) as gateway:
        await deliver(gateway, ding, "stream", "我叫甲", kind="2", staff="s1")
        await deliver(gateway, ding, "stream", "我叫什么？", kind="2", staff="s2")
        await deliver(gateway, ding, "stream", "没提到", kind="2", isInAtList=False, atUsers=[])
        await until(lambda: len(ding.replies) == 2)
        said = {reply.body["at"]["atUserIds"][0]: reply.text for reply in ding.replies}
        assert said == {"s1": "@s1\n\n答复：我叫甲", "s2": "@s2\n\n我不知道你的名字"}
        assert not model.asked("没提到")
        assert len(await asyncio.to_thread(gateway.files)) == 2


@pytest.mark.parametrize("command", [" /new", "／new", "/new \u200b", "/NEW"])
async def test_a_command_behind_a_mention(tmp_path: Path, model: ModelServer, ding: FakeDingTalk, command: str) -> None:
    async with inside(tmp_path, model, ding) as gateway:
        await deliver(gateway, ding, "stream", command, kind="2")
        await until(lambda: ding.replies)
        assert "重新开始" in texts(ding)[0]
        assert not model.requests


async def test_what_has_no_words_gets_a_short_answer(tmp_path: Path, model: ModelServer, ding: FakeDingTalk) -> None:
    async with inside(tmp_path, model, ding) as gateway:
        await deliver(gateway, ding, "stream", None, msgtype="picture", content={"downloadCode": "dc2"})
        await until(lambda: len(ding.replies) == 1)
        await deliver(gateway, ding, "stream", " ", kind="2")
        await until(lambda: len(ding.replies) == 2)
        assert "无法识别" in texts(ding)[0]
        assert "没有收到文字" in texts(ding)[1]
        pieces = [{"text": "看图 "}, {"type": "picture", "downloadCode": "dc1"}, {"text": "\n"}, {"text": "第二段"}]
        await deliver(gateway, ding, "stream", None, msgtype="richText", content={"richText": pieces})
        await until(lambda: len(ding.replies) == 3)
        assert model.requests[-1]["messages"][-1]["content"] == "看图 [图片]\n第二段"


async def test_an_answer_goes_to_who_asked_not_to_who_wrote_last(
    tmp_path: Path, model: ModelServer, ding: FakeDingTalk
) -> None:
    async with inside(tmp_path, model, ding) as gateway:
        base = f"{ding.base}{SESSION}?session="
        async with model.held("甲"):
            await deliver(
                gateway, ding, "stream", "甲的问题", conversation="cidA", staff="s1", sessionWebhook=base + "a"
            )
            await deliver(
                gateway, ding, "stream", "乙的问题", conversation="cidB", staff="s2", sessionWebhook=base + "b"
            )
            group = {"conversation": "cidC", "kind": "2", "staff": "s1", "sessionWebhook": base + "c"}
            await deliver(gateway, ding, "stream", "群里的问题", **group)
            await until(lambda: len(ding.replies) == 2)
        await until(lambda: len(ding.replies) == 3)
        said = {reply.session: reply.text for reply in ding.replies}
        assert said == {"a": "答复：甲的问题", "b": "答复：乙的问题", "c": "@s1\n\n答复：群里的问题"}


async def test_a_webhook_that_ended_is_replaced_by_the_api(
    tmp_path: Path, model: ModelServer, ding: FakeDingTalk
) -> None:
    async with inside(tmp_path, model, ding) as gateway:
        ended = int(time.time() * 1000) - 10_000
        await deliver(gateway, ding, "stream", "过期的", sessionWebhookExpiredTime=ended)
        await until(lambda: ding.sent(SINGLE))
        ding.reply_answer = {"errcode": 300001, "errmsg": "session 不存在"}
        await deliver(gateway, ding, "stream", "群里过期", conversation="cidG==", kind="2")
        await until(lambda: ding.sent(GROUP))
        await asyncio.sleep(0.2)
        assert len(ding.sent(SINGLE)) == len(ding.sent(GROUP)) == 1


async def test_a_long_answer_arrives_whole_and_in_order(tmp_path: Path, model: ModelServer, ding: FakeDingTalk) -> None:
    answer = "\n\n".join(f"第{n}段" + "好" * 200 for n in range(20))
    model.answer = lambda messages: answer
    async with inside(tmp_path, model, ding) as gateway:
        await deliver(gateway, ding, "stream", "长文", kind="2")
        await until(lambda: sum(text.count("好") for text in texts(ding)) == 4000)
        shown = "".join(texts(ding)).removeprefix("@staff001\n\n")
        assert shown.replace("\n", "") == answer.replace("\n", "")
        assert sum("at" in reply.body for reply in ding.replies) == 1


async def test_a_wrong_secret_degrades_this_channel_only(
    tmp_path: Path, model: ModelServer, ding: FakeDingTalk
) -> None:
    over = {"channels": {"dingtalk": entry(ding, **{"client-secret": "wrong-secret-7"})}}
    async with Inside(tmp_path, model, over) as gateway:
        await until(lambda: ding.opens)
        assert (await gateway.chat("zhang", "你好")).text == "答复：你好"
        _, status = await gateway.get("/api/status")
        assert "client-secret" in status["channels"]["dingtalk"]["detail"]
        assert "wrong-secret-7" not in str(status)
        assert await gateway.health() == (200, "degraded")


async def test_further_accounts_have_their_own_route(tmp_path: Path, model: ModelServer, ding: FakeDingTalk) -> None:
    over = {"channels": {"ding-hr": {"kind": "dingtalk", **entry(ding, "http")}}}
    async with Inside(tmp_path, model, over) as gateway:
        data, headers = chat_data("你好", base=ding.base), signed_headers(ding.client_secret)
        async with aiohttp.ClientSession() as session:
            async with session.post(gateway.url("/dingtalk"), json=data, headers=headers) as response:
                assert response.status == 404
            async with session.post(gateway.url("/dingtalk/ding-hr"), json=data, headers=headers) as response:
                assert response.status == 200
        await until(lambda: texts(ding) == ["答复：你好"])


@pytest.mark.slow
async def test_what_was_acknowledged_is_answered_after_a_kill(
    tmp_path: Path, model: ModelServer, ding: FakeDingTalk
) -> None:
    model.delay = lambda messages: 60.0
    gateway = Process(tmp_path, model, {"channels": {"dingtalk": entry(ding)}})
    async with gateway:
        await deliver(gateway, ding, "stream", "重启之前")
        await gateway.kill()
        model.delay = lambda messages: 0.0
        await gateway.start()
        await until(lambda: texts(ding) == ["答复：重启之前"])
        before = time.monotonic()
        assert await gateway.stop() == 0
        assert time.monotonic() - before < 20


async def test_200_slow_conversations_hold_up_nobody(tmp_path: Path, model: ModelServer, ding: FakeDingTalk) -> None:
    """A small, generous form of tests/bench/bench_dingtalk.py; platform, model and gateway share one loop here."""
    async with inside(tmp_path, model, ding, models={"main": {"max-concurrency": 200}}), model.held() as released:
        await ding.wait_connected()
        numbers = [await ding.say(f"问题{n}", conversation=f"cid{n}==", staff=f"s{n}") for n in range(200)]
        await until(lambda: all(map(ding.acks_of, numbers)))
        await until(lambda: model.running == 200)
        assert not ding.replies
        released.set()
        await until(lambda: len(ding.replies) == 200)
        assert sorted(texts(ding)) == sorted(f"答复：问题{n}" for n in range(200))
