"""Robot messages as they are pushed, to what the gateway is handed; any other JSON to nothing, without an exception."""

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.dingtalk.robot_message import read_message
from channels.message import InboundMessage, Notice
from memory.conversation import session_id, user_id
from tests.channels.dingtalk_recorder import ROBOT, asked
from tests.platforms.dingtalk_gateway import ROBOT_ID, chat_data

BASE = "https://oapi.dingtalk.com"
OTHER = {"dingtalkId": "$:LWCP_v1:$other", "staffId": "staff002"}
ITSELF = {"dingtalkId": ROBOT_ID}


def read(policy: str = "mention", **over: object) -> InboundMessage | None:
    return read_message(chat_data(**{"base": BASE, **over}), replace(ROBOT, group_policy=policy))  # type: ignore[arg-type]


def content(msgtype: str, value: object, **over: object) -> InboundMessage:
    """A message of another kind than text."""
    return asked(None, msgtype=msgtype, content=value, **over)


def test_a_direct_message_becomes_a_lane_of_its_own() -> None:
    message = asked(
        "帮我优化简历",
        base=BASE,
        msgId="msg1",
        conversation="cid/A:b==",
        sessionWebhook=f"{BASE}/s",
        sessionWebhookExpiredTime=123,
    )
    assert (message.id, message.account, message.entry) == ("msg1", "dingfakeappkey", "dingtalk")
    assert message.platform_user == "staff001"
    assert message.user == message.lane.user == user_id("dingtalk", "dingfakeappkey", "staff001")
    assert message.lane.session == session_id("dingtalk", "dingfakeappkey", "cid/A:b==")
    assert not message.lane.group
    assert (message.text, message.name, message.notice) == ("帮我优化简历", "测试", None)
    assert message.reply == {
        "chat": "cid/A:b==",
        "robot": "dingfakeappkey",
        "staff": "staff001",
        "webhook": f"{BASE}/s",
        "webhook-ends": "123",
    }


@pytest.mark.parametrize("staff", [None, ""])
def test_an_outsider_is_known_by_the_sender_id(staff: str | None) -> None:
    message = asked(senderStaffId=staff, senderId="$:LWCP_v1:$Ab/Cd+Ef==")
    assert message.platform_user == "$:LWCP_v1:$Ab/Cd+Ef=="
    assert "staff" not in message.reply


def test_chats_whose_ids_end_alike_are_two_lanes() -> None:
    assert asked(conversation="cidAAAA/D2th61w=").lane != asked(conversation="cidBBBB/D2th61w=").lane
    assert asked(kind="1").lane != asked(kind="2").lane


def test_the_id_of_the_frame_stands_in_for_a_missing_message_id() -> None:
    message = read_message(chat_data("x", base=BASE, msgId=None), ROBOT, "frame-7")
    assert message is not None
    assert message.id == "frame-7"
    assert read_message(chat_data("x", base=BASE, msgId=None), ROBOT) is None


@pytest.mark.parametrize("kind", [2, "2", "3", None])
def test_whatever_is_not_a_direct_chat_is_a_group(kind: object) -> None:
    message = read(policy="all", conversationType=kind)
    assert message is not None
    assert message.lane.group
    direct = read(conversationType=1)
    assert direct is not None
    assert not direct.lane.group


@pytest.mark.parametrize(
    ("over", "addressed"),
    [
        ({}, True),
        ({"atUsers": [OTHER, ITSELF]}, True),
        ({"isInAtList": None, "atUsers": [OTHER, ITSELF]}, True),
        ({"isInAtList": None, "atUsers": None}, True),  # the platform pushes nothing else
        ({"isInAtList": False, "atUsers": []}, False),
        ({"isInAtList": False, "atUsers": [OTHER]}, False),
        ({"isInAtList": None, "atUsers": [OTHER]}, False),
        ({"isInAtList": None, "atUsers": [{"dingtalkId": ""}], "chatbotUserId": ""}, False),
        ({"isInAtList": False, "atUsers": None, "text": "@助手 你好"}, False),
        ({"isInAtList": False, "atUsers": None, "isAtAll": True}, False),
    ],
)
def test_who_is_addressed_in_a_group_is_decided_by_id(over: dict[str, object], addressed: bool) -> None:
    assert (read(kind="2", **over) is not None) == addressed
    assert read("off", kind="2", **over) is None
    assert read("all", kind="2", **over) is not None
    assert read("off", **over) is not None, "the policy is about groups"


