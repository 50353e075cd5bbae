"""The webhook through real sockets: challenge, authenticity, freshness, size, repeats, closing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from channels.feishu.channel import FeishuChannel
from tests.channels.feishu_recorder import KEY, TOKEN, Recorder, channel, settings
from tests.platforms.feishu_server import FakeFeishu, encrypt, mention, message_event, sign
from tests.waiting import until

CHALLENGE = {"challenge": 'c-"0001\\', "token": TOKEN, "type": "url_verification"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu() as server:
        yield server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def feishu(fake: FakeFeishu, recorder: Recorder) -> AsyncIterator[FeishuChannel]:
    made = channel(fake, recorder, "webhook")
    yield made
    await made.close()


@pytest.fixture
async def url(feishu: FeishuChannel) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 19)
    for route in feishu.routes():
        app.router.add_route(route.method, route.path, route.handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/feishu"
    await runner.cleanup()


async def test_a_message_is_stored_and_answered_with_200(fake: FakeFeishu, recorder: Recorder, url: str) -> None:
    status, body, _ = await fake.post_webhook(url, message_event("你好", message_id="om_1"), encrypt_key=KEY)
    assert (status, json.loads(body)) == (200, {})
    assert recorder.texts == ["你好"]


async def test_the_answer_waits_for_the_store(fake: FakeFeishu, recorder: Recorder, url: str) -> None:
    recorder.delay = 0.2
    _, _, took = await fake.post_webhook(url, message_event("你好"), encrypt_key=KEY)
    assert took >= 0.2


async def test_an_exact_repeat_is_answered_200_again(fake: FakeFeishu, recorder: Recorder, url: str) -> None:
    event, now = message_event("你好"), str(int(time.time()))
    body = json.dumps({"encrypt": encrypt(KEY, json.dumps(event))}).encode()
    for _ in range(3):
        status, _, _ = await fake.post_webhook(
            url, {}, body=body, timestamp=now, nonce="n1", signature=sign(now, "n1", KEY, body)
        )
        assert status == 200
    assert (len(recorder.messages), recorder.duplicates) == (1, 2)


async def test_the_challenge_needs_the_token_and_the_key_only(fake: FakeFeishu, url: str) -> None:
    for headers in ({}, {"X-Lark-Signature": "", "X-Lark-Request-Nonce": ""}):
        status, body, took = await fake.post_webhook(url, CHALLENGE, encrypt_key=KEY, headers=headers)
        assert (status, json.loads(body)) == (200, {"challenge": CHALLENGE["challenge"]})
        assert took < 15
    for refused in ({**CHALLENGE, "token": "wrong"}, {**CHALLENGE, "token": ""}, {**CHALLENGE, "token": None}):
        status, body, _ = await fake.post_webhook(url, refused, encrypt_key=KEY)
        assert (status, body) == (403, "")
    status, _, _ = await fake.post_webhook(url, CHALLENGE, signature="0" * 64, encrypt_key=KEY)
    assert status == 401
    status, _, _ = await fake.post_webhook(url, CHALLENGE)
    assert 400 <= status < 500, "plain though a key is set"


def aged(seconds: float) -> str:
    return str(int(time.time() - seconds))


@pytest.mark.parametrize(
    ("how", "want"),
    [
        ({"signature": "0" * 64}, 401),
        ({"signature": "é" * 64}, 401),
        ({"encrypt_key": "wrong-key"}, 401),
        ({"encrypt_key": ""}, 401),
        ({"timestamp": "1"}, 401),
        ({"timestamp": "0"}, 401),
        ({"timestamp": "x"}, 401),
        ({"timestamp": aged(9 * 3600)}, 401),
        ({"timestamp": aged(-9 * 3600)}, 401),
        ({"headers": {"X-Lark-Signature": ""}}, 401),
        ({"headers": {"X-Lark-Request-Nonce": ""}}, 401),
        ({"headers": {"X-Lark-Request-Timestamp": ""}}, 401),
    ],
)
async def test_what_is_not_authentic_is_refused(
    fake: FakeFeishu, recorder: Recorder, url: str, how: dict, want: int
) -> None:
    status, body, _ = await fake.post_webhook(url, message_event("伪造"), **{"encrypt_key": KEY, **how})
    assert (status, body) == (want, "")
    assert not recorder.messages


async def signed(fake: FakeFeishu, url: str, body: bytes) -> int:
    now = str(int(time.time()))
    status, text, _ = await fake.post_webhook(
        url, {}, body=body, timestamp=now, nonce="n", signature=sign(now, "n", KEY, body)
    )
    assert text == ""
    return int(status)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", 400),
        (b"{not json", 400),
        (b"[]", 400),
        (b'{"encrypt": 7}', 400),
        (json.dumps(message_event("plain")).encode(), 400),
        (b'{"encrypt": "%%%"}', 403),
        (b'{"encrypt": "AAAA"}', 403),
        (json.dumps({"encrypt": encrypt("other", "{}")}).encode(), 403),
        (json.dumps({"encrypt": encrypt(KEY, "[]")}).encode(), 403),
        (json.dumps({"encrypt": encrypt(KEY, "{}")}).encode(), 403),
        (json.dumps({"encrypt": encrypt(KEY, json.dumps(message_event("x", token="wrong")))}).encode(), 403),
        (json.dumps({"encrypt": encrypt(KEY, json.dumps(message_event("x", app_id="cli_other")))}).encode(), 403),
    ],
    ids=[
        "nothing",
        "no json",
        "a list",
        "a number",
        "plain",
        "no base64",
        "short",
        "another key",
        "a list inside",
        "no token",
        "wrong token",
        "another app",
    ],
)
async def test_signed_bodies_that_are_wrong_inside(
    fake: FakeFeishu, recorder: Recorder, url: str, body: bytes, want: int
) -> None:
    assert await signed(fake, url, body) == want
    assert not recorder.messages


async def test_a_late_delivery_is_taken(fake: FakeFeishu, recorder: Recorder, url: str) -> None:
    status, _, _ = await fake.post_webhook(url, message_event("晚"), encrypt_key=KEY, timestamp=aged(7.2 * 3600))
    assert status == 200
    assert recorder.texts == ["晚"]


async def test_a_body_over_the_limit_is_413(fake: FakeFeishu, url: str) -> None:
    status, body, _ = await fake.post_webhook(url, {}, body=b"x" * (1 << 20))
    assert (status, body) == (413, "")


async def test_events_nobody_wants_are_200(fake: FakeFeishu, recorder: Recorder, url: str) -> None:
    for change in ({"event_type": "im.message.reaction.created_v1"}, {"event_type": ""}, {"event_type": None}):
        event = message_event("x")
        event["header"] |= change
        status, _, _ = await fake.post_webhook(url, event, encrypt_key=KEY)
        assert status == 200
    old = {"uuid": "u", "token": TOKEN, "type": "event_callback", "event": {"app_id": "cli_test", "type": "message"}}
    status, _, _ = await fake.post_webhook(url, old, encrypt_key=KEY)
    assert status == 200
    assert not recorder.messages


async def test_a_closed_or_failing_gateway_is_503_without_detail(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder, url: str
) -> None:
    recorder.closed = True
    assert (await fake.post_webhook(url, message_event("x"), encrypt_key=KEY))[:2] == (503, "")
    recorder.closed, recorder.error = False, ValueError("token sk-test-123")
    assert (await fake.post_webhook(url, message_event("x"), encrypt_key=KEY))[:2] == (503, "")
    recorder.error = None
    assert (await fake.post_webhook(url, message_event("x"), encrypt_key=KEY))[0] == 200
    await feishu.stop_receiving()
    assert (await fake.post_webhook(url, message_event("y"), encrypt_key=KEY))[0] == 503
    assert recorder.texts == ["x"]


async def test_groups_before_and_after_the_own_id_is_known(
    fake: FakeFeishu, feishu: FeishuChannel, recorder: Recorder, url: str
) -> None:
    async def say(text: str, *mentions: dict) -> None:
        event = message_event(text, chat_type="group", mentions=list(mentions))
        assert (await fake.post_webhook(url, event, encrypt_key=KEY))[0] == 200

    other = mention(1, "ou_other_bot", "别的", "bot")
    await say("@_user_1 早", mention(1, "ou_bot", "助手", "bot"))
    fake.faults.append(("/bot/v3/info", 500, 1500, ""))
    await asyncio.wait_for(feishu.run(), 30)
    assert feishu.health().ok
    await say("@_user_1 不是我", other)
    await say("@_user_1 晚", mention(1, "ou_bot", "助手", "bot"))
    assert recorder.texts == ["早", "晚"]
    feishu.apply(settings(fake, "webhook", **{"group-policy": "all"}))
    await say("大家好")
    assert recorder.texts[-1] == "大家好"


async def test_the_log_names_the_setting_and_no_secret(
    fake: FakeFeishu, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await signed(fake, url, json.dumps({"encrypt": encrypt("other", "{}")}).encode())
    await fake.post_webhook(url, {**CHALLENGE, "token": "wrong"}, encrypt_key=KEY)
    assert "encrypt-key" in caplog.text
    assert "verification-token" in caplog.text
    assert KEY not in caplog.text
    assert TOKEN not in caplog.text


def test_routes_follow_mode_and_name(fake: FakeFeishu, recorder: Recorder) -> None:
    assert channel(fake, recorder).routes() == ()
    (route,) = FeishuChannel("feishu-hr", settings(fake, "webhook"), recorder.accept).routes()
    assert (route.method, route.path) == ("POST", "/feishu/feishu-hr")


async def test_until_is_no_tautology() -> None:
    with pytest.raises(AssertionError):
        await until(lambda: False, 0.05)
