"""The long connection through real sockets: acknowledgements, chunks, damage, loss, refusal, stopping."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator

import pytest

from channels.feishu import long_connection
from channels.feishu.channel import FeishuChannel
from channels.feishu.chunks import Chunks
from channels.feishu.endpoint import ConnectFailed
from channels.feishu.frame import CONTROL, DATA, Frame
from channels.reconnecting import Pauses
from tests.channels.feishu_recorder import Recorder, channel
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.waiting import until


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu() as server:
        yield server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@contextlib.asynccontextmanager
async def running(feishu: FeishuChannel) -> AsyncIterator[FeishuChannel]:
    task = asyncio.create_task(feishu.run())
    try:
        yield feishu
    finally:
        await feishu.stop_receiving()
        await asyncio.wait_for(task, 30)
        await feishu.close()


@pytest.fixture
async def feishu(fake: FakeFeishu, recorder: Recorder) -> AsyncIterator[FeishuChannel]:
    async with running(channel(fake, recorder)) as made:
        await fake.wait_connected()
        yield made


async def test_an_event_is_acknowledged_with_its_own_frame(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder
) -> None:
    ack = await fake.push(message_event("你好"), message_id="frame-1")
    assert ack is not None
    assert ack.code == 200
    assert (ack.frame.headers["type"], ack.frame.headers["message_id"]) == ("event", "frame-1")
    assert ack.frame.service == 33554678
    assert ack.frame.log_id_new == "frame-1"
    assert ack.biz_rt is not None
    assert ack.biz_rt.isdigit()
    assert recorder.texts == ["你好"]
    assert feishu.health().ok
    assert fake.counts["ping"] >= 1, "the first ping goes out at once"


async def test_200_events_at_once_are_acknowledged_quickly_and_in_order(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder
) -> None:
    recorder.delay = 0.2
    started = time.monotonic()
    acks = await asyncio.gather(*(fake.push(message_event(f"{n}")) for n in range(200)))
    assert all(ack and ack.code == 200 for ack in acks)
    assert time.monotonic() - started < 20, "one after another they would take forty"
    assert recorder.texts == [str(n) for n in range(200)]


async def test_the_acknowledgement_waits_for_the_store(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder
) -> None:
    recorder.delay = 0.3
    ack = await fake.push(message_event("x"))
    assert ack is not None
    assert ack.seconds >= 0.3


async def test_a_closed_or_failing_gateway_has_the_event_delivered_again(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder
) -> None:
    event = message_event("x")
    recorder.closed = True
    assert [ack.code for ack in await fake.push_until_acked(event, delays=()) if ack] == [500]
    recorder.closed, recorder.error = False, ValueError("token sk-test-123")
    ack = await fake.push(event)
    assert ack is not None
    assert ack.frame.payload == b'{"code": 500}'
    recorder.error = None
    for _ in range(2):
        ack = await fake.push(event)
        assert ack is not None
        assert ack.code == 200
    assert (len(recorder.messages), recorder.duplicates) == (1, 1)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [0, 0, 1, 2, 2, 3, 4]])
async def test_chunks_in_any_order_are_joined(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder, order: list[int]
) -> None:
    ack = await fake.push(message_event("很长" * 500), chunks=5, order=order)
    assert ack is not None
    assert ack.code == 200
    assert recorder.texts == ["很长" * 500]


async def test_a_frame_of_3_mb(fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder) -> None:
    ack = await fake.push(message_event("太长" * 500_000))
    assert ack is not None
    assert len(recorder.texts[0]) == 1_000_000


async def test_events_nobody_wants_are_acknowledged(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder
) -> None:
    unwanted = {"schema": "2.0", "header": {"event_type": "im.message.reaction.created_v1"}, "event": {}}
    for payload in (unwanted, b"{not json", b"[]", b"\xff\xfe", b"", {"event": "x", "header": []}):
        ack = await fake.push(payload)
        assert ack is not None, payload
        assert ack.code == 200
    ack = await fake.push(message_event("x"), type_="card")
    assert ack is not None
    assert not recorder.messages or recorder.texts == ["x"]


@pytest.mark.parametrize("skip", [("sum",), ("seq",), ("sum", "seq", "trace_id"), ("timestamp",)])
async def test_missing_headers_do_no_harm(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder, skip: tuple[str, ...]
) -> None:
    ack = await fake.push(message_event("x"), skip_headers=skip)
    assert ack is not None
    assert recorder.texts == ["x"]


async def test_damaged_frames_are_survived(fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder) -> None:
    bad = Frame(method=DATA, headers=(("message_id", "m"), ("sum", "2"), ("seq", "9")), payload=b"x").encode()
    huge = Frame(method=DATA, headers=(("message_id", "m"), ("sum", "9" * 30), ("seq", "-1")), payload=b"x").encode()
    pong = Frame(method=CONTROL, headers=(("type", "pong"),), payload=b'{"PingInterval": "soon"}').encode()
    for data in (b"\xff\xfe", b"", b"\x00" * 50, bad, huge, pong, Frame(method=7).encode()):
        await fake.send_raw(data)
    await fake.connections[0].send_str("text")
    ack = await fake.push(message_event("danach"))
    assert ack is not None
    assert fake.counts["ws"] == 1
    assert recorder.texts == ["danach"]


@pytest.mark.parametrize("abort", [True, False])
async def test_a_lost_connection_is_back_at_once(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder, abort: bool
) -> None:
    before = time.monotonic()
    await fake.drop(abort=abort)
    await until(lambda: fake.counts["ws"] == 2)
    assert time.monotonic() - before < 20
    await fake.wait_connected()
    ack = await fake.push(message_event("wieder da"))
    assert ack is not None
    assert feishu.health().ok


async def test_one_bad_secret_answer_is_not_the_end(fake: FakeFeishu, feishu: FeishuChannel) -> None:
    fake.endpoint_error = (200, 1000040345, "app_secret is invalid")
    await fake.drop()
    await until(lambda: "app-secret" in feishu.health().detail)
    assert not feishu.health().ok
    fake.endpoint_error = None
    await fake.wait_connected()
    await until(lambda: feishu.health().ok)


@pytest.mark.parametrize("error", [(500, 5000, "down"), (200, 1, "busy"), (200, 1000040343, "internal")])
async def test_an_endpoint_that_is_down_is_asked_with_growing_pauses(
    fake: FakeFeishu, recorder: Recorder, error: tuple[int, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.endpoint_error = error
    monkeypatch.setattr(ConnectFailed, "pauses", Pauses(0.025, 60.0))
    begun = time.monotonic()
    async with running(channel(fake, recorder)) as feishu:
        await until(lambda: fake.counts["endpoint"] >= 4)
        assert time.monotonic() - begun > 0.5 * (0.025 + 0.05 + 0.1), "each pause twice as long, or half of that"
        assert "网络" in feishu.health().detail
        fake.endpoint_error = None
        await fake.wait_connected()
        await until(lambda: feishu.health().ok)


async def test_a_frozen_endpoint_is_given_up_and_asked_again(
    fake: FakeFeishu, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.calls.TRY_SECONDS", 0.3)
    fake.endpoint_delay = 90
    async with running(channel(fake, recorder)):
        await until(lambda: fake.counts["endpoint"] >= 2)
        fake.endpoint_delay = 0
        monkeypatch.setattr("channels.calls.TRY_SECONDS", 20.0)
        await fake.wait_connected()


async def test_a_server_that_closes_at_once_is_not_hammered(
    fake: FakeFeishu, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectFailed, "pauses", Pauses(0.025, 60.0))

    async def flap() -> None:
        while True:
            await fake.wait_connected()
            await fake.drop()

    flapping = asyncio.create_task(flap())
    begun = time.monotonic()
    async with running(channel(fake, recorder)):
        await until(lambda: fake.counts["ws"] >= 4)
        assert time.monotonic() - begun > 0.5 * (0.025 + 0.05 + 0.1)
        flapping.cancel()


async def test_too_many_connections_is_named(
    fake: FakeFeishu, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    fake.max_connections = 0
    async with running(channel(fake, recorder)) as feishu:
        await until(lambda: "上限" in feishu.health().detail)
    for secret in ("access_key", "ticket=", fake.app_secret):
        assert secret not in caplog.text


async def test_neither_address_nor_secret_is_logged(
    fake: FakeFeishu, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with running(channel(fake, recorder)):
        await fake.wait_connected()
        await fake.push(message_event("geheimer Text"))
        await fake.drop(abort=True)
        await until(lambda: fake.counts["ws"] == 2)
    assert "feishu_connected" in caplog.text
    for secret in ("access_key", "ticket", fake.app_secret, "geheimer"):
        assert secret not in caplog.text


async def test_a_silent_server_is_noticed(
    fake: FakeFeishu, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert long_connection.SILENCE_SECONDS == 5
    monkeypatch.setattr(long_connection, "SILENCE_SECONDS", 0.2)
    fake.pong = False
    fake.client_config = {**fake.client_config, "PingInterval": 1}
    started = time.monotonic()
    async with running(channel(fake, recorder)):
        await fake.wait_connected()
        await until(lambda: fake.counts["ws"] == 2)
        assert time.monotonic() - started > 2.0, "2 x PingInterval, and a moment"
        assert fake.counts["ping"] >= 2


async def test_a_pong_changes_the_interval_at_once(fake: FakeFeishu, recorder: Recorder) -> None:
    fake.client_config = {**fake.client_config, "PingInterval": 120}
    async with running(channel(fake, recorder)):
        await fake.wait_connected()
        await until(lambda: fake.counts["ping"] == 1)
        config = json.dumps({"PingInterval": 1}).encode()
        fake.client_config = {**fake.client_config, "PingInterval": 1}
        await fake.send_raw(Frame(method=CONTROL, headers=(("type", "pong"),), payload=config).encode())
        await until(lambda: fake.counts["ping"] >= 3, timeout=60)


async def test_stopping_is_quick_and_what_is_under_way_is_acknowledged(fake: FakeFeishu, recorder: Recorder) -> None:
    feishu = channel(fake, recorder)
    task = asyncio.create_task(feishu.run())
    await fake.wait_connected()
    recorder.delay = 0.2
    pushed = asyncio.create_task(fake.push(message_event("zuletzt")))
    await until(lambda: recorder.asked)
    before = time.monotonic()
    await feishu.stop_receiving()
    assert time.monotonic() - before < 20
    await asyncio.wait_for(task, 30)
    ack = await pushed
    assert ack is not None
    assert ack.code == 200
    await until(lambda: not fake.connections)
    await feishu.close()


@pytest.mark.parametrize("state", ["never run", "endpoint frozen", "waiting", "store stuck"])
async def test_stopping_is_quick_in_every_state(fake: FakeFeishu, recorder: Recorder, state: str) -> None:
    if state == "endpoint frozen":
        fake.endpoint_delay = 90
    if state == "waiting":
        fake.endpoint_error = (200, 514, "auth failed")
    feishu = channel(fake, recorder)
    task = asyncio.create_task(feishu.run()) if state != "never run" else None
    pushed = None
    if state == "store stuck":
        recorder.delay = 90
        await fake.wait_connected()
        pushed = asyncio.create_task(fake.push(message_event("x"), timeout=2.0))
        await until(lambda: recorder.asked)
    await asyncio.sleep(0.15)
    before = time.monotonic()
    await feishu.stop_receiving()
    await feishu.close()
    assert time.monotonic() - before < 20
    if task:
        await asyncio.wait_for(task, 30)
    if pushed:
        assert await pushed is None, "no acknowledgement: the platform delivers it again"
    fake.endpoint_delay = 0


async def test_cancelling_run_closes_the_socket(fake: FakeFeishu, recorder: Recorder) -> None:
    feishu = channel(fake, recorder)
    task = asyncio.create_task(feishu.run())
    await fake.wait_connected()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not fake.connections)
    await feishu.close()


def chunk(key: str, place: int, total: int, payload: bytes = b"x") -> Frame:
    return Frame(method=DATA, headers=(("message_id", key), ("sum", str(total)), ("seq", str(place))), payload=payload)


def test_chunks_are_forgotten_after_a_while() -> None:
    chunks = Chunks(ttl=5)
    assert chunks.add(chunk("a", 0, 2, b"A"), 0) is None
    assert chunks.add(chunk("b", 0, 3), 4) is None
    assert chunks.add(chunk("a", 1, 2, b"B"), 5) == b"AB"
    assert chunks.add(chunk("b", 1, 3), 9) is None
    assert chunks.add(chunk("c", 0, 2), 14.5) is None
    assert len(chunks) == 1
    assert chunks.add(chunk("b", 2, 3), 14.5) is None, "too late: two of three are gone"


def test_an_event_of_too_many_frames_is_dropped() -> None:
    chunks = Chunks()
    assert chunks.add(chunk("a", 0, 1025), 0) is None
    assert len(chunks) == 0
    assert chunks.add(chunk("b", 0, 1024), 0) is None
    assert len(chunks) == 1


def test_chunks_hold_a_bounded_amount() -> None:
    chunks = Chunks(most_bytes=1000)
    for number in range(100):
        assert chunks.add(chunk(f"m{number}", 0, 2, b"x" * 300), 0) is None
    assert len(chunks) == 3
    assert chunks.add(chunk("m99", 1, 2, b"y"), 0) == b"x" * 300 + b"y"
    for number in range(3000):
        chunks.add(chunk(f"e{number}", 0, 2, b""), 0)
    assert len(chunks) <= 1024