@pytest.mark.parametrize(
    "over",
    [
        {"senderId": ROBOT_ID},
        {"senderId": ROBOT_ID, "senderStaffId": None},
        {"senderStaffId": "dingfakeappkey"},
        {"senderId": "otherrobot", "robotCode": "otherrobot"},
    ],
)
def test_robots_are_not_answered(over: dict[str, object]) -> None:
    assert read(**over) is None


@pytest.mark.parametrize("raw", [" 你好", "\u2005你好\u00a0", "\u200b 你好 \u200b", "\ufeff你好\n"])
def test_what_the_mention_leaves_behind_is_stripped(raw: str) -> None:
    assert asked(raw).text == "你好"


@pytest.mark.parametrize(
    "text", [{"content": text} for text in ("", " ", "\u2005", "\u200b\u00a0", None, 7)] + [{}, None, "x"]
)
def test_nothing_but_a_mention_is_empty(text: object) -> None:
    message = read_message({**chat_data(base=BASE), "text": text}, ROBOT)
    assert message is not None
    assert message.notice is Notice.EMPTY


def test_rich_text_keeps_its_pieces_in_order() -> None:
    pieces = [{"text": "看图 "}, {"type": "picture", "downloadCode": "dc1"}, {"text": "\n"}, {"text": "第二段"}]
    message = content("richText", {"richText": pieces})
    assert (message.text, message.notice) == ("看图 [图片]\n第二段", None)
    alone = content("richText", {"richText": [pieces[1], pieces[1]]})
    assert (alone.text, alone.notice) == ("[图片][图片]", Notice.UNSUPPORTED)


def test_the_mention_of_the_robot_in_rich_text_is_taken_out() -> None:
    pieces = {"richText": [{"text": "@求职助手"}, {"text": " /new"}]}
    assert content("richText", pieces, kind="2").text == "/new"
    assert content("richText", pieces, kind="2", atUsers=[ITSELF, OTHER]).text == "@求职助手 /new", (
        "it may be the other"
    )
    assert content("richText", pieces, kind="1").text == "@求职助手 /new"


@pytest.mark.parametrize(
    ("kind", "value", "text", "notice"),
    [
        ("audio", {"recognition": "推荐一份工作", "downloadCode": "dc", "duration": 4000}, "推荐一份工作", None),
        ("audio", {"downloadCode": "dc"}, "[语音]", Notice.UNSUPPORTED),
        ("picture", {"downloadCode": "dc", "pictureDownloadCode": "pd"}, "[图片]", Notice.UNSUPPORTED),
        ("video", {"duration": 3, "videoType": "mp4", "downloadCode": "dc"}, "[视频]", Notice.UNSUPPORTED),
        ("file", {"fileName": "简历.pdf", "downloadCode": "dc"}, "[文件: 简历.pdf]", None),
        ("file", {"fileName": "a\nb\u202e.pdf"}, "[文件: a b .pdf]", None),
        ("file", {}, "[文件]", Notice.UNSUPPORTED),
        ("chatRecord", {}, "[聊天记录]", Notice.UNSUPPORTED),
        ("interactiveCard", {}, "[卡片]", Notice.UNSUPPORTED),
        ("unknownMsgType", {"unknownMsgType": "x"}, "[不支持的消息]", Notice.UNSUPPORTED),
        ("richText", None, "", Notice.EMPTY),
        ("picture", None, "[图片]", Notice.UNSUPPORTED),
        (None, None, "[不支持的消息]", Notice.UNSUPPORTED),
    ],
)
def test_other_kinds_are_words_or_a_marker(kind: object, value: object, text: str, notice: Notice | None) -> None:
    message = content(kind, value)  # type: ignore[arg-type]
    assert (message.text, message.notice) == (text, notice)
    assert "dc" not in message.text


