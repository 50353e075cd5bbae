"""The WeCom bot's long connection through real sockets: subscription, liveness, loss, another subscriber, stopping."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from channels.message import Notice
from channels.reconnecting import Pauses
from channels.wecom.channel import WeComBotChannel
from channels.wecom.exchange import AckMissing, ConnectionLost, Exchange
from channels.wecom.frame import Frame
from channels.wecom.losses import Loss, TakenOver
from tests.channels.wecom_recorder import Recorder, running
from tests.platforms.wecom_bot import FakeWeComBot
from tests.waiting import until


@pytest.fixture
async def fake() -> AsyncIterator[FakeWeComBot]:
    async with FakeWeComBot() as server:
        yield server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def wecom(fake: FakeWeComBot, recorder: Recorder) -> AsyncIterator[WeComBotChannel]:
    async with running(fake, recorder) as channel:
        await until(lambda: channel.health().ok)
        yield channel


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pauses and time-outs a tenth as long, or less."""
    monkeypatch.setattr(Loss, "pauses", Pauses(0.05, 30.0))
    monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 1.0)
    monkeypatch.setattr("channels.wecom.connection.PING_SECONDS", 0.1)
    return monkeypatch


async def test_it_subscribes_first_and_is_well_then(fake: FakeWeComBot, wecom: WeComBotChannel) -> None:
    assert [frame["cmd"] for frame in fake.frames] == ["aibot_subscribe"]
    assert fake.frames[0]["body"] == {"bot_id": "bot1", "secret": fake.secret}
    assert wecom.health().detail == "正常"


async def test_a_repeated_msgid_is_one_message(fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder) -> None:
    for _ in range(3):
        await fake.says("你好", msgid="m1")
    await until(lambda: recorder.duplicates == 2)
    assert [message.id for message in recorder.messages] == ["m1"]


async def test_messages_keep_their_order(fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder) -> None:
    for number in range(100):
        await fake.says(str(number))
    await recorder.next(100)
    assert [message.text for message in recorder.messages] == [str(number) for number in range(100)]


