"""公众号 through the whole gateway: slow models, fetch words, restarts, commands, 客服消息, files; times are scaled."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.wechat import passive
from gateway.texts import DEFAULTS
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
from tests.scenarios.gateway import Gateway, Inside, Process
from tests.waiting import until

MORE, LATER = DEFAULTS["more"], DEFAULTS["later"]


@pytest.fixture
async def platform() -> AsyncIterator[WeChatPlatform]:
    async with WeChatPlatform() as started:
        yield started


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries are held for 0.5 s instead of 4.5."""
    monkeypatch.setattr(passive, "TIMES", passive.Times(hold=0.5, join=0.4))


def entry(platform: WeChatPlatform, **over: Any) -> dict[str, Any]:
    account = {"app-id": APP_ID, "app-secret": APP_SECRET, "token": TOKEN, "encoding-aes-key": AES_KEY}
    return {"enabled": True, **account, "active-send": "off", "api-base-url": platform.base, **over}


def config(platform: WeChatPlatform, **over: Any) -> dict[str, Any]:
    return {"channels": {"wechat": entry(platform, **over)}, "router": {"classify": {"enabled": False}}}


@pytest.fixture
async def gateway(tmp_path: Path, model: ModelServer, platform: WeChatPlatform, scaled: None) -> AsyncIterator[Gateway]:
    async with Inside(tmp_path, model, config(platform)) as running:
        platform.url = running.url("/wechat")
        yield running


async def whole(platform: WeChatPlatform, user: str, text: str) -> str:
    """What a person sees who fetches until nothing more is announced."""
    seen = [(await platform.ask(user, text))[0]]
    while seen[-1].endswith((MORE, LATER)):
        seen[-1] = seen[-1].removesuffix(MORE).removesuffix(LATER).strip()
        seen.append((await platform.ask(user, "继续"))[0])
    return "\n\n".join(each for each in seen if each)


