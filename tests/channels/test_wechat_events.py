"""Pushes as messages: each type, each event, ids, what has no text; the XML reader on anything."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import InboundMessage, Notice
from channels.wechat.events import Account, read_message
from channels.xml_values import MOST_BYTES, BadXml, cdata, legal, read_fields
from memory.conversation import LaneKey
from tests.platforms.wechat_platform import message_xml

ACCOUNT = Account("wechat", "wx1")


def read(kind: str = "text", user: str = "oA", **fields: object) -> InboundMessage | None:
    return read_message(read_fields(message_xml(user, kind, **{"MsgId": 7, **fields}).encode()), ACCOUNT)


def only(kind: str = "text", **fields: object) -> InboundMessage:
    message = read(kind, **fields)
    assert message is not None
    return message


def test_a_text_with_all_its_ids() -> None:
    message = only(user="oÜ:/=好", Content=" 帮我推荐一份工作 ")
    assert message.id == "oÜ:/=好:7"
    assert (message.user, message.platform_user) == ("ueyvbddhftr73", "oÜ:/=好"), "the golden value"
    assert message.lane == LaneKey("ueyvbddhftr73", "wechat", message.lane.session, False)
    assert (message.account, message.entry, message.text, message.notice) == ("wx1", "wechat", "帮我推荐一份工作", None)


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("voice", {"Recognition": "推荐一份工作", "MediaId": "m", "Format": "amr"}, "推荐一份工作"),
        ("text", {"Content": "👍"}, "👍"),
        ("text", {"Content": "/new"}, "/new"),
        (
            "location",
            {"Location_X": "31.2", "Location_Y": "121.4", "Scale": 20, "Label": "上海市"},
            "[位置] 上海市 (31.2, 121.4)",
        ),
        ("location", {"Label": "上海市"}, "[位置] 上海市"),
        (
            "link",
            {"Title": "岗位\n列表", "Description": "介绍", "Url": "https://e.cn/1"},
            "[链接] 岗位 列表 介绍 https://e.cn/1",
        ),
    ],
)
def test_what_has_words_is_talk(kind: str, fields: Mapping[str, object], text: str) -> None:
    message = only(kind, **fields)
    assert (message.text, message.notice) == (text, None)


@pytest.mark.parametrize("content", ["", "\u200b\u2060\ufeff", "\u3000", "\u3164", " \n ", None])
def test_a_text_without_anything_visible_is_empty(content: str | None) -> None:
    assert only(Content=content).notice is Notice.EMPTY


@pytest.mark.parametrize(
    ("kind", "fields", "marker"),
    [
        ("image", {"PicUrl": "http://x/y", "MediaId": "secret-media-id"}, "[图片]"),
        ("voice", {"MediaId": "secret-media-id", "Recognition": ""}, "[语音]"),
        ("voice", {"MediaId": "secret-media-id", "Recognition": "\u200b"}, "[语音]"),
        ("voice", {"MediaId": "secret-media-id"}, "[语音]"),
        ("video", {"MediaId": "secret-media-id"}, "[视频]"),
        ("shortvideo", {"MediaId": "secret-media-id"}, "[视频]"),
        ("file", {"Title": "简历.pdf", "FileKey": "secret-media-id"}, "[文件: 简历.pdf]"),
        ("miniprogrampage", {"Title": "招聘", "AppId": "x"}, "[小程序: 招聘]"),
        ("location", {}, "[位置]"),
        ("brand_new", {}, "[不支持的消息]"),
    ],
)
def test_what_has_no_words_is_unsupported(kind: str, fields: Mapping[str, object], marker: str) -> None:
    message = only(kind, **fields)
    assert (message.text, message.notice) == (marker, Notice.UNSUPPORTED)


def test_a_new_follower_is_welcomed_and_a_menu_key_is_a_text() -> None:
    welcome = only("event", Event="subscribe", EventKey="qrscene_12", CreateTime=123, MsgId=None)
    assert (welcome.notice, welcome.id) == (Notice.WELCOME, "oA:123:subscribe:qrscene_12")
    click = only("event", Event="CLICK", EventKey="推荐岗位", CreateTime=123, MsgId=None)
    assert (click.text, click.notice, click.id) == ("推荐岗位", None, "oA:123:CLICK:推荐岗位")
    assert click.reply == {"event": "CLICK"}


@pytest.mark.parametrize("event", ["unsubscribe", "SCAN", "LOCATION", "VIEW", "scancode_push", "kf_create_session", ""])
def test_other_events_are_nobodys(event: str) -> None:
    assert read("event", Event=event, EventKey="k") is None


def test_ids_tell_messages_apart_and_repeats_together() -> None:
    same = [only(Content="a", MsgId=1).id, only(Content="a", MsgId=1).id]
    others = [
        only(Content="a", MsgId=2).id,
        only(Content="a", MsgId=1, user="oB").id,
        only(Content="a", MsgId="not-a-number").id,
        only(Content="a", MsgId=None, CreateTime=5).id,
        only("event", Event="CLICK", EventKey="a", CreateTime=5).id,
        only("event", Event="CLICK", EventKey="b", CreateTime=5).id,
    ]
    assert len(set(same)) == 1
    assert len({*same, *others}) == 7


@pytest.mark.parametrize("user", ["", " ", "a\x7fb", "好" * 201])
def test_impossible_senders_are_nobody(user: str) -> None:
    assert read(user=user, Content="x") is None


def test_another_account_is_another_person() -> None:
    fields = read_fields(message_xml("oA", Content="x", MsgId=1).encode())
    one, other = (read_message(fields, Account("wechat", account)) for account in ("wx1", "wx2"))
    assert one is not None
    assert other is not None
    assert one.user != other.user
    assert one.lane.session != other.lane.session


names = st.sampled_from(["FromUserName", "MsgType", "Event", "EventKey", "Content", "MsgId", "Recognition", "Label"])


@given(st.dictionaries(names, st.text(max_size=30) | st.sampled_from(["text", "event", "CLICK", "voice", "location"])))
def test_any_fields_are_read_without_an_exception(fields: dict[str, str]) -> None:
    message = read_message(fields, ACCOUNT)
    assert message is None or message.id.startswith(f"{message.platform_user}:")


# ---- XML


@given(st.text())
def test_what_goes_out_as_cdata_comes_back(text: str) -> None:
    data = f"<xml><a>{cdata(text)}</a></xml>".encode()
    assert read_fields(data)["a"] == legal(text).replace("\r\n", "\n").replace("\r", "\n")


@given(st.binary(max_size=300) | st.text(alphabet="<>/axml![]CDAT&;\x00 ", max_size=60).map(str.encode))
def test_any_bytes_are_fields_or_bad_xml(data: bytes) -> None:
    try:
        fields = read_fields(data)
    except BadXml:
        return
    assert all(isinstance(value, str) for value in fields.values())


def test_a_declared_encoding_and_a_byte_order_mark_change_nothing() -> None:
    body = '<?xml version="1.0" encoding="GBK"?><xml><a>好</a></xml>'.encode()
    assert read_fields(body) == read_fields(b"\xef\xbb\xbf" + body[body.index(b"<xml") :]) == {"a": "好"}


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE xml><xml><a>1</a></xml>",
        b'<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><xml><a>&c;</a></xml>',
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xml><a>&a;</a></xml>',
        b"<xml><a>1</a><a>2</a></xml>",
        b"<xml>" + b"<a>" * 20 + b"</a>" * 20 + b"</xml>",
        b"<xml><a>" + b"x" * MOST_BYTES + b"</a></xml>",
        b"<xml><a>\xff</a></xml>",
        b"",
    ],
)
def test_dangerous_or_broken_documents_are_refused(data: bytes) -> None:
    with pytest.raises(BadXml):
        read_fields(data)


def test_nested_texts_belong_to_no_field() -> None:
    assert read_fields(b"<xml><a>1<b>2</b>3</a><c><d>4</d></c></xml>") == {"a": "13", "c": ""}