async def test_damaged_frames_and_failing_stores_are_survived(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    for text in ("{", "[]", "null", '{"cmd": 7}', '{"cmd": "x", "body": []}', '{"headers": {"req_id": "stray"}}'):
        await fake.raw(text)
    await fake.push("aibot_msg_callback", {"msgid": "x"})
    recorder.error = ValueError("disk full")
    await fake.says("verloren")
    await until(lambda: recorder.asked)
    recorder.error = None
    await fake.says("danach")
    assert (await recorder.next()).text == "danach"
    assert fake.handshakes == 1


async def test_pings_keep_a_quiet_link(fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch) -> None:
    async with running(fake, recorder):
        await until(lambda: len(fake.sent("ping")) >= 5)
        assert fake.handshakes == 1
        assert not fake.broken


async def test_two_missed_acks_are_death_and_one_is_not(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch
) -> None:
    async with running(fake, recorder) as wecom:
        fake.deaf = lambda frame: frame["cmd"] == "ping" and len(fake.sent("ping")) == 2
        await until(lambda: len(fake.sent("ping")) >= 4)
        assert fake.handshakes == 1
        fake.deaf = lambda frame: frame["cmd"] == "ping"
        await until(lambda: fake.handshakes == 2)
        assert len(fake.sent("ping")) <= 7
        fake.deaf = lambda frame: False
        await until(lambda: wecom.health().ok)


@pytest.mark.parametrize("abort", [True, False])
async def test_a_lost_connection_is_made_again_with_the_first_pause(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder, abort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loss, "pauses", Pauses(0.2, 30.0, spread=(1.0, 1.25)))
    loop = asyncio.get_running_loop()
    before = loop.time()
    await fake.drop(abort=abort)
    await until(lambda: not wecom.health().ok)
    assert "正在重连" in wecom.health().detail
    await until(lambda: wecom.health().ok)
    assert loop.time() - before > 0.2
    await fake.says("wieder da")
    assert (await recorder.next()).text == "wieder da"


async def test_a_server_that_always_closes_is_asked_less_and_less(
    fake: FakeWeComBot, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loss, "pauses", Pauses(0.05, 30.0, spread=(1.0, 1.0)))
    fake.refuse = 503
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with running(fake, recorder) as wecom:
        await until(lambda: fake.handshakes >= 4)
        assert loop.time() - begun > 0.05 + 0.1 + 0.2
        assert "网络" in wecom.health().detail


async def test_a_handshake_without_end_is_given_up(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr("channels.reconnecting.CONNECT_SECONDS", 0.2)
    connections = 0

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with running(fake, recorder, **{"websocket-url": url}) as wecom:
        await until(lambda: connections >= 2)
        assert not wecom.health().ok
    server.close()
    await server.wait_closed()


async def test_a_subscription_nobody_acknowledges_is_given_up(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch
) -> None:
    fake.deaf = lambda frame: True
    async with running(fake, recorder) as wecom:
        await until(lambda: fake.handshakes >= 2)
        assert not wecom.health().ok
        fake.deaf = lambda frame: False
        await until(lambda: wecom.health().ok)


async def test_a_refused_subscription_is_not_tried_again_soon_and_says_what_to_mend(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.secret = "another"
    async with running(fake, recorder, secret="wrong-canary") as wecom:
        await until(lambda: "secret" in wecom.health().detail)
        assert "40001" in wecom.health().detail
        await asyncio.sleep(0.4)  # as long as several pauses of another loss
        assert len(fake.sent("aibot_subscribe")) == 1
    assert "canary" not in caplog.text + repr(wecom.health())


async def test_asking_too_often_is_named_as_such(fake: FakeWeComBot, recorder: Recorder) -> None:
    fake.errcode = lambda frame: 45009
    async with running(fake, recorder) as wecom:
        await until(lambda: "45009" in wecom.health().detail)
        assert "稍后自动重试" in wecom.health().detail


async def test_another_subscriber_is_left_alone(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch, wecom: WeComBotChannel
) -> None:
    other = await fake.another_subscribes()
    await until(lambda: "另一个程序" in wecom.health().detail)
    assert "重启本网关" in wecom.health().detail
    await asyncio.sleep(0.4)  # as long as several pauses of another loss
    assert len(fake.sent("aibot_subscribe")) == 2, "ours and theirs"
    await other.close()
    await fake.other.close()


async def test_two_gateways_do_not_play_ping_pong(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch
) -> None:
    async with running(fake, recorder) as one:
        await until(lambda: one.health().ok)
        async with running(fake, recorder) as two:
            await until(lambda: two.health().ok)
            await until(lambda: not one.health().ok)
            await asyncio.sleep(0.5)
            assert two.health().ok
            assert fake.handshakes == 2


async def test_after_a_long_pause_it_asks_again(
    fake: FakeWeComBot, recorder: Recorder, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr(TakenOver, "pauses", Pauses(0.2, 30.0))
    async with running(fake, recorder) as wecom:
        await until(lambda: wecom.health().ok)
        other = await fake.another_subscribes()
        await until(lambda: not wecom.health().ok)
        await other.close()
        await fake.other.close()
        await until(lambda: wecom.health().ok)


async def test_a_welcome_goes_out_within_five_seconds(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    await fake.event("template_card_event")
    req_id = await fake.event("enter_chat")
    assert (await recorder.next()).notice is Notice.WELCOME
    assert len(recorder.messages) == 1
    assert req_id


async def test_stopping_ends_within_a_moment_even_without_a_server(fake: FakeWeComBot, recorder: Recorder) -> None:
    loop = asyncio.get_running_loop()
    async with running(fake, recorder, **{"websocket-url": "ws://127.0.0.1:9"}) as wecom:
        await until(lambda: not wecom.health().ok)
        before = loop.time()
    assert loop.time() - before < 20


async def test_who_writes_while_the_gateway_stops_is_told_to_repeat(
    fake: FakeWeComBot, wecom: WeComBotChannel, recorder: Recorder
) -> None:
    await wecom.stop_receiving()
    req_id = await fake.says("zu spät")
    await until(lambda: fake.finished(req_id))
    assert "重新发送" in fake.finished(req_id)[0]
    assert not recorder.messages


# ---------------------------------------------------------------- requests and acknowledgements


class Wire:
    """What an exchange writes."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasons: list[str] = []
        self.exchange = Exchange(self.write, self.reasons.append)

    async def write(self, text: str) -> None:
        self.texts.append(text)

    def ack(self, req_id: str, errcode: int = 0) -> None:
        self.exchange.acknowledge(Frame("", req_id, {}, errcode))


async def test_frames_of_one_req_id_wait_for_each_other_and_others_do_not() -> None:
    wire = Wire()
    asked = [asyncio.create_task(wire.exchange.ask("x", "a", {"n": n})) for n in range(2)]
    other = asyncio.create_task(wire.exchange.ask("x", "b"))
    await asyncio.sleep(0.01)
    assert len(wire.texts) == 2
    wire.ack("b")
    assert (await other).errcode == 0
    wire.ack("a", 1)
    assert (await asked[0]).errcode == 1
    await asyncio.sleep(0.01)
    assert len(wire.texts) == 3
    wire.ack("a", 2)
    assert (await asked[1]).errcode == 2


async def test_a_late_ack_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 0.05)
    wire = Wire()
    with pytest.raises(AckMissing):
        await wire.exchange.ask("x", "a")
    monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 20.0)
    second = asyncio.create_task(wire.exchange.ask("x", "a"))
    await asyncio.sleep(0)
    wire.ack("a", 1)
    await asyncio.sleep(0)
    assert not second.done()
    wire.ack("a", 2)
    assert (await second).errcode == 2
    assert not wire.reasons


async def test_only_misses_in_a_row_count(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    for round_ in range(2):
        monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 0.02)
        with pytest.raises(AckMissing):
            await wire.exchange.ask("x", f"a{round_}")
        monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 20.0)
        heard = asyncio.create_task(wire.exchange.ask("x", f"b{round_}"))
        await asyncio.sleep(0)
        wire.ack(f"b{round_}")
        await heard
    assert not wire.reasons
    monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 0.02)
    for round_ in range(2):
        with pytest.raises(AckMissing):
            await wire.exchange.ask("x", f"c{round_}")
    assert wire.reasons == ["2 acknowledgements missing"]


async def test_a_dead_socket_fails_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    waiting = [asyncio.create_task(wire.exchange.ask("x", name)) for name in "aab"]
    await asyncio.sleep(0)
    wire.exchange.close("gone")
    wire.exchange.close("again")
    assert wire.reasons == ["gone"]
    for task in waiting:
        with pytest.raises(ConnectionLost):
            await task
    with pytest.raises(ConnectionLost):
        await wire.exchange.ask("x", "c")


async def test_a_write_that_hangs_or_fails_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.wecom.exchange.ACK_SECONDS", 0.05)
    reasons: list[str] = []

    async def hang(text: str) -> None:
        await asyncio.Event().wait()

    async def fail(text: str) -> None:
        raise ConnectionResetError

    with pytest.raises(AckMissing):
        await Exchange(hang, reasons.append).ask("x", "a")
    with pytest.raises(ConnectionLost):
        await Exchange(fail, reasons.append).ask("x", "a")
    assert reasons == ["cannot write", "ConnectionResetError"]