async def test_a_slow_model_three_deliveries_one_turn_one_answer(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.delay = lambda messages: 0.8
    assert await platform.ask("oA", "帮我想一想") == ("答复：帮我想一想", 2)
    assert len(model.requests) == 1
    assert await gateway.said() == [("user", "帮我想一想"), ("assistant", "答复：帮我想一想")]
    (item, _) = await gateway.items()
    number = item.meta["id"].partition(":")[2]
    again = await platform.ask("oA", "帮我想一想", int(number))
    assert again == ("答复：帮我想一想", 1), "a repeat is given the same answer"
    assert len(model.requests) == 1


async def test_the_answer_that_was_too_late_is_fetched(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.delay = lambda messages: 2.0
    assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
    assert (await platform.ask("oA", "继续"))[0] == "答复：很慢的问题"
    model.delay = lambda messages: 0.0
    assert await platform.ask("oB", "继续") == ("答复：继续", 1), "another person's"
    assert not model.asked("继续")[1:]
    assert await platform.ask("oA", "继续") == ("答复：继续", 1), "nothing waits any more: an ordinary message"
    assert len(model.asked("很慢的问题")) == 1


async def test_the_next_question_brings_the_late_answer_and_is_answered(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.delay = lambda messages: 1.9 if "很慢" in str(messages[-1]["content"]) else 0.0
    assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
    await until(lambda: model.running == 0)
    assert await whole(platform, "oA", "另一个问题") == "答复：很慢的问题\n\n答复：另一个问题"
    assert not model.asked("继续")


async def test_a_long_answer_in_parts(gateway: Gateway, model: ModelServer, platform: WeChatPlatform) -> None:
    model.answer = lambda messages: "好" * 1500
    parts = (await whole(platform, "oA", "长文")).split("\n\n")
    assert len(parts) == 3
    assert "".join(parts) == "好" * 1500
    assert len(model.requests) == 1


async def test_messages_sent_while_a_turn_runs_are_merged_into_the_newest(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.delay = lambda messages: 0.8 if messages[-1]["content"] == "一" else 0.0
    asking = []
    for text in ("一", "二", "三"):
        asking.append(asyncio.create_task(platform.ask("oA", text)))
        await until(lambda: model.requests)
        await asyncio.sleep(0.03)
    assert [(await each)[0] for each in asking] == ["答复：一", "", "答复：二\n三"]


async def test_what_is_no_question_never_reaches_the_model(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
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
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    await platform.ask("oA", "我叫张三")
    assert await platform.ask("oA", "我叫什么？") == ("你叫张三", 1)
    assert await platform.ask("oA", "/new") == (DEFAULTS["new-done"], 1)
    assert await platform.ask("oA", "我叫什么？") == ("我不知道你的名字", 1)


async def test_two_people_at_once_get_their_own(gateway: Gateway, model: ModelServer, platform: WeChatPlatform) -> None:
    model.delay = lambda messages: 0.7 if "慢" in str(messages[-1]["content"]) else 0.0
    people = [f"o{number}" for number in range(8)]
    answers = await asyncio.gather(
        *(platform.ask(user, f"{user} 慢" if n % 2 else user) for n, user in enumerate(people))
    )
    assert [text for text, _ in answers] == [
        f"答复：{user} 慢" if n % 2 else f"答复：{user}" for n, user in enumerate(people)
    ]


async def test_a_failing_model_is_a_friendly_text(
    gateway: Gateway, model: ModelServer, platform: WeChatPlatform
) -> None:
    model.fail = [(401, {"error": {"message": "bad key sk-scenario-canary"}}, {})]
    assert await platform.ask("oA", "你好") == (DEFAULTS["failed"], 1)
    assert await platform.ask("oA", "你好") == ("答复：你好", 1)


async def test_active_send_and_its_quota(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, scaled: None
) -> None:
    async with Inside(tmp_path, model, config(platform, **{"active-send": "auto"})) as running:
        platform.url = running.url("/wechat")
        model.delay = lambda messages: 0.8
        assert await platform.ask("oA", "要慢慢答") == ("", 1)
        await until(lambda: platform.sent)
        assert platform.sent[0].text == "答复：要慢慢答"
        assert platform.of(TYPING)
        model.delay = lambda messages: 0.0
        model.answer = lambda messages: "好" * 4500
        assert await platform.ask("oA", "很长") == ("", 1)
        await until(lambda: len(platform.sent) == 6)
        await asyncio.sleep(0.2)  # the rest goes to the shelf
        texts = [call.text for call in platform.sent[1:]]
        while texts[-1].endswith(MORE):
            texts.append((await platform.ask("oA", "继续"))[0])
        assert "".join(text.removesuffix(MORE).strip() for text in texts) == "好" * 4500
        assert len(platform.of(SEND)) == 6


async def test_an_account_without_the_right_to_send(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, scaled: None
) -> None:
    platform.right = False
    async with Inside(tmp_path, model, config(platform, **{"active-send": "auto"})) as running:
        platform.url = running.url("/wechat")
        assert await platform.ask("oB", "头一个") == ("", 1)
        await until(lambda: platform.of(SEND))
        await asyncio.sleep(0.1)
        assert await whole(platform, "oB", "下一个") == "答复：头一个\n\n答复：下一个"
        assert await whole(platform, "oB", "第三个") == "答复：第三个"
        assert len(platform.of(SEND)) == 1


async def test_late_answers_survive_a_restart(
    tmp_path: Path, model: ModelServer, platform: WeChatPlatform, scaled: None
) -> None:
    model.delay = lambda messages: 1.9
    gateway = Inside(tmp_path, model, config(platform))
    async with gateway:
        platform.url = gateway.url("/wechat")
        assert await platform.ask("oA", "很慢的问题") == (LATER, 3)
        await until(lambda: model.running == 0)
    async with gateway:
        assert await platform.ask("oA", "继续") == ("答复：很慢的问题", 1)
        xml = message_xml("oA", Content="新", MsgId=5)
        model.delay = lambda messages: 0.0
        assert (await platform.deliver(xml)).text == "答复：新"
    async with gateway:
        assert (await platform.deliver(xml)).text == "答复：新", "a repeat after a restart"
    assert len(model.requests) == 2


async def test_killed_while_a_delivery_is_held(tmp_path: Path, model: ModelServer, platform: WeChatPlatform) -> None:
    """At real times: the platform's next delivery is answered by the turn that the new process begins again."""
    model.delay = lambda messages: 2.5
    gateway = Process(tmp_path, model, config(platform))
    async with gateway:
        platform.url = gateway.url("/wechat")
        xml = message_xml("oA", Content="别丢了我", MsgId=9)
        first = asyncio.create_task(platform.deliver(xml))
        await until(lambda: model.requests)
        await gateway.kill()
        assert (await first).cut
        await gateway.start()
        assert (await platform.deliver(xml)).text == "答复：别丢了我"
        assert len(model.requests) <= 2
        assert await gateway.said() == [("user", "别丢了我"), ("assistant", "答复：别丢了我")]
