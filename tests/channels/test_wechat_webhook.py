"""The callback through real sockets: verification, authenticity, what is malformed, both modes and formats, secrets."""

import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from channels.channel import Route
from channels.message import InboundMessage
from channels.wechat.channel import WeChatChannel
from gateway.config.texts import Texts
from tests.channels.wechat_stage import Stage, settings, staged
from tests.platforms.wechat_platform import (
    AES_KEY,
    APP_ID,
    APP_SECRET,
    TOKEN,
    WeChatPlatform,
    decrypt,
    encrypt,
    envelope,
    message_xml,
    sign,
)


@pytest.fixture
async def platform() -> AsyncIterator[WeChatPlatform]:
    async with WeChatPlatform() as started:
        yield started


@pytest.fixture
async def stage(platform: WeChatPlatform) -> AsyncIterator[Stage]:
    async with staged(platform, answering()) as running:
        yield running


def answering(text: str = "") -> Stage:
    """Each message is answered at once."""
    stage = Stage()

    async def react(message: InboundMessage) -> None:
        await stage.answer(message, text or f"答复：{message.text}")

    stage.react = react
    return stage


XML = message_xml("oA", Content="你好", MsgId=1)


async def get(platform: WeChatPlatform, query: Any) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(platform.url, params=query) as response:
        return response.status, await response.text(), response.content_type


# ---- verification


async def test_verification_echoes_the_very_text(platform: WeChatPlatform, stage: Stage) -> None:
    for echo in ("4375120948345356249", "<b>&\"' ", "P9nAzCzyDtyTWESHep1vC5X9xho/qYX3+A=="):
        assert await get(platform, platform.query() | {"echostr": echo}) == (200, echo, "text/plain")


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "0" * 40},
        {"signature": ""},
        {"timestamp": "1700000000"},
        {"nonce": ""},
        {"echostr": None},
        {"signature": sign("", "1", "2")},
    ],
)
async def test_a_forged_verification_is_refused(platform: WeChatPlatform, stage: Stage, change: dict[str, Any]) -> None:
    query = platform.query() | {"echostr": "e"} | change
    status, text, _ = await get(platform, {name: value for name, value in query.items() if value is not None})
    assert (status, text) == (403, "forbidden")


# ---- authenticity


async def refused(platform: WeChatPlatform, body: str | bytes, query: Any) -> bool:
    delivered = await platform.post(body, query)
    return (delivered.status, delivered.raw) == (403, "forbidden")


async def test_only_msg_signature_counts_in_safe_mode(platform: WeChatPlatform, stage: Stage) -> None:
    encrypted = encrypt(XML)
    body, good = envelope(encrypted), platform.query(encrypted)
    without = {name: value for name, value in good.items() if name != "msg_signature"}
    assert await refused(platform, body, without)
    assert await refused(platform, body, good | {"msg_signature": good["signature"]})
    assert await refused(platform, body, good | {"msg_signature": "0" * 40})
    assert await refused(platform, XML, platform.query()), "plain, though safe mode is configured"
    assert stage.messages == []
    assert (await platform.post(body, good | {"signature": "0" * 40})).text == "答复：你好"
    assert (await platform.post(body, {k: v for k, v in good.items() if k != "encrypt_type"})).text == "答复：你好"


async def test_a_digit_moved_from_nonce_to_timestamp_is_refused(platform: WeChatPlatform, stage: Stage) -> None:
    stamp = str(int(time.time()))
    good = platform.query(stamp=stamp, nonce="9514711492") | {"echostr": "e"}
    moved = good | {"timestamp": stamp + "9", "nonce": "514711492"}
    assert sign(TOKEN, moved["timestamp"], moved["nonce"]) == good["signature"], "by its signature it would pass"
    assert (await get(platform, good))[0] == 200
    assert (await get(platform, moved))[0] == 403


@pytest.mark.parametrize("name", ["timestamp", "nonce", "msg_signature", "signature", "encrypt_type"])
async def test_a_parameter_given_twice_is_refused(platform: WeChatPlatform, stage: Stage, name: str) -> None:
    encrypted = encrypt(XML)
    query = platform.query(encrypted)
    assert await refused(platform, envelope(encrypted), [*query.items(), (name, query[name])])


@pytest.mark.parametrize("age", [601, -601, 10**8])
async def test_stale_and_future_times_are_refused(platform: WeChatPlatform, stage: Stage, age: int) -> None:
    encrypted = encrypt(XML)
    old = platform.query(encrypted, stamp=str(int(time.time()) - age))
    assert await refused(platform, envelope(encrypted), old)
    near = platform.query(encrypted, stamp=str(int(time.time()) - 590))
    assert (await platform.post(envelope(encrypted), near)).status == 200


@pytest.mark.parametrize(
    "encrypted",
    [
        encrypt(XML, receiver="wx_another_account"),
        encrypt(XML, receiver=""),
        encrypt(XML, key="x" * 43),
        "@@@@",
        "AAAA",
        "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4",
    ],
)
async def test_well_signed_but_not_for_us_is_refused(platform: WeChatPlatform, stage: Stage, encrypted: str) -> None:
    assert await refused(platform, envelope(encrypted), platform.query(encrypted))
    assert (await platform.deliver(XML)).text == "答复：你好", "the next good one works"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<xml>",
        b"<xml/>",
        b"{}",
        b"{",
        b"\xff\xfe",
        b"<!DOCTYPE xml><xml><Encrypt>x</Encrypt></xml>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><xml><Encrypt>&a;</Encrypt></xml>',
        b"<xml><Encrypt>a</Encrypt><Encrypt>b</Encrypt></xml>",
        b"<xml>" + b"<a>" * 50 + b"</a>" * 50 + b"</xml>",
    ],
)
async def test_what_is_no_envelope_is_refused(platform: WeChatPlatform, stage: Stage, body: bytes) -> None:
    assert await refused(platform, body, platform.query("x"))


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(platform: WeChatPlatform, stage: Stage) -> None:
    body = "<xml>" + " " * (256 * 1024) + "</xml>"
    assert (await platform.post(body, platform.query("x"))).status == 413


