"""Sending: the right call, once, paced, and what is done about each error of the platform."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from channels.channel import SendFailed, SendLimited, SendRefused
from channels.feishu.api import FeishuApi
from channels.feishu.channel import FeishuChannel
from channels.feishu.delivery import Delivery
from channels.health import Troubles
from channels.message import InboundMessage
from channels.pace import Pace
from memory.conversation import LaneKey, session_id, user_id
from tests.channels.feishu_recorder import Recorder, channel, part, settings
from tests.platforms.feishu_server import FakeFeishu


def message(chat: str = "oc_1", number: str = "om_1", thread: str = "") -> InboundMessage:
    user = user_id("feishu", "cli_test", "ou_1")
    return InboundMessage(
        entry="feishu",
        account="cli_test",
        id=number,
        lane=LaneKey(user, "feishu", session_id("feishu", "cli_test", chat, thread), False),
        user=user,
        platform_user="ou_1",
        text="问",
        reply={"chat": chat, "message": number} | ({"thread": thread} if thread else {}),
    )


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu() as server:
        yield server


@pytest.fixture
async def feishu(fake: FakeFeishu) -> AsyncIterator[FeishuChannel]:
    made = channel(fake, Recorder())
    yield made
    await made.close()


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def delivery(fake: FakeFeishu, clock: Clock) -> AsyncIterator[Delivery]:
    troubles = Troubles("feishu", time.time)
    api = FeishuApi(settings(fake), troubles)
    yield Delivery(api, troubles, now=lambda: clock.now, sleep=clock.sleep, rng=lambda: 1.0)
    await api.close()


async def test_an_answer_is_a_reply_to_its_message(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    number = await feishu.send(part(message(), "**答**", key="k-1"))
    assert number.startswith("om_bot_")
    (call,) = fake.sent
    assert (call["method"], call["path"]) == ("POST", "/im/v1/messages/om_1/reply")
    assert call["body"]["msg_type"] == "post"
    assert "**答**" in call["body"]["content"]
    assert len(call["body"]["uuid"]) == 40
    assert call["body"]["reply_in_thread"] is False


async def test_a_thread_is_answered_in_the_thread_and_odd_ids_stay_one_path_segment(
    fake: FakeFeishu, feishu: FeishuChannel
) -> None:
    await feishu.send(part(message(thread="omt_1"), "答"))
    assert fake.sent[-1]["body"]["reply_in_thread"] is True
    with pytest.raises(SendRefused):
        await feishu.send(part(message(number="../../x?a=b"), "答"))
    assert fake.sent[-1]["path"] == "/im/v1/messages/../../x?a=b/reply"
    assert not fake.sent[-1]["query"]


async def test_the_same_part_is_sent_once_however_often_it_is_tried(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    asked = message()
    first = await feishu.send(part(asked, "答", key="k"))
    assert await feishu.send(part(asked, "答", key="k")) == first
    assert await feishu.send(part(asked, "答", 1, 2, key="k2")) != first


async def test_a_revoked_token_is_fetched_once_and_the_call_repeated(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    await feishu.send(part(message(), "一"))
    fake.revoke_tokens()
    await asyncio.gather(*(feishu.send(part(message(f"oc_{n}", f"om_{n}"), "二")) for n in range(5)))
    assert fake.counts["token"] == 2
    assert [call["answer"] for call in fake.sent].count(0) == 6


async def test_a_token_that_stays_refused_ends_in_a_failure(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    fake.faults += [("/im/", 400, 99991663, "")] * 2
    with pytest.raises(SendFailed):
        await feishu.send(part(message(), "答"))
    assert fake.counts["token"] == 2
    assert len(fake.sent) == 2


async def test_a_limit_of_the_app_is_waited_for(fake: FakeFeishu, delivery: Delivery, clock: Clock) -> None:
    fake.faults.append(("/im/", 429, 99991400, ""))
    await delivery.send(part(message(), "答"))
    assert 0.99 < clock.now <= 2
    uuids = {call["body"]["uuid"] for call in fake.sent}
    assert len(fake.sent) == 2
    assert len(uuids) == 1


async def test_a_limit_of_the_chat_is_waited_for(fake: FakeFeishu, delivery: Delivery, clock: Clock) -> None:
    fake.faults += [("/im/", 400, 230020, ""), ("/im/", 400, 230049, "")]
    await delivery.send(part(message(), "答"))
    assert 1.5 <= clock.now <= 3
    assert [call["answer"] for call in fake.sent] == [230020, 230049, 0]


async def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_told(
    fake: FakeFeishu, delivery: Delivery, clock: Clock
) -> None:
    fake.faults += [("/im/", 500, 1500, ""), ("/im/", 502, 5000, "")]
    await delivery.send(part(message(), "答"))
    assert clock.now > 1.5, "growing pauses"
    fake.faults += [("/im/", 503, 1500, "")] * 3
    with pytest.raises(SendFailed):
        await delivery.send(part(message("oc_2", "om_2"), "答"))
    assert len(fake.sent) == 3 + 3


@pytest.mark.parametrize("code", [230011, 230110, 231003])
async def test_when_the_question_is_gone_the_answer_goes_to_the_chat(
    fake: FakeFeishu, feishu: FeishuChannel, code: int
) -> None:
    fake.faults.append(("/reply", 400, code, ""))
    await feishu.send(part(message(), "答"))
    assert fake.sent[-1]["path"] == "/im/v1/messages"
    assert fake.sent[-1]["query"] == {"receive_id_type": "chat_id"}
    assert fake.sent[-1]["body"]["receive_id"] == "oc_1"


async def test_a_thread_that_is_gone_is_left(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    fake.faults += [("/reply", 400, 230071, ""), ("/reply", 400, 230019, "")]
    await feishu.send(part(message(thread="omt_1"), "答"))
    assert [call["body"].get("reply_in_thread") for call in fake.sent] == [True, False, None]


async def test_content_the_platform_does_not_take_is_sent_as_plain_text(
    fake: FakeFeishu, feishu: FeishuChannel
) -> None:
    fake.faults.append(("/reply", 400, 230001, ""))
    await feishu.send(part(message(), "<at user_id=all>**答**"))
    assert fake.sent[-1]["body"]["msg_type"] == "text"
    assert json.loads(fake.sent[-1]["body"]["content"]) == {"text": "＜at user_id=all>**答**"}
    fake.faults += [("/reply", 400, 230001, "")] * 2
    with pytest.raises(SendRefused):
        await feishu.send(part(message(), "x", key="other"))


@pytest.mark.parametrize("code", [230002, 230013, 230018, 230035, 230022, 230028, 232009, 99991672, 987654])
async def test_what_will_never_be_taken_is_refused_at_once(
    fake: FakeFeishu, feishu: FeishuChannel, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    fake.faults.append(("/reply", 400, code, ""))
    with pytest.raises(SendRefused, match=str(code)) as caught:
        await feishu.send(part(message(), "不该出现的正文"))
    assert len(fake.sent) == 1
    assert "正文" not in str(caught.value) + caplog.text


async def test_a_missing_right_shows_in_the_health_until_a_send_works(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    fake.faults.append(("/reply", 400, 99991672, ""))
    with pytest.raises(SendRefused):
        await feishu.send(part(message(), "答"))
    assert not feishu.health().ok
    assert "im:message" in feishu.health().detail
    await feishu.send(part(message(), "答"))
    assert feishu.health().ok


async def test_a_wrong_secret_degrades_the_channel_and_is_not_hammered(fake: FakeFeishu) -> None:
    feishu = channel(fake, Recorder(), **{"app-secret": "wrong-canary"})  # one fetch, then a pause of over 2.5 s
    for _ in range(5):
        with pytest.raises(SendFailed) as caught:
            await feishu.send(part(message(), "答"))
        assert "canary" not in str(caught.value)
    assert fake.counts["token"] == 1
    assert not feishu.health().ok
    assert "app-secret" in feishu.health().detail
    assert "canary" not in feishu.health().detail + repr(settings(fake, **{"app-secret": "wrong-canary"}))
    await feishu.close()


async def test_a_platform_out_of_reach_is_a_failure(fake: FakeFeishu) -> None:
    feishu = channel(fake, Recorder(), **{"api-base-url": "http://127.0.0.1:9"})
    with pytest.raises(SendFailed):
        await feishu.send(part(message(), "答"))
    assert "api-base-url" in feishu.health().detail
    await feishu.close()


async def test_answers_that_are_no_json_are_a_failure_or_refusal(fake: FakeFeishu) -> None:
    feishu = channel(fake, Recorder(), **{"api-base-url": f"{fake.base}/elsewhere"})
    with pytest.raises(SendFailed):
        await feishu.send(part(message(), "答"))
    await feishu.close()


async def test_one_chat_gets_at_most_what_the_platform_allows(delivery: Delivery, clock: Clock) -> None:
    times = []
    for number in range(12):
        await delivery.send(part(message("oc_1", f"om_{number}"), "答"))
        times.append(clock.now)
    assert all(later - earlier >= 1 for earlier, later in zip(times, times[5:], strict=False))
    assert times[-1] < 4


async def test_many_chats_are_served_side_by_side(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    fake.api_delay = 1.0
    before = time.monotonic()
    await asyncio.gather(*(feishu.send(part(message(f"oc_{n}", f"om_{n}"), "答")) for n in range(40)))
    assert time.monotonic() - before < 20, "one after another they would take forty"
    assert fake.counts["token"] == 1


async def test_the_app_is_paced_only_after_the_platform_refused_one_too_many(
    fake: FakeFeishu, delivery: Delivery, clock: Clock
) -> None:
    async def burst(first: int) -> float:
        begun = clock.now
        for number in range(first, first + 60):
            await delivery.send(part(message(f"oc_{number}", f"om_{number}"), "答"))
        return clock.now - begun

    assert await burst(0) == 0, "sixty answers need not wait for a limit nobody has hit"
    fake.faults.append(("/im/v1/messages", 429, 99991400, "too many requests"))
    await delivery.send(part(message("oc_limit", "om_limit"), "答"))
    assert await burst(100) > 1, "then the app keeps below the known rate"


def test_pace_holds_rate_and_burst() -> None:
    pace = Pace(rate=45, burst=5)
    passed = [pace.take("", 0.0) for _ in range(200)]
    assert passed[:5] == [0.0] * 5
    assert passed == sorted(passed)
    for start in passed:
        assert sum(1 for at in passed if start <= at < start + 1) <= 50
    assert pace.take("", 100.0) == 0.0


def test_pace_pauses_and_forgets_idle_keys() -> None:
    pace = Pace(rate=4)
    pace.pause("a", 0.0, 10.0)
    assert pace.wait("a", 1.0) == 9.0
    assert pace.take("b", 1.0) == 0.0
    for number in range(30_000):
        pace.take(f"k{number}", float(number))
    assert len(pace._due) <= 10_001


async def test_too_long_a_queue_is_told_before_it_is_joined(fake: FakeFeishu, delivery: Delivery, clock: Clock) -> None:
    async def queue() -> None:
        while True:
            await delivery.send(part(message(), "答"))
            clock.now = 0.0  # all of them at the same moment

    with pytest.raises(SendLimited) as caught:
        await queue()
    assert caught.value.retry_after >= 29
    assert len(fake.sent) >= 4 * 29, "half a minute of them is taken"
