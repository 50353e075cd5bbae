"""HTTP mode: what is proved authentic is stored and answered at once; everything else is refused."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import EntrySettings
from channels.dingtalk.callback import refusal, signature
from channels.dingtalk.channel import DingTalkChannel
from gateway.server import Listener, build_public
from tests.channels.dingtalk_recorder import channel, settings
from tests.channels.feishu_recorder import Recorder
from tests.platforms.dingtalk_gateway import FakeDingTalk, chat_data, signed_headers

DING = FakeDingTalk()
SECRET = DING.client_secret
MOST = 4096


class Site:
    """The channel's route on a real listener."""

    def __init__(self, dingtalk: DingTalkChannel, recorder: Recorder) -> None:
        self.dingtalk, self.recorder = dingtalk, recorder
        self.listener = Listener(build_public(dingtalk.routes(), lambda: (200, "ok"), MOST), "127.0.0.1", 0)

    async def post(self, body: object, headers: dict[str, str] | None = None, path: str = "/dingtalk") -> int:
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        url = f"http://127.0.0.1:{self.listener.port}{path}"
        sent = signed_headers(SECRET) if headers is None else headers
        async with aiohttp.ClientSession() as session, session.post(url, data=data, headers=sent) as response:
            assert not (await response.text()).strip("{}") or response.status >= 400
            return response.status


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    recorder = Recorder()
    made = Site(channel(DING, recorder, "http"), recorder)
    await made.listener.start()
    yield made
    await made.listener.stop()
    await made.dingtalk.close()


def test_the_signature_is_that_of_the_documentation() -> None:
    assert signature("1577262236757", "this is a secret") == "DJrE6qdyVGCQz9z5r2MDuNcNAhwYnuAkyj13cx169CA="


async def test_a_signed_message_is_stored_once(site: Site) -> None:
    data = chat_data("帮我优化简历", base=DING.base, kind="2")
    assert await site.post(data) == 200
    assert await site.post(data) == 200
    assert site.recorder.texts == ["帮我优化简历"]
    assert site.recorder.duplicates == 1


def changed(**over: str) -> dict[str, str]:
    return {key: value for key, value in {**signed_headers(SECRET), **over}.items() if value != "-"}


@pytest.mark.parametrize(
    "headers",
    [
        changed(sign="AAAA"),
        changed(sign="-"),
        changed(timestamp="-"),
        changed(timestamp="1"),
        changed(timestamp="١٥٧٧٢٦٢٢٣٦٧٥٧"),
        changed(timestamp="soon"),
        changed(timestamp="-1577262236757"),
        changed(timestamp="9" * 40),
        changed(sign="é"),
        signed_headers("wrong-secret"),
        signed_headers(SECRET, time.time() - 86400),
        signed_headers(SECRET, time.time() + 86400),
        {"Content-Type": "application/json"},
    ],
)
async def test_what_is_not_authentic_is_refused(site: Site, headers: dict[str, str], caplog: Any) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    assert await site.post(chat_data("geheim", base=DING.base), headers) == 403
    assert not site.recorder.messages
    assert "dingtalk_callback_refused" in caplog.text
    for secret in ("geheim", SECRET, headers.get("sign", "-" * 9)):
        assert secret not in caplog.text


@given(st.text(max_size=20), st.text(max_size=60), st.floats(0, 4e9))
def test_no_header_raises(timestamp: str, sign: str, now: float) -> None:
    assert refusal(timestamp, sign, SECRET, now)


@pytest.mark.parametrize("age", [-3500, 0, 3500])
def test_an_hour_either_way_is_fresh(age: float) -> None:
    headers = signed_headers(SECRET, 1_760_000_000)
    assert not refusal(headers["timestamp"], headers["sign"], SECRET, 1_760_000_000 + age)


def test_a_secret_that_is_not_set_lets_nobody_in() -> None:
    headers = signed_headers("")
    assert refusal(headers["timestamp"], headers["sign"], "x", time.time())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 3000, b"{}", b'{"msgtype":"text"}'])
async def test_an_authentic_body_that_says_nothing_is_answered(site: Site, body: bytes) -> None:
    assert await site.post(body) == 200
    assert not site.recorder.messages


async def test_a_body_has_a_bound(site: Site) -> None:
    assert await site.post(b"x" * (MOST + 1)) == 413


async def test_what_is_not_stored_may_come_again(site: Site) -> None:
    data = chat_data(base=DING.base)
    site.recorder.closed = True
    assert await site.post(data) == 503
    site.recorder.closed, site.recorder.error = False, ValueError("disk full")
    assert await site.post(data) == 503
    site.recorder.error = None
    assert await site.post(data) == 200
    assert len(site.recorder.messages) == 1
    await site.dingtalk.stop_receiving()
    assert await site.post(chat_data(base=DING.base)) == 503


async def test_the_policy_changes_while_running(site: Site) -> None:
    site.dingtalk.apply(EntrySettings.model_validate({"group-policy": "off"}))
    assert await site.post(chat_data(base=DING.base, kind="2")) == 200
    assert not site.recorder.messages
    site.dingtalk.apply(EntrySettings.model_validate({"group-policy": "mention"}))
    assert await site.post(chat_data(base=DING.base, kind="2")) == 200
    assert len(site.recorder.messages) == 1


async def test_routes_and_run_of_the_modes() -> None:
    recorder = Recorder()
    http, stream = channel(DING, recorder, "http"), channel(DING, recorder, "stream")
    further = DingTalkChannel("ding-hr", settings(DING, "http"), recorder.accept)
    assert [(route.method, route.path) for route in http.routes()] == [("POST", "/dingtalk")]
    assert [route.path for route in further.routes()] == ["/dingtalk/ding-hr"]
    assert not stream.routes()
    await asyncio.wait_for(http.run(), 30)
    assert http.health().ok
    for each in (http, stream, further):
        await each.close()
