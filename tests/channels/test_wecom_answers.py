"""Answers of the WeCom bot: streamed, finished exactly once, or sent by themselves where a stream cannot be ended."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import SendFailed, SendLimited, SendRefused, SendUncertain
from channels.message import Answered, Delta, Failed, InboundMessage, Joined, Routed, Silent
from channels.reconnecting import Pauses
from channels.wecom.channel import WeComBotChannel
from channels.wecom.connection import PING_SECONDS
from channels.wecom.exchange import ACK_SECONDS, MOST_MISSED
from channels.wecom.losses import Loss
from channels.wecom.quota import Quota
from channels.wecom.render import beginning
from channels.wecom.streams import REFRESH_SECONDS, STREAM_SECONDS
from gateway.config.texts import Texts
from tests.channels.wecom_recorder import Recorder, part, running
from tests.platforms.wecom_bot import FakeWeComBot, Frame
from tests.waiting import until

ROUTED = Routed("general-agent", "default")
THINKING = Texts().get("thinking")


class Clock:
    """The real time, and `ahead` seconds more."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
async def fake() -> AsyncIterator[FakeWeComBot]:
    async with FakeWeComBot() as server:
        yield server
        assert not server.broken


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(Loss, "pauses", Pauses(0.05, 30.0))
    monkeypatch.setattr("channels.wecom.streams.REFRESH_SECONDS", 0.1)
    return monkeypatch


@pytest.fixture
async def wecom(fake: FakeWeComBot, recorder: Recorder, clock: Clock) -> AsyncIterator[WeComBotChannel]:
    async with running(fake, recorder, clock) as channel:
        await until(lambda: channel.health().ok)
        yield channel


@pytest.fixture
async def asked(fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder) -> InboundMessage:
    """A question in a group; its callback's req_id is `r1`."""
    await fake.says("@求职助手 你好", chat="wrG1", req_id="r1")
    return await recorder.next()


def responds(frame: Frame) -> bool:
    return bool(frame["cmd"] == "aibot_respond_msg")


def finishes(frame: Frame) -> bool:
    return responds(frame) and bool(frame["body"]["stream"]["finish"])


async def begun(fake: FakeWeComBot, wecom: WeComBotChannel, message: InboundMessage, text: str = "") -> None:
    """The stream is there, and shows `text` where there is one."""
    req_id = message.reply["req"]
    wecom.progress(message, ROUTED)
    await until(lambda: fake.streams(req_id), what="a first frame")
    if text:
        wecom.progress(message, Delta(text))
        await until(lambda: fake.streams(req_id)[-1]["content"] == text, what="the text so far")


# ---------------------------------------------------------------- the usual course