CARD = {
    "elementType": "CARD",
    "children": [{"elementType": "TEXT", "value": "卡片里"}, {"elementType": "X", "value": "no"}],
}


@pytest.mark.parametrize(
    ("replied", "line"),
    [
        ({"msgType": "text", "content": {"text": "原来\n的话"}}, "> 引用：原来 的话\n对吗"),
        ({"msgType": "text", "content": {"content": "原来的话"}}, "> 引用：原来的话\n对吗"),
        ({"msgType": "text", "content": {"text": "长" * 300}}, f"> 引用：{'长' * 200}…\n对吗"),
        ({"msgType": "file", "content": {"fileName": "a.pdf"}}, "> 引用：[文件: a.pdf]\n对吗"),
        ({"msgType": "audio", "content": {"recognition": "听到的"}}, "> 引用：听到的\n对吗"),
        ({"msgType": "picture", "content": {"downloadCode": "dc"}}, "> 引用：[图片]\n对吗"),
        (
            {
                "msgType": "richText",
                "content": {"richText": [{"msgType": "text", "content": "富"}, {"msgType": "picture"}]},
            },
            "> 引用：富[图片]\n对吗",
        ),
        ({"msgType": "interactiveCard", "content": {"cardContent": CARD}}, "> 引用：卡片里\n对吗"),
        ({"msgType": "interactiveCard", "content": {}}, "> 引用：[卡片]\n对吗"),
        ({"msgType": "text", "content": "x"}, "对吗"),
        ({}, "对吗"),
        ([], "对吗"),
    ],
)
def test_what_is_replied_to_is_a_short_quoted_line(replied: object, line: str) -> None:
    data = {**chat_data(base=BASE), "text": {"content": "对吗", "isReplyMsg": True, "repliedMsg": replied}}
    quoted = read_message(data, ROBOT)
    assert quoted is not None
    assert (quoted.text, quoted.notice) == (line, None)


@pytest.mark.parametrize("command", ["/new", " ／new"])
def test_a_command_that_replies_is_still_a_command(command: str) -> None:
    replied = {"msgType": "text", "content": {"text": "原来的话"}}
    message = read_message({**chat_data(base=BASE), "text": {"content": command, "repliedMsg": replied}}, ROBOT)
    assert message is not None
    assert message.text == command.strip()


@pytest.mark.parametrize(
    "over",
    [
        {"conversationId": None},
        {"conversationId": ""},
        {"conversationId": "a\0b"},
        {"conversationId": "x" * 513},
        {"msgId": ""},
        {"msgId": 7},
        {"senderId": None, "senderStaffId": None},
        {"senderStaffId": ["x"], "senderId": {}},
        {"senderStaffId": "\ud800"},
    ],
)
def test_without_usable_ids_nothing_is_taken(over: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sanqiao")
    assert read(**over) is None
    assert "dingtalk_message_without_ids" in caplog.text


@pytest.mark.parametrize("ends", [None, "", "soon", "-5", "9" * 16, 1.5, True])
def test_a_webhook_without_a_usable_end_is_none(ends: object) -> None:
    assert "webhook" not in asked(sessionWebhookExpiredTime=ends).reply


def test_names_and_texts_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    content("picture", {}, senderNick="geheim\nx")
    assert "dingtalk_message_without_text" in caplog.text
    assert "geheim" not in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from([*chat_data(base=BASE, kind="2"), "content", "robotCode", "atUsers"])


@given(st.dictionaries(KEYS, JSON, max_size=6), st.sampled_from(["text", "richText", "audio", "file", "", "x"]))
def test_no_shape_raises(over: dict[str, object], kind: str) -> None:
    message = read_message({**chat_data(base=BASE, kind="2"), "msgtype": kind, **over}, ROBOT, "frame")
    assert message is None or message.notice is not None or message.text.strip()
    assert message is None or all(isinstance(value, str) for value in message.reply.values())
