"""Callbacks of the WeCom bot: who speaks where, what they say; nothing in them raises."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import InboundMessage, Notice
from channels.wecom.content import read_content, without_mention
from channels.wecom.events import Bot, read_callback
from channels.wecom.frame import EVENT, MESSAGE, Frame, decode, encode
from channels.wecom.origin import Origin
from channels.wecom.settings import WeComBotSettings
from memory.conversation import session_id, user_id

BOT = Bot(entry="wecom-bot", account="bot1", user_account="bot1", name="求职助手", run="run-1")


def body(said: str = "你好", /, **over: Any) -> dict[str, Any]:
    base = {"msgid": "m/1==", "aibotid": "bot1", "chattype": "single", "from": {"userid": "ZhangSan"}}
    return {**base, "msgtype": "text", "text": {"content": said}, **over}


def read(said: dict[str, Any], bot: Bot = BOT, cmd: str = MESSAGE) -> InboundMessage | None:
    return read_callback(Frame(cmd, "req-1", said), bot, 1000.0)


def message(said: dict[str, Any], bot: Bot = BOT, cmd: str = MESSAGE) -> InboundMessage:
    found = read(said, bot, cmd)
    assert found is not None
    return found


GROUP = {"chattype": "group", "chatid": "wrGroup_1"}


def test_ids_of_a_direct_chat_which_has_no_chatid() -> None:
    found = message(body())
    assert found.user == found.lane.user == user_id("wecom", "bot1", "zhangsan")
    assert found.lane.session == session_id("wecom", "bot1", "zhangsan")
    assert (found.lane.channel, found.lane.group) == ("wecom", False)
    assert (found.account, found.id, found.platform_user) == ("bot1", "m/1==", "ZhangSan")
    assert Origin.of(found) == Origin("ZhangSan", False, "req-1", "run-1", 1000.0)


def test_ids_of_a_group_differ_from_those_of_the_direct_chat() -> None:
    direct, group = message(body()), message(body("@求职助手 你好", **GROUP))
    other = message(body("@求职助手 你好", chattype="group", chatid="wrGroup_2"))
    assert group.lane.session == session_id("wecom", "bot1", "wrGroup_1")
    assert group.lane.group
    assert group.user == direct.user
    assert len({direct.lane, group.lane, other.lane}) == 3
    assert Origin.of(group).chat == "wrGroup_1"


def test_a_user_id_is_the_same_in_any_case() -> None:
    one, two = message(body()), message(body(**{"from": {"userid": "zhangsan"}}))
    assert (one.lane, one.user) == (two.lane, two.user)


def test_the_company_makes_user_ids_and_an_alias_stands_for_the_bot() -> None:
    keys = {"enabled": True, "bot-id": "bot1", "secret": "s", "corp-id": "ww1", "account-alias": "bot0"}
    settings = WeComBotSettings.model_validate(keys)
    assert (settings.user_account, settings.account) == ("ww1", "bot0")
    bot = Bot(entry="b", account=settings.account, user_account=settings.user_account, name="", run="r")
    found = message(body(), bot)
    assert found.user == user_id("wecom", "ww1", "zhangsan")
    assert found.lane.session == session_id("wecom", "bot0", "zhangsan")
    assert WeComBotSettings.model_validate({"bot-id": "b"}).user_account == "b"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("求职助手", "@求职助手 推荐岗位", "推荐岗位"),
        ("求职助手", "@求职助手\u2005推荐岗位", "推荐岗位"),
        ("求职助手", "@求职助手推荐岗位", "推荐岗位"),
        ("求职助手", "@求职助手，推荐岗位", "，推荐岗位"),
        ("求职助手", "@求职助手", ""),
        ("求职助手", "@张三 和 @求职助手 谁懂", "@张三 和 谁懂"),
        ("求职助手", "第一行\n@求职助手 第二行", "第一行\n第二行"),
        ("助手", "@助手小王 @助手 你好", "@助手小王 你好"),
        ("Claude Code", "@Claude Code /clear", "/clear"),
        ("Claude Code", "@Claude  Code /clear", "/clear"),
        ("a.b(c)", "@a.b(c) 你好", "你好"),
        ("改了的名字", "@求职助手 你好", "你好"),
        ("", "@求职助手 /new", "/new"),
        ("", " @求职助手\n你好", "你好"),
        ("", "@求职助手", ""),
        ("", "写给 me@example.com 吧", "写给 me@example.com 吧"),
        ("", "没有提到", "没有提到"),
    ],
)
def test_the_mention_is_taken_out_in_groups(name: str, text: str, said: str) -> None:
    assert without_mention(text, name, group=True) == said


def test_in_a_direct_chat_only_the_bots_own_name_is_taken_out() -> None:
    assert without_mention("@张三 是谁", "求职助手", group=False) == "@张三 是谁"
    assert without_mention("@求职助手 /new", "求职助手", group=False) == "/new"


MEDIA = {"url": "https://secret.example/x", "aeskey": "KEYCANARY"}


@pytest.mark.parametrize(
    ("said", "text", "notice"),
    [
        ({"msgtype": "image", "image": MEDIA}, "[图片]", Notice.UNSUPPORTED),
        ({"msgtype": "file", "file": MEDIA}, "[文件]", Notice.UNSUPPORTED),
        ({"msgtype": "video", "video": MEDIA}, "[视频]", Notice.UNSUPPORTED),
        ({"msgtype": "voice", "voice": {"content": "帮我找工作"}}, "帮我找工作", None),
        ({"msgtype": "voice", "voice": {"content": " "}}, "[语音]", Notice.UNSUPPORTED),
        ({"msgtype": "sticker"}, "[不支持的消息]", Notice.UNSUPPORTED),
        ({"text": {"content": "  \u200b"}}, "\u200b", Notice.EMPTY),
        ({"text": None}, "", Notice.EMPTY),
        (
            {
                "msgtype": "mixed",
                "mixed": {
                    "msg_item": [
                        {"msgtype": "text", "text": {"content": "@求职助手 看看"}},
                        {"msgtype": "image", "image": MEDIA},
                        {"msgtype": "text", "text": {"content": "对吗"}},
                        "junk",
                    ]
                },
            },
            "看看\n[图片]\n对吗",
            None,
        ),
        (
            {"msgtype": "mixed", "mixed": {"msg_item": [{"msgtype": "image", "image": MEDIA}]}},
            "[图片]",
            Notice.UNSUPPORTED,
        ),
    ],
)
def test_what_is_no_text_is_a_marker(said: dict[str, Any], text: str, notice: Notice | None) -> None:
    found = message(body(**{**GROUP, **said}))
    assert (found.text, found.notice) == (text, notice)
    assert "CANARY" not in repr(found)


def test_a_quote_is_one_short_line_before_the_text() -> None:
    quote = {"msgtype": "text", "text": {"content": "第一行\n第二行 " + "长" * 300}}
    text = message(body("这是什么", quote=quote)).text
    first, second = text.split("\n")
    assert first.startswith("> 第一行 第二行 长")
    assert len(first) < 210
    assert second == "这是什么"
    assert message(body("@求职助手", quote=quote, **GROUP)).notice is None, "the quote is what is asked about"
    assert message(body("看看", quote={"msgtype": "image", "image": MEDIA})).text == "> [图片]\n看看"
    assert message(body("看看", quote={})).text == "看看"


@pytest.mark.parametrize("command", ["/new", "／NEW", "@求职助手 /new"])
def test_a_command_keeps_no_quote(command: str) -> None:
    quote = {"msgtype": "text", "text": {"content": "旧话"}}
    assert message(body(command, quote=quote, **GROUP)).text.lower() in ("/new", "／new")


def test_entering_the_chat_asks_for_a_welcome_and_other_events_for_nothing() -> None:
    entered = {"msgid": "", "create_time": 7, "chattype": "single", "from": {"userid": "ZhangSan"}}
    found = message({**entered, "msgtype": "event", "event": {"eventtype": "enter_chat"}}, cmd=EVENT)
    assert (found.notice, found.text, found.id) == (Notice.WELCOME, "", "enter_chat:ZhangSan:7")
    assert Origin.of(found).welcome
    for kind in ("template_card_event", "feedback_event", "disconnected_event", "", "new_one"):
        assert read({**entered, "msgid": "e", "event": {"eventtype": kind}}, cmd=EVENT) is None
    assert read(body(), cmd="aibot_new_callback") is None


def test_a_group_that_is_off_is_not_for_us() -> None:
    off = Bot(entry="b", account="bot1", user_account="bot1", name="", run="r", group_policy="off")
    assert read(body("@求职助手 你好", **GROUP), off) is None
    assert read(body(), off) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"msgid": ""},
        {"msgid": "x" * 300},
        {"msgid": 7},
        {"from": {}},
        {"from": "x"},
        {"from": {"userid": "a\0b"}},
        {"from": {"userid": "\ud800"}},
        {"chattype": "group"},
        {"chattype": "group", "chatid": ""},
    ],
)
def test_without_usable_ids_nothing_is_taken(wrong: dict[str, Any]) -> None:
    assert read(body(**wrong)) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["msgid", "chattype", "from", "msgtype", "text", "mixed", "quote", "event", "voice", "chatid"])


@given(st.dictionaries(KEYS, json_values, max_size=8), st.sampled_from([MESSAGE, EVENT, "x"]))
def test_no_shape_of_a_callback_raises(over: dict[str, Any], cmd: str) -> None:
    found = read(body(**over), cmd=cmd)
    assert found is None or found.account == "bot1"


@given(st.text(string.printable + "@ 你好\u2005/"), st.sampled_from(["", "求职助手", "Claude Code"]), st.booleans())
def test_text_without_an_at_sign_is_only_trimmed(text: str, name: str, group: bool) -> None:
    if "@" not in text:
        assert read_content(body(text), name, group=group).text == text.strip()


@given(st.text())
def test_any_text_is_a_frame_or_none(text: str) -> None:
    decode(text)


def test_frames() -> None:
    frame = decode(encode(MESSAGE, "r", {"a": "好"}))
    assert frame == Frame(MESSAGE, "r", {"a": "好"})
    ack = decode('{"headers": {"req_id": "r"}, "errcode": 846609, "errmsg": "x"}')
    assert ack == Frame("", "r", {}, 846609)
    bad = decode(json.dumps({"cmd": MESSAGE, "headers": {"req_id": "x" * 500}}))
    assert bad is not None
    assert bad.req_id == ""
    for text in ("[]", "x", "", '{"headers": []'):
        assert decode(text) is None


def test_settings_name_all_that_is_missing() -> None:
    with pytest.raises(ValueError, match="bot-id、secret"):
        WeComBotSettings.model_validate({"enabled": True})
    with pytest.raises(ValueError, match="secret"):
        WeComBotSettings.model_validate({"enabled": True, "bot-id": "b", "secret": " "})
    with pytest.raises(ValueError, match="websocket-url"):
        WeComBotSettings.model_validate({"websocket-url": "https://x"})
    assert "canary" not in repr(WeComBotSettings.model_validate({"secret": "canary"}))
    assert not WeComBotSettings.model_validate({"bot-id": "b"}).enabled
