"""People talk to the WeCom 智能机器人 through the whole gateway: frames in, frames and conversation files out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.texts import Texts
from memory.conversation import session_id, user_id
from tests.platforms.model_server import Chunks, ModelServer, delta
from tests.platforms.wecom_bot import FakeWeComBot
from tests.scenarios.gateway import Inside, asked
from tests.waiting import until, until_told


def entry(wecom: FakeWeComBot, **over: Any) -> Mapping[str, Any]:
    """The config of a gateway with this bot."""
    keys = {"bot-id": wecom.bot_id, "secret": wecom.secret, "bot-name": "求职助手", "websocket-url": wecom.url}
    return {"channels": {"wecom-bot": {"enabled": True, "mode": "websocket", **keys, **over}}}


def slowly(*pieces: str, pause: float = 0.15) -> Chunks:
    return Chunks([delta(piece) for piece in pieces] + [delta(finish="stop")], pause=pause)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.wecom.streams.REFRESH_SECONDS", 0.1)


@pytest.fixture
async def wecom() -> AsyncIterator[FakeWeComBot]:
    async with FakeWeComBot() as platform:
        yield platform
        assert not platform.broken


@contextlib.asynccontextmanager
async def gateway_on(root: Path, model: ModelServer, wecom: FakeWeComBot, **over: Any) -> AsyncIterator[Inside]:
    async with Inside(root, model, {**entry(wecom), **over}) as running:
        await until(lambda: wecom.connected, what="subscribed")
        yield running


@pytest.fixture
async def gateway(tmp_path: Path, model: ModelServer, wecom: FakeWeComBot) -> AsyncIterator[Inside]:
    async with gateway_on(tmp_path, model, wecom) as running:
        yield running


async def says(wecom: FakeWeComBot, text: str, user: str = "ZhangSan", chat: str = "", **more: Any) -> str:
    """What one person is answered."""
    req_id = await wecom.says(text, user, chat, **more)
    await until(lambda: wecom.finished(req_id), what=f"an answer to {text!r}")
    (answer,) = wecom.finished(req_id)
    return answer


async def test_a_direct_chat_and_a_group_are_two_conversations(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    assert await says(wecom, "记住暗号一") == "答复：记住暗号一"
    assert await says(wecom, "@求职助手 群里的问题", chat="wrG1") == "答复：群里的问题"
    assert await says(wecom, "再问", user="zhangsan") == "答复：再问"
    user = user_id("wecom", "bot1", "zhangsan")
    direct = f"{user}:wecom:{session_id('wecom', 'bot1', 'zhangsan')}:0:general-agent"
    group = f"{user}:wecom:{session_id('wecom', 'bot1', 'wrG1')}:1:general-agent"
    assert set(await asyncio.to_thread(gateway.files)) == {gateway.file_of(direct), gateway.file_of(group)}
    assert asked(model) == [
        [("user", "记住暗号一")],
        [("user", "群里的问题")],
        [("user", "记住暗号一"), ("assistant", "答复：记住暗号一"), ("user", "再问")],
    ]


async def test_the_answer_grows_in_one_bubble(gateway: Inside, model: ModelServer, wecom: FakeWeComBot) -> None:
    model.answers = [slowly(*"一二三四五六")]
    assert await says(wecom, "数到六", req_id="r1") == "一二三四五六"
    shown = [stream["content"] for stream in wecom.streams("r1")]
    assert shown[0] == Texts().get("thinking")
    assert len(shown) >= 4
    assert all("一二三四五六".startswith(text) for text in shown[1:])
    assert shown[1:] == sorted(shown[1:], key=len)


async def test_one_msgid_delivered_three_times_is_one_answer(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    model.delay = lambda messages: 0.3
    for number in range(3):
        await wecom.says("一次", msgid="m1", req_id=f"r{number}")
    await until(lambda: wecom.finished("r0"))
    await asyncio.sleep(0.3)
    assert len(model.requests) == 1
    assert [wecom.finished(f"r{number}") for number in range(3)] == [["答复：一次"], [], []]


@pytest.mark.parametrize(("text", "chat"), [("/new", ""), ("@求职助手 /new", "wrG1"), ("@求职助手 ／NEW", "wrG1")])
async def test_a_command_behind_a_mention(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot, text: str, chat: str
) -> None:
    assert "重新开始" in await says(wecom, text, chat=chat)
    assert not model.requests


async def test_stop_ends_the_stream_once(gateway: Inside, model: ModelServer, wecom: FakeWeComBot) -> None:
    model.answers = [slowly(*"一二三四五六七八九十", pause=1.0)]
    await wecom.says("数到十", req_id="r1")
    await until(lambda: len(wecom.streams("r1")) >= 2)
    assert await says(wecom, "/stop") == "已停止回答。"
    await until(lambda: wecom.finished("r1"))
    (answer,) = wecom.finished("r1")
    assert "一二三四五六七八九十".startswith(answer)
    model.delay = lambda messages: 60.0
    await wecom.says("没完没了", req_id="r2")
    await until(lambda: wecom.streams("r2") and model.running)
    await says(wecom, "/stop")
    await until(lambda: wecom.finished("r2"))
    assert wecom.finished("r2") == ["已停止回答。"]


async def test_a_failure_of_the_model_ends_the_stream_with_a_friendly_text(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    model.fail = [(401, {"error": {"message": "bad key sk-canary"}}, {})]
    answer = await says(wecom, "你好", req_id="r1")
    assert answer
    assert "401" not in answer
    assert "canary" not in answer
    assert await says(wecom, "再试") == "答复：再试"


async def test_pictures_and_first_contact_get_fixed_answers(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    assert "文字" in await says(wecom, "", msgtype="image", image={"url": "https://x/", "aeskey": "k"})
    await wecom.event("enter_chat")
    await until(lambda: wecom.sent("aibot_respond_welcome_msg"))
    assert "AI 助手" in wecom.sent("aibot_respond_welcome_msg")[0]["body"]["text"]["content"]
    assert not model.requests


async def test_messages_that_wait_become_one_turn_and_one_answer(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    async with model.held("第一"):
        await wecom.says("第一", req_id="r1")
        await until(lambda: model.requests)
        await wecom.says("第二", req_id="r2")
        await wecom.says("第三", req_id="r3")
        await until_told(lambda: gateway.count("messages"), 3)
    await until(lambda: wecom.finished("r3"))
    assert (wecom.finished("r1"), wecom.finished("r3")) == (["答复：第一"], ["答复：第二\n第三"])
    await asyncio.sleep(0.2)
    assert not wecom.streams("r2")


async def test_an_answer_over_the_limit_goes_on_in_further_messages(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    text = "\n\n".join(f"第{number}段" + "好" * 300 for number in range(40))
    model.answers = [text]
    first = await says(wecom, "写长一点")
    await until(lambda: len(wecom.pushed("ZhangSan")) == 1)
    assert first + "\n\n" + wecom.pushed("ZhangSan")[0] == text
    assert len(first.encode()) <= 20_000


async def test_a_connection_lost_in_mid_answer_loses_nothing(
    gateway: Inside, model: ModelServer, wecom: FakeWeComBot
) -> None:
    model.answers = [slowly(*"一二三四五六七八")]
    await wecom.says("数到八", req_id="r1")
    await until(lambda: len(wecom.streams("r1")) >= 2)
    await wecom.drop(abort=True)
    await until(lambda: wecom.pushed("ZhangSan"))
    assert wecom.pushed("ZhangSan") == ["一二三四五六七八"]
    assert await says(wecom, "还在吗") == "答复：还在吗"
    assert (await gateway.health())[1] == "ok"


async def test_a_restart_in_mid_answer_ends_the_bubble_and_sends_the_answer_later(
    tmp_path: Path, model: ModelServer, wecom: FakeWeComBot
) -> None:
    model.delay = lambda messages: 60.0
    short = {"server": {"drain": "200ms"}}
    async with gateway_on(tmp_path, model, wecom, **short) as gateway:
        await wecom.says("要想很久", req_id="r1")
        await until(lambda: wecom.streams("r1") and model.requests)
    assert wecom.finished("r1") == ["网关重启中，回答稍后送达。"]
    model.delay = lambda messages: 0.0
    await gateway.start()
    await until(lambda: wecom.pushed("ZhangSan"))
    await gateway.stop()
    assert wecom.pushed("ZhangSan") == ["答复：要想很久"]
    assert len(wecom.finished("r1")) == 1


async def test_draining_ends_streams_with_their_answers(
    tmp_path: Path, model: ModelServer, wecom: FakeWeComBot
) -> None:
    model.delay = lambda messages: 0.5
    async with gateway_on(tmp_path, model, wecom):
        await wecom.says("临终一问", req_id="r1")
        await until(lambda: model.requests)
    assert wecom.finished("r1") == ["答复：临终一问"]


async def test_a_wrong_secret_degrades_this_channel_only(
    tmp_path: Path, model: ModelServer, wecom: FakeWeComBot
) -> None:
    async with Inside(tmp_path, model, entry(wecom, secret="wrong-canary")) as gateway:
        await until(lambda: wecom.sent("aibot_subscribe"))
        assert (await gateway.chat("u", "你好")).text == "答复：你好"
        assert await gateway.health() == (200, "degraded")
        status = str((await gateway.get("/api/status"))[1])
        assert "请核对 bot-id 与 secret" in status
        assert "canary" not in status