# ---- authentic, but odd


@pytest.mark.parametrize(
    "xml",
    [
        "no xml",
        "<xml/>",
        "<xml><MsgType>text</MsgType></xml>",
        message_xml("", Content="x", MsgId=1),
        message_xml("oA", Content="x", MsgId=1).replace("<Content>", "<Content>a</Content><Content>"),
        message_xml("oA", "event", Event="VIEW", EventKey="http://x/"),
        message_xml("oA", "event", Event="unsubscribe", EventKey=""),
        message_xml("oA", "event", Event="LOCATION", Latitude="1", Longitude="2"),
        message_xml("oA", "event", Event="TEMPLATESENDJOBFINISH", MsgID=200, Status="success"),
        message_xml("oA", "event", Event="CLICK", EventKey=" "),
        message_xml("oA", "event"),
        '<!DOCTYPE xml [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + XML,
        b"<xml>\xff</xml>",
    ],
)
async def test_what_nobody_answers_is_success(platform: WeChatPlatform, stage: Stage, xml: str | bytes) -> None:
    delivered = await platform.deliver(xml)
    assert (delivered.status, delivered.raw) == (200, "success")
    assert stage.messages == []


async def test_control_characters_do_no_harm_on_the_way_in(platform: WeChatPlatform, stage: Stage) -> None:
    xml = XML.replace("你好", "你好\x08，请看\x00简历 ]]]]><![CDATA[> &amp; <b>")
    assert (await platform.deliver(xml)).text == "答复：你好，请看简历 ]]> &amp; <b>"


@pytest.mark.parametrize("safe", [True, False])
async def test_no_answer_breaks_the_reply(safe: bool) -> None:
    text = "a]]></Content><MsgType><![CDATA[image]]></MsgType>b\x08\x00\ud800 & ￾ ok]]>done 😀"
    async with WeChatPlatform(safe=safe) as platform, staged(platform, answering(text)):
        shown = (await platform.deliver(XML)).text
    assert shown.replace("\ufffd", "") == "a]]></Content><MsgType><![CDATA[image]]></MsgType>b &  ok]]>done 😀"


async def test_plain_mode_checks_the_other_signature(caplog: pytest.LogCaptureFixture) -> None:
    async with WeChatPlatform(safe=False) as platform, staged(platform, answering()) as stage:
        assert [record.levelno for record in caplog.records] == [logging.WARNING], "an admin should know"
        assert (await platform.deliver(XML)).text == "答复：你好"
        assert await refused(platform, XML, platform.query() | {"signature": "0" * 40})
        only = platform.query(encrypt(XML))
        assert (await platform.post(envelope(encrypt(XML)), only)).raw == "success", "encrypted, though plain is set"
        assert len(stage.messages) == 1


async def test_what_stands_beside_the_ciphertext_is_not_believed(platform: WeChatPlatform, stage: Stage) -> None:
    encrypted = encrypt(XML)
    both = message_xml("oEvil", Content="假的", MsgId=2).replace("</xml>", f"<Encrypt>{encrypted}</Encrypt></xml>")
    assert (await platform.post(both, platform.query(encrypted))).text == "答复：你好"
    assert [message.platform_user for message in stage.messages] == ["oA"]


async def test_json_is_answered_in_json(platform: WeChatPlatform, stage: Stage) -> None:
    message = {"ToUserName": "gh_1", "FromUserName": "oA", "CreateTime": 1, "MsgType": "text", "Content": "你好"}
    encrypted = encrypt(json.dumps(message | {"MsgId": 7000000000000000001, "nested": {"Content": "x"}}))
    platform._content = lambda raw: raw  # type: ignore[method-assign]
    reply = json.loads((await platform.post(json.dumps({"Encrypt": encrypted}), platform.query(encrypted))).text)
    signed = sign(TOKEN, str(reply["TimeStamp"]), reply["Nonce"], reply["Encrypt"])
    inner, receiver = decrypt(reply["Encrypt"])
    assert (reply["MsgSignature"], receiver) == (signed, APP_ID)
    shown = json.loads(inner)
    assert (shown["ToUserName"], shown["FromUserName"], shown["Content"]) == ("oA", "gh_1", "答复：你好")
    assert stage.messages[0].id == "oA:7000000000000000001"


# ---- around


async def test_secrets_reach_no_log_and_no_repr(
    platform: WeChatPlatform, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    encrypted = encrypt(XML)
    await platform.deliver(XML)
    await platform.post(envelope(encrypted), platform.query(encrypted) | {"msg_signature": "x"})
    await platform.post(envelope(encrypt(XML, key="x" * 43)), platform.query(encrypt(XML)))
    shown = caplog.text + repr(settings()) + repr(vars(stage.channel))
    for secret in (TOKEN, APP_SECRET, AES_KEY):
        assert secret not in shown
    assert "你好" not in caplog.text


@pytest.mark.parametrize(("name", "path"), [("wechat", "/wechat"), ("wechat-hr", "/wechat/wechat-hr")])
async def test_routes(name: str, path: str) -> None:
    stage = Stage()
    channel = WeChatChannel(name, settings(), stage.accept, stage, Texts().get)
    assert [(route.method, route.path) for route in channel.routes()] == [("GET", path), ("POST", path)]
    assert all(isinstance(route, Route) for route in channel.routes())
    assert channel.health().ok
    await channel.close()