async def test_the_first_frame_comes_at_once_then_the_whole_text_so_far_then_the_end(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    await begun(fake, wecom, asked, "一二")
    for piece in ("三", "四"):
        wecom.progress(asked, Delta(piece))
        await asyncio.sleep(0.15)
    wecom.progress(asked, Answered("一二三四五"))
    assert await wecom.send(part(asked, "一二三四五")) == ""
    streams = fake.streams("r1")
    assert [stream["content"] for stream in streams[:2]] == [THINKING, "一二"]
    assert all("一二三四五".startswith(stream["content"]) for stream in streams[1:])
    assert [stream["finish"] for stream in streams] == [False] * (len(streams) - 1) + [True]
    assert fake.finished("r1") == ["一二三四五"]
    assert len({stream["id"] for stream in streams}) == 1
    assert not fake.pushed("wrG1")


async def test_refreshes_are_coalesced(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr("channels.wecom.streams.REFRESH_SECONDS", 0.3)
    loop = asyncio.get_running_loop()
    before = loop.time()
    wecom.progress(asked, ROUTED)
    for number in range(100):
        wecom.progress(asked, Delta(f"{number} "))
        await asyncio.sleep(0.01)
    await wecom.send(part(asked, "fertig"))
    assert 3 <= len(fake.sent("aibot_respond_msg")) <= 2 + (loop.time() - before) / 0.3


def test_times_are_those_of_the_platform() -> None:
    assert REFRESH_SECONDS >= 2
    assert STREAM_SECONDS < 6 * 60
    assert (PING_SECONDS, ACK_SECONDS, MOST_MISSED) == (30, 5, 2)


async def test_nothing_is_shown_twice(fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage) -> None:
    await begun(fake, wecom, asked, "好")
    wecom.progress(asked, Delta(""))
    await asyncio.sleep(0.3)
    assert [stream["content"] for stream in fake.streams("r1")] == [THINKING, "好"]


async def test_commands_and_refusals_are_one_frame(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    wecom.progress(asked, Failed("暂时无法识别"))
    await wecom.send(part(asked, "暂时无法识别"))
    assert [(stream["finish"], stream["content"]) for stream in fake.streams("r1")] == [(True, "暂时无法识别")]


async def test_the_next_frame_waits_for_the_ack_of_the_one_before(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    fake.delay = lambda frame: 0.3 if responds(frame) else 0.0
    wecom.progress(asked, ROUTED)
    await until(lambda: fake.sent("aibot_respond_msg"))
    await wecom.send(part(asked, "fertig"))
    assert fake.finished("r1") == ["fertig"], "and the stand-in saw no frame sent too early"


async def test_send_returns_only_after_the_ack(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    fake.delay = lambda frame: 0.3
    before = time.monotonic()
    await wecom.send(part(asked, "fertig"))
    assert time.monotonic() - before >= 0.3


async def test_long_answers_are_parts_within_the_limit_the_first_ends_the_stream(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    text = "```python\n" + "# 很长的一行代码\n" * 2500 + "```\n<@all> 完"
    texts = wecom.parts(text, "…")
    assert len(texts) >= 3
    assert all(len(each.encode()) <= 20_000 and each.count("```") % 2 == 0 for each in texts)
    assert "<@" not in "".join(texts)
    await begun(fake, wecom, asked)
    wecom.progress(asked, Delta(text))
    await until(lambda: len(fake.streams("r1")) == 2)
    assert 19_000 < len(fake.streams("r1")[-1]["content"].encode()) <= 20_000
    for number, each in enumerate(texts):
        await wecom.send(part(asked, each, number, len(texts)))
    assert fake.finished("r1") == texts[:1]
    assert fake.pushed("wrG1") == texts[1:]


async def test_active_messages_name_chat_or_person(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    await fake.says("你好", user="LiSi")
    message = await recorder.next()
    await wecom.send(part(message, "二", 1, 2))
    body = fake.sent("aibot_send_msg")[0]["body"]
    expected = {"chatid": "LiSi", "chat_type": 1, "msgtype": "markdown", "markdown": {"content": "二"}}
    assert body == expected, "as the platform wrote it, not in lower case"
    await fake.says("@x 你好", user="LiSi", chat="wrG9")
    await wecom.send(part(await recorder.next(2), "二", 1, 2))
    assert (fake.sent("aibot_send_msg")[1]["body"]["chatid"], fake.sent("aibot_send_msg")[1]["body"]["chat_type"]) == (
        "wrG9",
        2,
    )


async def test_answers_go_where_they_were_asked(fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder) -> None:
    await fake.says("秘密", user="a", req_id="ra")
    one = await recorder.next()
    await fake.says("公开", user="b", req_id="rb")
    two = await recorder.next(2)
    await wecom.send(part(two, "给乙"))
    await wecom.send(part(one, "给甲"))
    assert (fake.finished("ra"), fake.finished("rb")) == (["给甲"], ["给乙"])


# ---------------------------------------------------------------- every path ends the stream once


@pytest.mark.parametrize(("event", "said"), [(Answered("已停止回答。"), "已停止回答。"), (None, "半句")])
async def test_a_silent_end_finishes_with_a_short_notice(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, event: Answered | None, said: str
) -> None:
    await begun(fake, wecom, asked, "半句")
    if event:
        wecom.progress(asked, event)
    wecom.progress(asked, Silent())
    await until(lambda: fake.finished("r1"))
    assert fake.finished("r1") == [said]


async def test_a_silent_end_of_what_was_not_shown_shows_nothing(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    wecom.progress(asked, Failed("太快了"))
    wecom.progress(asked, Silent())
    await asyncio.sleep(0.1)
    assert not fake.streams("r1")


async def test_a_merged_message_is_not_answered_by_itself(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, recorder: Recorder
) -> None:
    await fake.says("@x 还有", chat="wrG1", req_id="r2")
    newer = await recorder.next(2)
    wecom.progress(asked, Joined(newer.id))
    for event in (ROUTED, Delta("好"), Answered("好的")):
        for message in (asked, newer):
            wecom.progress(message, event)
    await wecom.send(part(newer, "好的"))
    assert fake.finished("r2") == ["好的"]
    assert not fake.streams("r1")


async def test_a_failure_text_ends_the_stream(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    await begun(fake, wecom, asked, "半句")
    wecom.progress(asked, Failed("出了点问题"))
    await wecom.send(part(asked, "出了点问题"))
    assert fake.finished("r1") == ["出了点问题"]


async def test_a_stop_of_the_gateway_ends_streams_with_a_notice_and_the_answer_comes_by_itself(
    fake: FakeWeComBot, recorder: Recorder
) -> None:
    async with running(fake, recorder) as wecom:
        await until(lambda: wecom.health().ok)
        await fake.says("要想很久", req_id="r1")
        message = await recorder.next()
        await begun(fake, wecom, message, "半句")
        await wecom.stop_receiving()
        assert not fake.finished("r1"), "what runs may still be finished"
    assert fake.finished("r1") == ["半句\n\n网关重启中，回答稍后送达。"]
    responded = len(fake.sent("aibot_respond_msg"))
    async with running(fake, recorder) as wecom:
        wecom.progress(message, ROUTED)
        wecom.progress(message, Delta("全"))
        await wecom.send(part(message, "全文"))
        assert fake.pushed("ZhangSan") == ["全文"]
        assert len(fake.finished("r1")) == 1
        assert len(fake.sent("aibot_respond_msg")) == responded, "a callback of before is not answered"


async def test_while_draining_an_answer_still_ends_its_stream(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    await begun(fake, wecom, asked)
    await wecom.stop_receiving()
    await wecom.send(part(asked, "全文"))
    assert fake.finished("r1") == ["全文"]


async def test_a_stream_too_old_is_ended_and_its_answer_comes_by_itself(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, clock: Clock
) -> None:
    await begun(fake, wecom, asked, "半句")
    clock.ahead = 340
    wecom.progress(asked, Delta("再"))
    await until(lambda: fake.finished("r1"))
    assert fake.finished("r1")[0].startswith("半句再\n\n（回答需要更多时间")
    await wecom.send(part(asked, "半句再加一句"))
    assert fake.pushed("wrG1") == ["半句再加一句"]
    assert len(fake.finished("r1")) == 1


async def test_an_answer_that_comes_while_its_stream_is_given_up(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, clock: Clock
) -> None:
    await begun(fake, wecom, asked, "半句")
    fake.delay = lambda frame: 0.2
    clock.ahead = STREAM_SECONDS - 1
    wecom.progress(asked, Delta("再"))
    await until(lambda: any(map(finishes, fake.frames)))
    await wecom.send(part(asked, "全文"))
    assert len(fake.finished("r1")) == 1
    assert fake.pushed("wrG1") == ["全文"]


async def test_a_stop_does_not_write_over_an_answer_that_is_on_its_way(fake: FakeWeComBot, recorder: Recorder) -> None:
    async with running(fake, recorder) as wecom:
        await until(lambda: wecom.health().ok)
        await fake.says("你好", req_id="r1")
        message = await recorder.next()
        await begun(fake, wecom, message, "半句")
        fake.delay = lambda frame: 0.3
        sending = asyncio.create_task(wecom.send(part(message, "全文")))
        await until(lambda: any(map(finishes, fake.frames)))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert [frame["body"]["stream"]["content"] for frame in fake.frames if finishes(frame)] == ["全文"]


async def test_a_callback_older_than_a_day_is_not_answered_but_sent(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, clock: Clock
) -> None:
    clock.ahead = 24 * 3600
    await wecom.send(part(asked, "spät"))
    assert fake.pushed("wrG1") == ["spät"]
    assert not fake.sent("aibot_respond_msg")


# ---------------------------------------------------------------- faults


async def test_a_connection_lost_in_mid_answer(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    """The new connection does not know the req_id (846605): the answer is sent by itself."""
    await begun(fake, wecom, asked, "半句")
    await fake.drop(abort=True)
    wecom.progress(asked, Delta("更多"))
    await wecom.send(part(asked, "全文"))
    assert not fake.finished("r1")
    assert fake.pushed("wrG1") == ["全文"]


async def test_a_new_connection_that_still_knows_the_callback_ends_the_stream(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    await begun(fake, wecom, asked, "半句")
    fake.errcode = lambda frame: 0
    await fake.drop()
    await wecom.send(part(asked, "全文"))
    assert fake.finished("r1") == ["全文"]
    assert not fake.pushed("wrG1")


async def test_a_connection_lost_before_the_ack_of_the_end(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    fake.deaf = finishes
    sending = asyncio.create_task(wecom.send(part(asked, "全文")))
    await until(lambda: fake.sent("aibot_respond_msg"))
    fake.deaf = lambda frame: False
    await fake.drop()
    await sending
    assert fake.pushed("wrG1") == ["全文"]


async def test_not_subscribed_although_open(fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage) -> None:
    fake.unsubscribe()
    await wecom.send(part(asked, "全文"))
    assert fake.handshakes == 2
    assert fake.pushed("wrG1") == ["全文"]
    assert not fake.finished("r1")


async def test_a_refresh_that_is_not_subscribed_renews_too(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage
) -> None:
    await begun(fake, wecom, asked)
    fake.unsubscribe()
    wecom.progress(asked, Delta("半句"))
    await until(lambda: fake.handshakes == 2 and fake.connected)
    await wecom.send(part(asked, "全文"))
    assert fake.pushed("wrG1") == ["全文"]


@pytest.mark.parametrize("code", [846608, 846605, 40058])
async def test_an_end_the_platform_does_not_take_is_sent_by_itself(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, code: int
) -> None:
    await begun(fake, wecom, asked)
    fake.errcode = lambda frame: code if finishes(frame) else None
    await wecom.send(part(asked, "全文"))
    assert fake.pushed("wrG1") == ["全文"]


@pytest.mark.parametrize("code", [846608, 40058])
async def test_a_refused_refresh_is_not_repeated(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, code: int
) -> None:
    fake.errcode = lambda frame: code if responds(frame) and not finishes(frame) else None
    wecom.progress(asked, ROUTED)
    for piece in "一二三四":
        wecom.progress(asked, Delta(piece))
        await asyncio.sleep(0.12)
    assert len(fake.sent("aibot_respond_msg")) == 1
    await wecom.send(part(asked, "全文"))
    assert fake.finished("r1") + fake.pushed("wrG1") == ["全文"]


async def test_platform_limits_and_failures_are_told_apart(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    async def send(code: int, user: str) -> str:
        fake.errcode = lambda frame: None
        await fake.says("你好", user=user)
        message = await recorder.next(len(recorder.messages) + 1)
        fake.errcode = lambda frame: code
        return await wecom.send(part(message, "全文"))

    with pytest.raises(SendLimited) as limited:
        await send(45009, "a")
    assert 10 <= limited.value.retry_after <= 20
    with pytest.raises(SendFailed):
        await send(-1, "b")
    with pytest.raises(SendRefused, match="40058"):
        await send(40058, "c")


async def test_no_ack_is_a_failure_then_the_answer_comes_by_itself(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr("channels.wecom.exchange.ACK_SECONDS", 0.1)
    fake.deaf = responds
    for _ in range(2):
        with pytest.raises(SendFailed):
            await wecom.send(part(asked, "全文"))
    quick.setattr("channels.wecom.exchange.ACK_SECONDS", 20.0)
    await wecom.send(part(asked, "全文"))
    assert fake.pushed("wrG1") == ["全文"]
    assert fake.handshakes == 2, "two missed acks are the end of a connection"


async def test_a_message_of_its_own_that_nobody_acknowledged_is_uncertain(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr("channels.wecom.exchange.ACK_SECONDS", 0.1)
    fake.deaf = lambda frame: frame["cmd"] == "aibot_send_msg"
    with pytest.raises(SendUncertain):
        await wecom.send(part(asked, "后一段", 1, 2))
    quick.setattr("channels.wecom.exchange.ACK_SECONDS", 20.0)
    sending = asyncio.create_task(wecom.send(part(asked, "后一段", 1, 2)))
    await until(lambda: len(fake.sent("aibot_send_msg")) == 2)
    await fake.drop()
    with pytest.raises(SendUncertain):
        await sending
    assert len(fake.sent("aibot_send_msg")) == 2, "the outbox decides whether to repeat it"


async def test_without_a_connection_sending_fails_in_time(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr("channels.wecom.delivery._READY_SECONDS", 0.2)
    fake.refuse = 503
    await fake.drop()
    with pytest.raises(SendFailed, match="no connection"):
        await wecom.send(part(asked, "全文"))


async def test_a_cancelled_send_leaves_an_unfinished_stream_to_the_notice(
    fake: FakeWeComBot, recorder: Recorder
) -> None:
    async with running(fake, recorder) as wecom:
        await until(lambda: wecom.health().ok)
        await fake.says("你好", req_id="r1")
        message = await recorder.next()
        await begun(fake, wecom, message)
        fake.delay = lambda frame: 0.2
        wecom.progress(message, Delta("半句"))
        await asyncio.sleep(0.15)
        sending = asyncio.create_task(wecom.send(part(message, "全文")))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert fake.finished("r1") == ["半句\n\n网关重启中，回答稍后送达。"]


# ---------------------------------------------------------------- welcome


async def welcomed(fake: FakeWeComBot, recorder: Recorder) -> InboundMessage:
    await fake.event("enter_chat")
    return await recorder.next()


async def test_a_welcome_is_answered_by_its_own_command(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    message = await welcomed(fake, recorder)
    wecom.progress(message, Failed("你好"))
    await wecom.send(part(message, "你好"))
    (frame,) = fake.sent("aibot_respond_welcome_msg")
    assert frame["headers"]["req_id"] == message.reply["req"]
    assert frame["body"] == {"msgtype": "text", "text": {"content": "你好"}}
    assert len(fake.frames) == 2


async def test_a_welcome_that_is_late_or_refused_is_not_tried_again(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder, clock: Clock
) -> None:
    message = await welcomed(fake, recorder)
    fake.errcode = lambda frame: 40058
    with pytest.raises(SendRefused, match="40058"):
        await wecom.send(part(message, "你好"))
    clock.ahead = 5
    with pytest.raises(SendRefused, match="too late"):
        await wecom.send(part(message, "你好"))
    assert len(fake.sent("aibot_respond_welcome_msg")) == 1


# ---------------------------------------------------------------- bounds


async def test_a_conversation_is_sent_no_more_than_30_a_minute(
    fake: FakeWeComBot, wecom: WeComBotChannel, asked: InboundMessage, recorder: Recorder
) -> None:
    for number in range(10):
        await wecom.send(part(asked, f"{number}", 1, 2))
    sending = asyncio.create_task(wecom.send(part(asked, "zu viel", 1, 2)))
    await fake.says("andere", user="LiSi")
    await wecom.send(part(await recorder.next(2), "sofort"))
    assert not sending.done(), "another conversation does not wait"
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert len(fake.pushed("wrG1")) == 10


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=300))
def test_the_quota_keeps_the_platforms_limits(steps: list[tuple[float, bool]]) -> None:
    quota, now, sent = Quota(), 1000.0, []
    for pause, refresh in steps:
        now += pause
        wait = quota.wait_to_refresh("c", now) if refresh else quota.wait("c", now)
        if refresh and wait:
            assert quota.wait("c", now) <= wait
            continue
        now += wait
        quota.take("c", now)
        sent.append(now)
    for index, first in enumerate(sent):
        assert sum(1 for at in sent[index:] if at < first + 60) <= 30
        assert sum(1 for at in sent[index:] if at < first + 3600) <= 1000


def test_refreshes_leave_places_for_answers() -> None:
    quota = Quota()
    while not quota.wait_to_refresh("c", 1000.0):
        quota.take("c", 1000.0)
    for _ in range(3):
        assert quota.wait("c", 1000.0) == 0
        quota.take("c", 1000.0)


def test_hours_are_kept_too() -> None:
    quota, now, count = Quota(), 0.0, 0
    while now < 3600:
        now += max(quota.wait("c", now), 0.001)
        quota.take("c", now)
        count += 1
    assert 900 <= count <= 1000


async def test_open_streams_are_bounded_and_answers_come_all_the_same(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder, quick: pytest.MonkeyPatch, clock: Clock
) -> None:
    quick.setattr("channels.wecom.streams._MOST_STREAMS", 2)
    messages = []
    for number in range(4):
        await fake.says("你好", user=f"u{number}", req_id=f"q{number}")
        messages.append(await recorder.next(number + 1))
    for message in messages[:3]:
        wecom.progress(message, ROUTED)
    await until(lambda: fake.streams("q1"))
    await asyncio.sleep(0.05)
    assert not fake.streams("q2")
    await wecom.send(part(messages[2], "ganz"))
    assert [stream["finish"] for stream in fake.streams("q2")] == [True]
    clock.ahead = 400
    wecom.progress(messages[3], ROUTED)
    await until(lambda: fake.streams("q3"), what="old streams make room")


@given(st.text(), st.integers(0, 50))
def test_a_beginning_cuts_no_character(text: str, size: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    cut = beginning(text, size)
    assert len(cut.encode()) <= size
    assert text.startswith(cut)
    assert len(cut) == len(text) or len(text[: len(cut) + 1].encode()) > size


async def test_the_fixed_texts_are_those_of_the_config(fake: FakeWeComBot, recorder: Recorder) -> None:
    own = {"thinking": "想一想", "restarting": "马上回来" + "！" * 500, "merged": "并了", "not-taken": "再发一次"}
    async with running(fake, recorder, texts=lambda name: own.get(name, name)) as wecom:
        await until(lambda: wecom.health().ok)
        for number in range(2):
            await fake.says("你好", req_id=f"r{number}")
        await recorder.next(2)
        older, newer = recorder.messages
        for message in (older, newer):
            wecom.progress(message, ROUTED)
        await until(lambda: len(fake.streams("r0") + fake.streams("r1")) == 2)
        wecom.progress(newer, Delta("好" * 10_000))
        wecom.progress(older, Joined(newer.id))
        await until(lambda: fake.finished("r0"))
        await wecom.stop_receiving()
        await fake.says("太迟", req_id="r2")
        await until(lambda: fake.finished("r2"))
    assert [stream["content"] for stream in fake.streams("r0")] == ["想一想", "并了"]
    assert fake.streams("r1")[0]["content"] == "想一想"
    assert fake.finished("r2") == ["再发一次"]
    (goodbye,) = fake.finished("r1")
    assert "好\n\n马上回来！" in goodbye
    assert len(goodbye.encode()) <= 20_480
