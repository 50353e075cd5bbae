"""公众号 through the whole gateway: slow models, fetch words, restarts, commands, 客服消息, files.

What is late is made so: the model is held until the test has seen what should come before its answer.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.wechat import passive
from gateway.config.texts import DEFAULTS
from tests.channels.wechat_stage import Patience
from tests.platforms.model_server import ModelServer
from tests.platforms.wechat_platform import (
    AES_KEY,
    APP_ID,
    APP_SECRET,
    SEND,
    TOKEN,
    TYPING,
    WeChatPlatform,
    message_xml,
)
from tests.scenarios.gateway import Inside, Process
from tests.waiting import until, until_told

MORE, LATER = DEFAULTS["more"], DEFAULTS["later"]


@pytest.fixture
async def platform() -> AsyncIterator[WeChatPlatform]:
    async with WeChatPlatform() as started:
        yield started


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """How long deliveries are held: as long as they need, but where a test wants it shorter."""
    patience = Patience()
    monkeypatch.setattr(passive, "TIMES", patience)
    return patience


def entry(platform: WeChatPlatform, **over: Any) -> dict[str, Any]:
    account = {"app-id": APP_ID, "app-secret": APP_SECRET, "token": TOKEN, "encoding-aes-key": AES_KEY}
    return {"enabled": True, **account, "active-send": "off", "api-base-url": platform.base, **over}


def config(platform: WeChatPlatform, **over: Any) -> dict[str, Any]:
    return {"channels": {"wechat": entry(platform, **over)}, "router": {"classify": {"enabled": False}}}


@pytest.fixture
async def gateway(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> AsyncIterator[Inside]:
    async with Inside(tmp_path, model, config(platform)) as running:
        platform.url = running.url("/wechat")
        yield running


async def open_deliveries(gateway: Inside, count: int) -> None:
    """Returns once so many deliveries are held."""
    (channel,) = (each for name, each in gateway.app._channels.items() if name == "wechat")
    await until(lambda: channel._passive._held == count, what="held")


async def shelved(gateway: Inside, count: int = 1) -> None:
    """Returns once so many parts wait for the person's next contact."""
    await until_told(lambda: gateway.count("parts WHERE state = 'shelved'"), count)


async def whole(platform: WeChatPlatform, user: str, text: str) -> str:
    """What a person sees who fetches until nothing more is announced."""
    seen = [(await platform.ask(user, text))[0]]
    while seen[-1].endswith((MORE, LATER)):
        seen[-1] = seen[-1].removesuffix(MORE).removesuffix(LATER).strip()
        seen.append((await platform.ask(user, "继续"))[0])
    return "\n\n".join(each for each in seen if each)


