"""What a Feishu event says: addressed or not, mentions, every content type, threads, ids, odd shapes."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.feishu.events import Bot, read_event
from channels.json_values import load_object
from channels.message import InboundMessage, Notice
from memory.conversation import session_id, user_id
from tests.platforms.feishu_server import mention, message_event

BOT = Bot(entry="feishu", app_id="cli_test", account="cli_test", open_id="ou_bot")
OWN = mention(1, "ou_bot", "求职助手", "bot")


def read(bot: Bot = BOT, **event: object) -> InboundMessage | None:
    return read_event(message_event(**event), bot)


def text_of(bot: Bot = BOT, **event: object) -> str:
    message = read(bot, **event)
    assert message is not None
    return message.text


def group(text: str, *mentions: dict, bot: Bot = BOT, **event: object) -> InboundMessage | None:
    return read(bot, text=text, chat_type="group", chat_id="oc_g", mentions=list(mentions), **event)


def test_a_direct_message() -> None:
    message = read(text=" 帮我推荐工作 ", open_id="ou_a1", chat_id="oc_p1", message_id="om_0001")
    assert message is not None
    assert message == InboundMessage(
        entry="feishu",
        account="cli_test",
        id="om_0001",
        lane=message.lane,
        user=user_id("feishu", "cli_test", "ou_a1"),
        platform_user="ou_a1",
        text="帮我推荐工作",
        reply={"chat": "oc_p1", "message": "om_0001"},
    )
    assert str(message.lane) == f"{message.user}:feishu:{session_id('feishu', 'cli_test', 'oc_p1')}:0"


def test_the_golden_ids() -> None:
    bot = Bot(entry="hr", app_id="cli_new", account="cli_a1", open_id="ou_bot")
    message = read(bot, text="x", open_id="ou_b2", chat_id="oc_c3", app_id="cli_new")
    assert message is not None
    assert str(message.lane) == "uu3r7qbo6l6i3:feishu:b759cea3338c:0"
    assert (message.entry, message.account) == ("hr", "cli_a1")


def test_a_thread_is_a_session_of_its_own_and_is_answered_there() -> None:
    message = group("@_user_1 好", OWN, thread_id="omt_1", root_id="om_r")
    assert message is not None
    assert message.lane.session == session_id("feishu", "cli_test", "oc_g", "omt_1")
    assert message.reply["thread"] == "omt_1"
    assert message.lane.group


def test_mentions_become_names_and_the_own_one_goes() -> None:
    message = group(
        "@_user_1 把这个交给 @_user_2 和 @_user_10", OWN, mention(2, "ou_a", "张三"), mention(10, "ou_b", "李四")
    )
    assert message is not None
    assert message.text == "把这个交给 @张三 和 @李四"


@pytest.mark.parametrize(
    ("text", "mentions", "want"),
    [
        ("@_user_1 @_user_2 你好", [OWN, mention(2, "ou_bot", "助手", "bot")], "你好"),
        ("@_user_2 @_user_1 看看", [OWN, mention(2, "ou_a", "张三")], "@张三 看看"),
        ("问 @_user_1 一下", [OWN], "问 一下"),
        ("@_user_1你好", [OWN], "你好"),
        ("@_user_1 @_user_7 是我写的", [OWN], "@_user_7 是我写的"),
        ("@_user_1 @_user_2", [OWN, mention(2, "ou_a", "@_user_1")], "@@_user_1"),
        ("@_user_1 @_all 开会", [OWN], "@所有人 开会"),
        ("@_user_1 @_allhands 开会", [OWN], "@_allhands 开会"),
        ("@_user_1 @_user_2", [OWN, mention(2, "ou_a", "张\n三 ")], "@张 三"),
        ("@_user_1 a.*b", [OWN, {"key": "", "id": {}, "name": "x"}, {"key": ".*", "name": "y"}, "junk", None], "a.*b"),
        ("@_user_1 hi", [{**OWN, "id": "ou_bot", "id_type": "open_id"}], "hi"),
    ],
)
def test_mention_tables(text: str, mentions: list, want: str) -> None:
    message = group(text, *mentions)
    assert message is not None
    assert message.text == want


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("没有提到", []),
        ("@_all 明天放假", []),
        ("@_all 放假", [mention(1, "", "所有人") | {"key": "@_all"}]),
        ("@_user_1 你好", [mention(1, "ou_other", "求职助手")]),
        ("求职助手 你好", []),
        ("@_user_1 你好", [mention(1, "ou_other_bot", "求职助手", "bot")]),
    ],
)
def test_a_group_that_does_not_mention_the_bot_is_left_alone(text: str, mentions: list) -> None:
    assert group(text, *mentions) is None
    assert read(text=text, mentions=mentions) is not None, "in a direct chat everything is for the bot"


def test_group_policies() -> None:
    everything = Bot(entry="f", app_id="cli_test", account="cli_test", open_id="ou_bot", group_policy="all")
    nothing = Bot(entry="f", app_id="cli_test", account="cli_test", open_id="ou_bot", group_policy="off")
    assert group("大家好", bot=everything) is not None
    assert group("@_user_1 大家好", OWN, bot=nothing) is None
    assert read(nothing, text="私聊") is not None


def test_until_the_own_id_is_known_a_sole_bot_is_taken_for_ours() -> None:
    unknown = Bot(entry="f", app_id="cli_test", account="cli_test")
    other = mention(2, "ou_bot2", "别的", "bot")
    message = group("@_user_1 好", OWN, mention(3, "ou_a", "张三"), bot=unknown)
    assert message is not None
    assert message.text == "好"
    assert group("@_user_1 @_user_2 好", OWN, other, bot=unknown) is None
    assert group("@_user_1 好", mention(1, "ou_a", "张三"), bot=unknown) is None


@pytest.mark.parametrize(
    "event",
    [
        {"sender_type": "app"},
        {"sender_type": "bot"},
        {"sender_type": ""},
        {"open_id": "ou_bot"},
        {"open_id": ""},
        {"message_id": "m" * 201},
        {"message_id": "om\n1"},
        {"message_id": "om_\ud83d"},
        {"chat_id": ""},
        {"app_id": "cli_other"},
        {"message_type": "system", "content": {"template": "x"}},
    ],
)
def test_what_is_not_for_us(event: dict) -> None:
    assert read(**event) is None


def test_a_recalled_message_and_other_events_are_nothing() -> None:
    event = message_event("x")
    event["event"]["message"]["content"] = ""
    assert read_event(event, BOT) is None
    event = message_event("x")
    event["header"]["event_type"] = "im.message.reaction.created_v1"
    assert read_event(event, BOT) is None
    assert read_event({"type": "event_callback", "event": {"type": "message", "text": "x"}}, BOT) is None


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (
            {
                "title": "",
                "content": [
                    [{"tag": "text", "text": "- 第一行"}],
                    [
                        {"tag": "text", "text": "- 第二行"},
                        {"tag": "a", "text": "职位", "href": "http://127.0.0.1/j"},
                    ],
                ],
            },
            "- 第一行\n- 第二行[职位](http://127.0.0.1/j)",
        ),
        ({"zh_cn": {"title": "标题", "content": [[{"tag": "text", "text": "正文"}]]}}, "标题\n正文"),
        ({"post": {"zh_cn": {"content": [[{"tag": "text", "text": "正文"}]]}}}, "正文"),
        ({"post": {"fr_fr": {"content": [[{"tag": "text", "text": "texte"}]]}}}, "texte"),
        (
            {
                "title": "周报",
                "content": [
                    [
                        {"tag": "at", "user_id": "@_user_1", "user_name": "助手"},
                        {"tag": "img", "image_key": "img_t1"},
                    ]
                ],
            },
            "周报\n[图片]",
        ),
        ({"content": [{"tag": "text", "text": "A"}, {"tag": "text", "text": "B"}]}, "A\nB"),
        (
            {
                "content": [
                    [
                        {"tag": "at", "user_id": "ou_bot"},
                        {"tag": "at", "user_id": "@_user_2", "user_name": ""},
                        {"tag": "at", "user_id": "ou_x", "user_name": "小王"},
                        {"tag": "at", "user_id": "all"},
                    ]
                ]
            },
            "@张三@小王@所有人",
        ),
        (
            {
                "content": [
                    [{"tag": "code_block", "language": "GO", "text": "x := 1\n"}],
                    [{"tag": "hr"}],
                    [{"tag": "emotion", "emoji_type": "SMILE"}, {"tag": "media", "file_key": "f"}],
                    [{"tag": "md", "text": "**粗**"}, {"tag": "text", "text": "a &lt; b", "un_escape": True}],
                ]
            },
            "```go\nx := 1\n```\n---\n[SMILE][视频]\n**粗**a < b",
        ),
        (
            {"content": [[{"tag": "a", "text": "", "href": "http://h"}, {"tag": "a", "text": "t", "href": ""}]]},
            "http://ht",
        ),
    ],
)
def test_posts_in_all_shapes(content: dict, want: str) -> None:
    message = read(message_type="post", content=content, chat_type="group", mentions=[OWN, mention(2, "ou_a", "张三")])
    assert message is not None
    assert (message.text, message.notice) == (want, None)


@pytest.mark.parametrize(
    ("kind", "content", "text", "notice"),
    [
        ("file", {"file_key": "file_t1", "file_name": "张三 简历.pdf"}, "[文件: 张三 简历.pdf]", None),
        ("file", {"file_key": "file_t1", "file_name": "a\n- b.pdf"}, "[文件: a - b.pdf]", None),
        ("file", {"file_key": "file_t1"}, "[文件]", Notice.UNSUPPORTED),
        ("image", {"image_key": "img_t1"}, "[图片]", Notice.UNSUPPORTED),
        ("audio", {"file_key": "file_t2", "duration": 3000}, "[语音]", Notice.UNSUPPORTED),
        ("media", {"file_key": "f", "image_key": "i", "file_name": "v.mp4"}, "[视频]", Notice.UNSUPPORTED),
        ("sticker", {"file_key": "file_t3"}, "[表情]", Notice.UNSUPPORTED),
        ("location", {"name": "x"}, "[位置]", Notice.UNSUPPORTED),
        ("new_type", {"some_key": "k"}, "[不支持的消息]", Notice.UNSUPPORTED),
        ("post", {"content": [[{"tag": "img", "image_key": "img_t1"}]]}, "[图片]", Notice.UNSUPPORTED),
        ("post", {"content": []}, "", Notice.EMPTY),
        ("post", {}, "", Notice.EMPTY),
        (
            "interactive",
            {"title": "T", "elements": [[{"tag": "text", "text": "x"}, {"tag": "button", "text": "b"}]]},
            "T\nx",
            None,
        ),
        ("interactive", {"elements": []}, "[卡片]", Notice.UNSUPPORTED),
        ("text", {"text": ""}, "", Notice.EMPTY),
        ("text", {"text": 7}, "", Notice.EMPTY),
        ("text", {"text": "\u200b\u2060\ufeff"}, "\u200b\u2060\ufeff", Notice.EMPTY),
        ("text", {"text": "\u3000"}, "", Notice.EMPTY),
        ("text", {"text": "👍"}, "👍", None),
    ],
)
def test_messages_without_words_get_a_notice(kind: str, content: dict, text: str, notice: Notice | None) -> None:
    message = read(message_type=kind, content=content)
    assert message is not None
    assert (message.text, message.notice) == (text, notice)
    assert "_key" not in message.text
    assert "img_" not in message.text


def test_a_bare_mention_is_empty() -> None:
    message = group("@_user_1 ", OWN)
    assert message is not None
    assert message.notice is Notice.EMPTY


@pytest.mark.parametrize("raw", ["not json", "[]", '"text"', "null", "{", "1" * 5000, "[" * 100_000])
def test_unreadable_content_gets_a_fixed_answer(raw: str) -> None:
    event = message_event("x")
    event["event"]["message"]["content"] = raw
    message = read_event(event, BOT)
    assert message is not None
    assert message.notice is Notice.UNSUPPORTED


def test_half_an_emoji_survives_the_parser() -> None:
    event = message_event("x")
    event["event"]["message"]["content"] = '{"text":"简历\\ud83d怎么改 \\ud83d\\ude00"}'
    envelope = load_object(json.dumps(event))
    assert envelope is not None
    message = read_event(envelope, BOT)
    assert message is not None
    assert message.text == "简历\ud83d怎么改 😀"


def test_the_same_message_in_another_envelope_has_the_same_id() -> None:
    first = read(message_id="om_dup0001", event_id="ev-1")
    second = read(message_id="om_dup0001", event_id="ev-2")
    assert first is not None
    assert second is not None
    assert (first.account, first.id) == (second.account, second.id)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["ou_bot", "post", "@_user_1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tag", "text", "content", "id"]), inner)
    ),
    max_leaves=8,
)
PLACES = [
    ("header",),
    ("event",),
    ("event", "sender"),
    ("event", "sender", "sender_id"),
    ("event", "message"),
    *(
        ("event", "message", key)
        for key in ("message_id", "chat_type", "message_type", "content", "mentions", "thread_id")
    ),
]


@given(st.sampled_from(PLACES), JUNK, st.sampled_from(["text", "post", "interactive", "file"]))
def test_no_shape_raises(place: tuple[str, ...], junk: object, kind: str) -> None:
    event = copy.deepcopy(message_event("@_user_1 x", message_type=kind, content={"content": [], "text": "x"}))
    holder = event
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = junk
    read_event(event, BOT)


@given(JUNK, st.sampled_from(["text", "post", "interactive", "file", "image"]))
def test_no_content_raises(junk: object, kind: str) -> None:
    event = message_event(
        "x", message_type=kind, content={"content": junk, "elements": junk, "title": junk, "text": junk}
    )
    message = read_event(event, BOT)
    assert message is not None
