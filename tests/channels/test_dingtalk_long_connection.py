"""The long connection through real sockets: acknowledgements, damage, hand-over, loss, refusal, silence, stopping."""

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator

import pytest

from channels.dingtalk import long_connection
from channels.dingtalk.channel import DingTalkChannel
from channels.dingtalk.frame import Frame, acknowledgement, read_frame
from channels.dingtalk.long_connection import LongConnection, Renewed
from channels.health import Troubles
from channels.reconnecting import Pauses
from tests.channels.brisk import brisk as scale_pauses
from tests.channels.dingtalk_recorder import channel, running, settings
from tests.channels.feishu_recorder import Recorder
from tests.platforms.dingtalk_gateway import BOT_TOPIC, OPEN, Call, FakeDingTalk
from tests.waiting import until


@pytest.fixture
async def ding() -> AsyncIterator[FakeDingTalk]:
    async with FakeDingTalk() as server:
        yield server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def dingtalk(ding: FakeDingTalk, recorder: Recorder) -> AsyncIterator[DingTalkChannel]:
    async with running(channel(ding, recorder)) as made:
        await ding.wait_connected()
        yield made


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses after a loss a twentieth as long."""
    scale_pauses(monkeypatch, 0.05)


def grow(calls: list[Call]) -> None:
    """The gaps between four tries were at least 25, 50 and 100 ms, or half of that."""
    gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(calls[:4])]
    assert all(gap > 0.5 * least for gap, least in zip(gaps, (0.025, 0.05, 0.1), strict=False)), gaps


async def test_a_message_is_stored_and_acknowledged(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    number = await ding.say("你好")
    await until(lambda: ding.acks_of(number))
    (ack,) = ding.acks_of(number)
    assert ack.body["code"] == 200
    assert ack.body["headers"] == {"messageId": number, "contentType": "application/json"}
    assert recorder.texts == ["你好"]
    assert dingtalk.health().ok
    (call,) = ding.opens
    assert call.body["subscriptions"] == [{"type": "CALLBACK", "topic": BOT_TOPIC}]


async def test_200_messages_at_once_are_acknowledged_quickly_and_kept_in_order(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    recorder.delay = 0.2
    numbers = [await ding.say(f"{n}") for n in range(200)]
    await until(lambda: len(ding.acks) == 200)
    assert max(ding.acks_of(number)[0].at - ding.pushed[number] for number in numbers) < 20, (
        "one after another they would take forty"
    )
    assert recorder.texts == [str(n) for n in range(200)]


async def test_the_acknowledgement_waits_for_the_store_and_a_ping_does_not(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    recorder.gate = asyncio.Event()
    number = await ding.say()
    ping = await ding.push(ding.ping("op-7"))
    await until(lambda: ding.acks_of(ping))
    await asyncio.sleep(0.05)
    assert not ding.acks_of(number)
    recorder.gate.set()
    await until(lambda: ding.acks_of(number))
    assert ding.acks_of(ping)[0].body["data"] == {"opaque": "op-7"}


async def test_what_was_not_stored_is_not_acknowledged_and_taken_when_it_comes_again(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    recorder.error = ValueError("disk full")
    first = await ding.say(msgId="msgSAME")
    await until(lambda: recorder.asked == 1)
    recorder.error, recorder.closed = None, True
    second = await ding.say(msgId="msgSAME")
    await until(lambda: recorder.asked == 2)
    ping = await ding.push(ding.ping("after"))
    await until(lambda: ding.acks_of(ping))
    assert not ding.acks_of(first)
    assert not ding.acks_of(second)
    recorder.closed = False
    third, fourth = await ding.say(msgId="msgSAME"), await ding.say(msgId="msgSAME")
    await until(lambda: ding.acks_of(third) and ding.acks_of(fourth))
    assert (len(recorder.messages), recorder.duplicates) == (1, 1)


async def test_frames_nobody_wants_are_acknowledged(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    card = ding.frame("CALLBACK", "/v1.0/card/instances/callback", {})
    odd = ding.frame("NEW", "x", {})
    event = ding.event()
    greeting = ding.frame("SYSTEM", "CONNECTED", {"x": 1})
    no_object = ding.frame("CALLBACK", BOT_TOPIC, [1])
    for frame in (card, odd, event, greeting, no_object):
        number = await ding.push(frame)
        await until(lambda number=number: ding.acks_of(number))
        assert ding.acks_of(number)[0].body["code"] == 200
    assert ding.acks_of(event["headers"]["messageId"])[0].body["data"]["status"] == "SUCCESS"
    assert not recorder.messages


@pytest.mark.parametrize(
    "data",
    [{"msgtype": "text"}, {"msgtype": "richText"}, {}, {"conversationId": {}, "msgId": [], "senderId": 1}],
)
async def test_malformed_messages_are_acknowledged_and_the_next_one_works(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder, data: dict[str, object]
) -> None:
    bad = await ding.push(ding.frame("CALLBACK", BOT_TOPIC, data))
    good = await ding.say("danach")
    await until(lambda: ding.acks_of(bad) and ding.acks_of(good))
    assert recorder.texts == ["danach"]


async def test_damaged_frames_are_survived_on_the_same_connection(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    nested = "[" * 100_000
    for text in (
        "not json",
        "[]",
        "null",
        '{"type": 7}',
        "",
        nested,
        '{"type":"SYSTEM"}',
        '{"headers":{"topic":"ping"}}',
    ):
        await ding.send_raw(text)
    await ding.connections[0].send_bytes(b"\xff\xfe")
    spelled = ding.chat("andere Schreibung")
    spelled["header"] = spelled.pop("headers")
    await ding.send_raw(json.dumps(spelled))
    await ding.say("danach")
    await until(lambda: recorder.texts == ["andere Schreibung", "danach"])
    assert ding.total_connections == 1


async def test_a_frame_of_8_mib_is_taken_and_a_larger_one_costs_a_connection(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    await ding.say("x" * (8 << 20))
    await until(lambda: recorder.messages)
    assert len(recorder.texts[0]) == 8 << 20
    assert ding.total_connections == 1
    with contextlib.suppress(ConnectionError):
        await ding.say("x" * (17 << 20))
    await ding.wait_connected(2)
    await ding.say("danach")
    await until(lambda: recorder.texts[1:] == ["danach"])


async def test_before_a_connection_ends_the_next_is_open(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    recorder.gate = asyncio.Event()
    old = ding.connections[0]
    number = await ding.say("unterwegs")
    await ding.push(ding.disconnect())
    await ding.wait_connected(2)
    assert not ding.acks_of(number)
    assert not old.closed, "left only after the next is open and what came by it is acknowledged"
    recorder.gate.set()
    await until(lambda: ding.acks_of(number))
    assert ding.acks_of(number)[0].connection == 1
    await until(lambda: old.closed)
    assert dingtalk.health().ok
    await ding.say("danach")
    await until(lambda: recorder.texts == ["unterwegs", "danach"])


async def test_while_the_next_connection_fails_the_old_one_is_read(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder
) -> None:
    ding.open_answer = (500, "<html>")
    await ding.push(ding.disconnect())
    await until(lambda: len(ding.opens) == 2)
    await ding.say("noch auf der alten", staff="s1")
    await until(lambda: recorder.texts == ["noch auf der alten"])
    assert not dingtalk.health().ok
    ding.open_answer = None
    await ding.wait_connected(2)
    await until(lambda: dingtalk.health().ok)


async def test_a_platform_that_says_disconnect_at_once_is_not_hammered(
    ding: FakeDingTalk, recorder: Recorder, brisk: None
) -> None:
    ding.greeting = ding.disconnect()
    async with running(channel(ding, recorder)):
        await until(lambda: len(ding.opens) >= 4)
        grow(ding.opens[1:])


async def test_connections_are_renewed_now_and_then(
    ding: FakeDingTalk, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_connection, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(Renewed, "pauses", Pauses(0.5, 60.0, stable=0.05, free=1))
    async with running(channel(ding, recorder)):
        await ding.wait_connected(3)
        await until(lambda: len(ding.connections) == 1)


@pytest.mark.parametrize("abort", [True, False])
async def test_a_lost_connection_is_back_at_once(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, recorder: Recorder, abort: bool
) -> None:
    before = time.monotonic()
    if abort:
        ding.abort()
    else:
        await ding.connections[0].close(code=1001)
    await ding.wait_connected(2)
    assert time.monotonic() - before < 20
    await ding.say("wieder da")
    await until(lambda: recorder.texts == ["wieder da"])
    assert dingtalk.health().ok


@pytest.mark.parametrize("code", [1000, 1011])
async def test_a_server_that_closes_at_once_is_not_hammered(
    ding: FakeDingTalk, recorder: Recorder, brisk: None, code: int
) -> None:
    ding.close_on_connect = code
    async with running(channel(ding, recorder)) as dingtalk:
        await until(lambda: len(ding.opens) >= 4)
        grow(ding.opens)
        ding.close_on_connect = None
        await until(lambda: len(ding.connections) == 1 and dingtalk.health().ok)


@pytest.mark.parametrize(
    "answer",
    [
        (500, "<html>down</html>"),
        (200, "<html>banned</html>"),
        (200, {}),
        (200, {"endpoint": "ftp://x", "ticket": "t"}),
        (200, {"endpoint": "ws://[", "ticket": "t"}),
        (200, {"endpoint": "ws://127.0.0.1:1/connect", "ticket": "t"}),
        (200, {"endpoint": 7, "ticket": None}),
        (403, {"code": "Forbidden.AccessDenied.QpsLimitForApi", "message": ""}),
    ],
)
async def test_an_endpoint_that_is_down_is_asked_with_growing_pauses(
    ding: FakeDingTalk, recorder: Recorder, brisk: None, answer: tuple[int, object]
) -> None:
    ding.open_answer = answer
    async with running(channel(ding, recorder)) as dingtalk:
        await until(lambda: len(ding.opens) >= 4)
        grow(ding.opens)
        assert "网络" in dingtalk.health().detail
        ding.open_answer = None
        await ding.wait_connected()
        await until(lambda: dingtalk.health().ok)


async def test_an_endpoint_that_never_answers_times_out(
    ding: FakeDingTalk, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.calls.TRY_SECONDS", 0.2)
    ding.delays[OPEN] = 90
    async with running(channel(ding, recorder)) as dingtalk:
        await until(lambda: len(ding.opens) >= 2)
        ding.delays.clear()
        monkeypatch.setattr("channels.calls.TRY_SECONDS", 20.0)
        await ding.wait_connected()
        await until(lambda: dingtalk.health().ok)


async def test_a_wrong_secret_is_named_and_tried_slowly(
    ding: FakeDingTalk, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    made = channel(ding, recorder, **{"client-secret": "wrong-secret-7"})
    async with running(made) as dingtalk:
        await until(lambda: "client-secret" in dingtalk.health().detail)
        await asyncio.sleep(0.3)
        assert len(ding.opens) == 1
    assert "wrong-secret-7" not in caplog.text + dingtalk.health().detail + repr(made)


async def test_a_silent_server_is_noticed(
    ding: FakeDingTalk, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert long_connection.SILENCE_SECONDS == 90
    monkeypatch.setattr(long_connection, "SILENCE_SECONDS", 0.5)
    ding.autoping = False
    started = time.monotonic()
    async with running(channel(ding, recorder)):
        await ding.wait_connected()
        await until(lambda: len(ding.opens) == 2)
        assert time.monotonic() - started > 0.4


async def test_a_quiet_connection_that_answers_pings_is_kept(
    ding: FakeDingTalk, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_connection, "SILENCE_SECONDS", 1.5)
    async with running(channel(ding, recorder)):
        await ding.wait_connected()
        await asyncio.sleep(3.0)
        assert len(ding.opens) == 1


async def test_neither_ticket_nor_secret_nor_text_is_logged(
    ding: FakeDingTalk, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with running(channel(ding, recorder)):
        await ding.wait_connected()
        await ding.say("geheimer Text")
        await until(lambda: recorder.messages)
        ding.abort()
        await ding.wait_connected(2)
    assert "dingtalk_connected" in caplog.text
    for secret in ("ticket", "sendBySession", ding.client_secret, "geheimer"):
        assert secret not in caplog.text


async def test_stopping_is_quick_and_what_is_under_way_is_acknowledged(ding: FakeDingTalk, recorder: Recorder) -> None:
    recorder.delay = 0.2
    dingtalk = channel(ding, recorder)
    task = asyncio.create_task(dingtalk.run())
    await ding.wait_connected()
    number = await ding.say("zuletzt")
    await until(lambda: recorder.asked)
    before = time.monotonic()
    await dingtalk.stop_receiving()
    assert time.monotonic() - before < 20
    await asyncio.wait_for(task, 30)
    await until(lambda: ding.acks_of(number) and not ding.connections)
    await dingtalk.close()


@pytest.mark.parametrize(
    "state", ["never run", "endpoint frozen", "waiting", "store stuck", "server frozen", "leaving"]
)
async def test_stopping_is_quick_in_every_state(ding: FakeDingTalk, recorder: Recorder, state: str) -> None:
    if state == "endpoint frozen":
        ding.delays[OPEN] = 90
    if state == "waiting":
        ding.open_answer = (401, {"code": "invalidClient"})
    if state == "server frozen":
        ding.autoping = False
    dingtalk = channel(ding, recorder)
    task = asyncio.create_task(dingtalk.run()) if state != "never run" else None
    number = ""
    if state in ("store stuck", "leaving"):
        recorder.delay = 90
        await ding.wait_connected()
        number = await ding.say()
    if state == "leaving":
        await ding.push(ding.disconnect())
        await ding.wait_connected(2)
    await asyncio.sleep(0.15)
    before = time.monotonic()
    await dingtalk.stop_receiving()
    await dingtalk.close()
    assert time.monotonic() - before < 20
    if task:
        await asyncio.wait_for(task, 30)
    assert not ding.acks_of(number), "not stored, so it may come again"


async def test_cancelling_run_closes_the_socket(ding: FakeDingTalk, recorder: Recorder) -> None:
    dingtalk = channel(ding, recorder)
    task = asyncio.create_task(dingtalk.run())
    await ding.wait_connected()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not ding.connections)
    await dingtalk.close()


async def test_a_plain_address_is_not_followed_from_a_secure_one(ding: FakeDingTalk, recorder: Recorder) -> None:
    class Api:
        """Answers with the address of the stand-in, although it was asked for by https."""

        asked = 0
        session = None

        async def open_connection(self, subscriptions: object) -> dict[str, str]:
            self.asked += 1
            return {"endpoint": f"{ding.base}/connect".replace("http:", "ws:"), "ticket": "t"}

    async def handle(frame: Frame) -> bool:
        return True

    api, troubles = Api(), Troubles("dingtalk", time.time)
    secure = settings(ding, **{"api-base-url": "https://127.0.0.1:1"})
    kept = LongConnection(api, secure, "dingtalk", troubles, handle)  # type: ignore[arg-type]
    task = asyncio.create_task(kept.run())
    await until(lambda: api.asked and "断开" in troubles.health().detail)
    await kept.stop()
    await task
    assert ding.total_connections == 0


def test_a_frame_without_headers_is_still_a_frame() -> None:
    assert read_frame('{"type": "SYSTEM"}') == Frame("SYSTEM", "", "", "application/json", "")
    assert read_frame('{"data": "x"}') is None
    frame = read_frame('{"type":"SYSTEM","headers":{"topic":"disconnect"},"data":"{}"}')
    assert frame is not None
    assert frame.is_disconnect
    assert json.loads(acknowledgement(frame))["data"] == "{}"