async def test_a_slow_model_three_deliveries_one_turn_one_answer(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    xml = message_xml("oA", Content="帮我想一想", MsgId=77)
    async with model.held("想一想"):
        with times.short(0.2):
            assert (await platform.deliver(xml)).cut
        second = asyncio.create_task(platform.deliver(xml))
        await open_deliveries(gateway, 1)
    assert (await second).text == "答复：帮我想一想"
    assert len(model.requests) == 1
    assert await gateway.said() == [("user", "帮我想一想"), ("assistant", "答复：帮我想一想")]
    again = await platform.ask("oA", "帮我想一想", 77)
    assert again == ("答复：帮我想一想", 1), "a repeat is given the same answer"
    assert len(model.requests) == 1


async def test_the_answer_that_was_too_late_is_fetched(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    async with model.held("很慢"):
        with times.short():
            assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
        fetching = asyncio.create_task(platform.ask("oA", "继续"))
        await open_deliveries(gateway, 1)
    assert (await fetching)[0] == "答复：很慢的问题"
    assert await platform.ask("oB", "继续") == ("答复：继续", 1), "another person's"
    assert not model.asked("继续")[1:]
    assert await platform.ask("oA", "继续") == ("答复：继续", 1), "nothing waits any more: an ordinary message"
    assert len(model.asked("很慢的问题")) == 1


async def test_the_next_question_brings_the_late_answer_and_is_answered(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    async with model.held("很慢"):
        with times.short():
            assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
    await shelved(gateway)
    assert await whole(platform, "oA", "另一个问题") == "答复：很慢的问题\n\n答复：另一个问题"
    assert not model.asked("继续")


async def test_a_long_answer_in_parts(gateway: Inside, model: ModelServer, platform: WeChatPlatform) -> None:
    model.answer = lambda messages: "好" * 1500
    parts = (await whole(platform, "oA", "长文")).split("\n\n")
    assert len(parts) == 3
    assert "".join(parts) == "好" * 1500
    assert len(model.requests) == 1


async def test_messages_sent_while_a_turn_runs_are_merged_into_the_newest(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform
) -> None:
    asking = []
    async with model.held("一"):
        for number, text in enumerate(("一", "二", "三"), 1):
            asking.append(asyncio.create_task(platform.ask("oA", text)))
            await until_told(lambda: gateway.count("messages"), number)
        await until(lambda: model.requests)
    assert [(await each)[0] for each in asking] == ["答复：一", "", "答复：二\n三"]


async def test_what_is_no_question_never_reaches_the_model(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform
) -> None:
    for kind, fields, name in (
        ("event", {"Event": "subscribe", "EventKey": ""}, "welcome"),
        ("voice", {"MediaId": "m", "Recognition": "", "MsgId": 1}, "unsupported"),
        ("image", {"MediaId": "m", "MsgId": 2}, "unsupported"),
        ("text", {"Content": "\u200b\u2060\ufeff", "MsgId": 3}, "empty"),
        ("text", {"Content": "／HELP ", "MsgId": 4}, "help"),
        ("text", {"Content": "字" * 6000, "MsgId": 5}, "too-long"),
    ):
        assert (await platform.deliver(message_xml("oA", kind, **fields))).text == DEFAULTS[name], name
    assert model.requests == []
    assert await asyncio.to_thread(gateway.files) == []
    voice = message_xml("oA", "voice", MediaId="m", Recognition="推荐一份工作", MsgId=6)
    assert (await platform.deliver(voice)).text == "答复：推荐一份工作"


async def test_a_new_conversation_and_what_it_forgets(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform
) -> None:
    await platform.ask("oA", "我叫张三")
    assert await platform.ask("oA", "我叫什么？") == ("你叫张三", 1)
    assert await platform.ask("oA", "/new") == (DEFAULTS["new-done"], 1)
    assert await platform.ask("oA", "我叫什么？") == ("我不知道你的名字", 1)


async def test_many_people_at_once_get_their_own(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    slow = [message_xml(f"o{n}", Content=f"o{n} 慢", MsgId=n) for n in range(1, 8, 2)]
    async with model.held("慢"):
        with times.short():
            assert all(each.cut for each in await asyncio.gather(*map(platform.deliver, slow)))
        again = [asyncio.create_task(platform.deliver(xml)) for xml in slow]
        quick = [asyncio.create_task(platform.ask(f"o{n}", f"o{n}")) for n in range(0, 8, 2)]
        assert await asyncio.gather(*quick) == [(f"答复：o{n}", 1) for n in range(0, 8, 2)]
        await open_deliveries(gateway, 4)
    assert [each.text for each in await asyncio.gather(*again)] == [f"答复：o{n} 慢" for n in range(1, 8, 2)]


async def test_a_failing_model_is_a_friendly_text(
    gateway: Inside, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.fail = [(401, {"error": {"message": "bad key sk-scenario-canary"}}, {})]
    assert await platform.ask("oA", "你好") == (DEFAULTS["failed"], 1)
    assert await platform.ask("oA", "你好") == ("答复：你好", 1)


async def test_active_send_and_its_quota(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    async with Inside(tmp_path, model, config(platform, **{"active-send": "auto"})) as running:
        platform.url = running.url("/wechat")
        async with model.held("慢慢"):
            assert await platform.ask("oA", "要慢慢答") == ("", 1)
            await until(lambda: platform.of(TYPING))
        await until(lambda: platform.sent)
        assert platform.sent[0].text == "答复：要慢慢答"
        model.answer = lambda messages: "好" * 4500
        assert await platform.ask("oA", "很长") == ("", 1)
        await until(lambda: len(platform.sent) == 6)
        await shelved(running, 3)
        texts = [call.text for call in platform.sent[1:]]
        while texts[-1].endswith(MORE):
            texts.append((await platform.ask("oA", "继续"))[0])
        assert "".join(text.removesuffix(MORE).strip() for text in texts) == "好" * 4500
        assert len(platform.of(SEND)) == 6


async def test_an_account_without_the_right_to_send(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    platform.right = False
    async with Inside(tmp_path, model, config(platform, **{"active-send": "auto"})) as running:
        platform.url = running.url("/wechat")
        assert await platform.ask("oB", "头一个") == ("", 1)
        await until(lambda: platform.of(SEND))
        await shelved(running)
        assert await whole(platform, "oB", "下一个") == "答复：头一个\n\n答复：下一个"
        assert await whole(platform, "oB", "第三个") == "答复：第三个"
        assert len(platform.of(SEND)) == 1


async def test_late_answers_survive_a_restart(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, times: Patience
) -> None:
    gateway = Inside(tmp_path, model, config(platform))
    async with gateway:
        platform.url = gateway.url("/wechat")
        async with model.held("很慢"):
            with times.short():
                assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
        await shelved(gateway)
    async with gateway:
        assert await platform.ask("oA", "继续") == ("答复：很慢的问题", 1)
        xml = message_xml("oA", Content="新", MsgId=5)
        assert (await platform.deliver(xml)).text == "答复：新"
    async with gateway:
        assert (await platform.deliver(xml)).text == "答复：新", "a repeat after a restart"
    assert len(model.requests) == 2


async def test_killed_while_a_delivery_is_held(tmp_path: Path, model: ModelServer, platform: WeChatPlatform) -> None:
    """At real times: the platform's next delivery is answered by the turn that the new process begins again."""
    model.delay = lambda messages: 60.0
    gateway = Process(tmp_path, model, config(platform))
    async with gateway:
        platform.url = gateway.url("/wechat")
        xml = message_xml("oA", Content="别丢了我", MsgId=9)
        first = asyncio.create_task(platform.deliver(xml))
        await until(lambda: model.requests)
        await gateway.kill()
        assert (await first).cut
        model.delay = lambda messages: 0.0
        await gateway.start()
        assert (await platform.ask("oA", "别丢了我", 9))[0] == "答复：别丢了我"
        assert len(model.requests) <= 2
        assert await gateway.said() == [("user", "别丢了我"), ("assistant", "答复：别丢了我")]
