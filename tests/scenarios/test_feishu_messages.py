"""What people and the platform send from Feishu, up to the model's request and back: B03, B09, B10, B12-B15, B23, B28."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.platforms.feishu_server import FakeFeishu, encrypt, mention, message_event, sign
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import (
    ENCRYPT_KEY,
    VERIFICATION_TOKEN,
    Clock,
    Inside,
    asked,
    feishu_entry,
    id_of,
    shown,
    texts,
)
from tests.waiting import until

BOT = mention(1, "ou_bot", "助手", "bot")
ALL = {"key": "@_all", "id": {}, "name": "所有人"}


async def bot_known(feishu: FakeFeishu) -> None:
    """The bot's own id is told to the gateway when it asks for it, at its start."""
    await until(lambda: [call for call in feishu.sent if call["path"] == "/bot/v3/info" and "answer" in call])
    await asyncio.sleep(0.05)


def group(*mentions: dict[str, Any], chat: str = "oc_g") -> dict[str, Any]:
    return {"chat_id": chat, "chat_type": "group", "mentions": list(mentions)}


# ---------------------------------------------------------------- B03


async def test_the_message_is_known_again_in_another_envelope(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """B03: the key is app and message_id; the memory of it lasts longer than the platform repeats (7.1 h)."""
    gateway = Inside(tmp_path, model, feishu=feishu)
    gateway.clock = clock = Clock()
    async with gateway:
        number = "om_dup0001"
        await gateway.feishu_says("你好呀", message_id=number, event_id="ev-1")
        for ahead, event in ((0, "ev-1"), (300, "ev-2"), (7.1 * 3600, "ev-3")):
            clock.ahead = ahead
            await gateway.feishu_event("你好呀", message_id=number, event_id=event)
        clock.ahead = 0
        await gateway.feishu_says("还有一句")
        assert len(model.requests) == 2
        assert texts(feishu, number) == ["答复：你好呀"]
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        await gateway.feishu_event("你好呀", message_id=number, event_id="ev-4")
        assert await gateway.feishu_says("又一句") == "答复：又一句"
        assert len(model.requests) == 3


async def test_two_bots_in_one_message_both_answer(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """B03: the same message_id of a second app is a message of its own."""
    async with FakeFeishu(app_id="cli_hr", app_secret="secret_hr") as second:
        over = {"channels": {"feishu-hr": {**feishu_entry(second), "kind": "feishu"}}}
        async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
            message = {"open_id": "ou_zhang", "chat_id": "oc_both", "message_id": "om_both"}
            await gateway.deliver(message_event("你好呀", **message))
            for path, expected in (("/feishu/feishu-hr", 200), ("/feishu", 403)):
                event = message_event("你好呀", app_id="cli_hr", **message)
                status, _, _ = await second.post_webhook(gateway.url(path), event, encrypt_key=ENCRYPT_KEY)
                assert status == expected, "an event of another app is refused"
            await until(lambda: shown(feishu) and shown(second))
            assert (texts(feishu), texts(second)) == (["答复：你好呀"], ["答复：你好呀"])
            assert len(model.requests) == 2
            assert len({path.parent for path in await asyncio.to_thread(gateway.files)}) == 2


# ---------------------------------------------------------------- B09, B10


async def test_mentions_read_as_names(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    """B09: the bot's own mention is gone, others are names, and `@_user_1` leaves `@_user_10` alone."""
    await bot_known(feishu)
    people = [BOT, mention(2, "ou_a", "张三"), mention(10, "ou_b", "李四"), mention(3, "ou_bot", "助手", "bot")]
    await gateway.feishu_says("@_user_1 把这个交给 @_user_2 和 @_user_10", **group(*people))
    await gateway.feishu_says("  @_user_1 你好 @_user_3 ", **group(*people))
    assert [messages[-1] for messages in asked(model)] == [("user", "把这个交给 @张三 和 @李四"), ("user", "你好")]


async def test_who_is_addressed(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    """B10: by id; everyone, nobody, somebody else and the bare name are not the bot, but in a direct chat all are."""
    await bot_known(feishu)
    namesake = mention(1, "ou_other", "助手", "bot")
    ignored = [
        ("大家好", group()),
        ("@_all 通知", group(ALL)),
        ("助手 你好", group()),
        ("@_user_1 你好", group(namesake)),
    ]
    for text, more in ignored:
        await gateway.feishu_event(text, **more)
    await gateway.feishu_event("机器人说", sender_type="app", **group(BOT))
    await gateway.feishu_event("我自己说", "ou_bot", **group(BOT))
    answer = await gateway.feishu_says("@_user_2 和 @_user_1 你们好", **group(mention(2, "ou_a", "张三"), BOT))
    assert answer == "答复：@张三 和 你们好"
    assert len(model.requests) == 1, "nothing of what was not for the bot"
    for text in ("大家好", "@_all 通知", "助手 你好"):
        assert (await gateway.feishu_says(text)).startswith("答复：")
    assert len(await asyncio.to_thread(gateway.files)) == 2


@pytest.mark.parametrize(("policy", "answered"), [("all", True), ("mention", False), ("off", False)])
async def test_group_policies(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, policy: str, answered: bool
) -> None:
    async with Inside(tmp_path, model, {"channels": {"feishu": {"group-policy": policy}}}, feishu=feishu) as gateway:
        await bot_known(feishu)
        plain = await gateway.feishu_event("大家好", **group())
        named = await gateway.feishu_event("@_user_1 你好", **group(BOT))
        await gateway.feishu_says("私聊", "ou_li")
        if answered:
            await until(lambda: texts(feishu, plain))
        else:
            assert not texts(feishu, plain)
        if policy == "off":
            assert not texts(feishu, named)
        else:
            await until(lambda: texts(feishu, named))


# ---------------------------------------------------------------- B12, B13

LINES = [
    [{"tag": "text", "text": "- 第一行"}],
    [{"tag": "text", "text": "- 第二行"}, {"tag": "a", "text": "职位", "href": "http://127.0.0.1/j"}],
]
POST = {"title": "", "content": LINES}
READ = "- 第一行\n- 第二行[职位](http://127.0.0.1/j)"


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (POST, READ),
        ({"zh_cn": POST}, READ),
        ({"post": {"zh_cn": POST}}, READ),
        ({"content": [{"tag": "text", "text": "A"}, {"tag": "text", "text": "B"}]}, "A\nB"),
    ],
    ids=["a", "b: language", "b: post", "d: flat"],
)
async def test_posts_arrive_whole(gateway: Inside, model: ModelServer, content: dict[str, Any], read: str) -> None:
    """B12: every line in order, link text and address."""
    await gateway.feishu_says(message_type="post", content=content)
    assert asked(model) == [[("user", read)]]


async def test_a_post_with_a_picture_is_not_silent(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    """B12 c: title kept, the bot's mention dropped, the picture marked."""
    await bot_known(feishu)
    row = [{"tag": "at", "user_id": "@_user_1", "user_name": "助手"}, {"tag": "img", "image_key": "img_t1"}]
    await gateway.feishu_says(message_type="post", content={"title": "周报", "content": [row]}, **group(BOT))
    assert asked(model) == [[("user", "周报\n[图片]")]]


UNSUPPORTED = "暂时无法识别这类消息，请用文字告诉我。"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("image", {"image_key": "KEY_t1"}),
        ("audio", {"file_key": "KEY_t2", "duration": 3000}),
        ("sticker", {"file_key": "KEY_t3"}),
        ("media", {"file_key": "KEY_t4", "image_key": "KEY_t5"}),
        ("location", {"name": "KEY_place", "longitude": "121"}),
        ("something-new", {"file_key": "KEY_t6"}),
        ("text", "not json"),
    ],
)
async def test_what_is_no_text(
    gateway: Inside, model: ModelServer, caplog: pytest.LogCaptureFixture, kind: str, content: object
) -> None:
    """B13, B12 e: one fixed answer, the type in the log, no key in any prompt, nothing stored."""
    event = message_event(message_type=kind, open_id="ou_zhang", chat_id="oc_zhang")
    event["event"]["message"]["content"] = content if isinstance(content, str) else json.dumps(content)
    assert gateway.feishu is not None
    with caplog.at_level(logging.INFO, "sanqiao"):
        assert await gateway.deliver(event)
        await until(lambda: texts(gateway.feishu, id_of(event)))
    assert texts(gateway.feishu) == [UNSUPPORTED]
    assert kind in caplog.text
    await gateway.feishu_says("你好呀")
    assert "KEY_" not in json.dumps(model.requests)
    assert [role for role, _ in await gateway.said()] == ["user", "assistant"]


async def test_a_file_keeps_its_name(gateway: Inside, model: ModelServer) -> None:
    """B13: `[文件: NAME]`, without its key."""
    content = {"file_key": "KEY_t1", "file_name": "张三 简历.pdf"}
    await gateway.feishu_says(message_type="file", content=content)
    assert asked(model) == [[("user", "[文件: 张三 简历.pdf]")]]


# ---------------------------------------------------------------- B14


async def test_the_address_check(gateway: Inside, feishu: FakeFeishu) -> None:
    """B14: answered at once, signed or not; a wrong token is refused."""
    challenge = {"challenge": "c-0001", "token": VERIFICATION_TOKEN, "type": "url_verification"}
    url = gateway.url("/feishu")
    status, body, took = await feishu.post_webhook(url, challenge, encrypt_key=ENCRYPT_KEY)
    assert (status, json.loads(body)) == (200, {"challenge": "c-0001"})
    assert took < 15
    unsigned = json.dumps({"encrypt": encrypt(ENCRYPT_KEY, json.dumps(challenge))})
    async with aiohttp.ClientSession() as session, session.post(url, data=unsigned) as response:
        assert await response.json() == {"challenge": "c-0001"}
    status, body, _ = await feishu.post_webhook(url, {**challenge, "token": "other"}, encrypt_key=ENCRYPT_KEY)
    assert status == 403
    assert "c-0001" not in body


async def test_only_authentic_events_are_taken(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu, caplog: pytest.LogCaptureFixture
) -> None:
    """B14: the signature is over the raw bytes; what is refused says in the log what to set."""
    url, event = gateway.url("/feishu"), message_event("伪造")
    encrypted = json.dumps({"encrypt": encrypt(ENCRYPT_KEY, json.dumps(event))})
    now = str(int(time.time()))
    spaced = encrypted.replace(": ", ":").encode()
    refused = [
        await feishu.post_webhook(url, event, encrypt_key=ENCRYPT_KEY, signature="0" * 64),
        await feishu.post_webhook(url, event, encrypt_key="other-key"),
        await feishu.post_webhook(url, event),
        await feishu.post_webhook(url, event, encrypt_key=ENCRYPT_KEY, timestamp="1767225600"),
        await feishu.post_webhook(
            url, event, body=spaced, timestamp=now, nonce="n", signature=sign(now, "n", ENCRYPT_KEY, encrypted.encode())
        ),
        await feishu.post_webhook(url, {**event, "header": {**event["header"], "token": "x"}}, encrypt_key=ENCRYPT_KEY),
        await feishu.post_webhook(url, event, body=b"{not json"),
    ]
    assert [status for status, _, _ in refused if not 400 <= status < 500] == []
    assert {body for _, body, _ in refused} == {""}
    async with aiohttp.ClientSession() as session, session.post(url, json=event) as response:
        assert response.status == 400, "as the platform sends where no key is set there"
    assert "set the same Encrypt Key on both sides" in caplog.text
    assert "encrypt-key differs" in caplog.text
    assert "verification-token differs" in caplog.text
    assert ENCRYPT_KEY not in caplog.text
    odd = encrypted.replace(": ", " :  ").encode()  # other JSON of the same meaning, signed as it is
    status, _, _ = await feishu.post_webhook(url, event, encrypt_key=ENCRYPT_KEY, body=odd)
    assert status == 200
    await until(lambda: texts(feishu))
    assert asked(model) == [[("user", "伪造")]]


# ---------------------------------------------------------------- B15


async def test_other_events_are_acknowledged_and_forgotten(gateway: Inside, model: ModelServer) -> None:
    """B15: a reaction, a read receipt, a recall, a type of the future: 200 and nothing else."""
    for kind in ("im.message.reaction.created_v1", "im.message.message_read_v1", "im.message.recalled_v1", "new_v9"):
        event = message_event("你好")
        event["header"]["event_type"] = kind
        assert await gateway.deliver(event), kind
    _, status = await gateway.get("/api/status")
    assert status["queue"]["waiting"] == 0
    assert not model.requests
    assert not gateway.files()


async def test_an_error_inside_is_never_told(
    gateway: Inside, monkeypatch: pytest.MonkeyPatch, feishu: FakeFeishu
) -> None:
    """B15: whatever breaks while a message is handled, the acknowledgement is quick and the user gets a fixed text."""

    async def broken(*_: object, **__: object) -> None:
        raise ValueError("token sk-test-123")

    with monkeypatch.context() as patch:
        patch.setattr("memory.memory.Memory.remember", broken)
        event = message_event("你好呀")
        status, body, took = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=ENCRYPT_KEY)
        assert (status, json.loads(body)) == (200, {})
        assert took < 15
        await until(lambda: texts(feishu, id_of(event)))
        assert texts(feishu) == ["抱歉，刚才出了点问题，请稍后再试。"]
    assert await gateway.feishu_says("再来") == "答复：再来"


async def test_a_message_that_cannot_be_stored_is_not_acknowledged(
    gateway: Inside, monkeypatch: pytest.MonkeyPatch, feishu: FakeFeishu
) -> None:
    """B15, B04: no 200 before the message is safe; the platform's next delivery is answered once."""

    async def broken(*_: object, **__: object) -> None:
        raise ValueError("token sk-test-123")

    event = message_event("你好呀")
    with monkeypatch.context() as patch:
        patch.setattr("gateway.storage.inbox.Inbox.accept", broken)
        status, body, _ = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=ENCRYPT_KEY)
        assert (status, body) == (503, "")
    assert await gateway.deliver(event)
    await until(lambda: texts(feishu, id_of(event)))
    assert texts(feishu) == ["答复：你好呀"]


# ---------------------------------------------------------------- B23


async def test_an_answer_goes_where_its_question_came_from(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """B23: whoever writes meanwhile, allowed or not, in a group or not, sees nothing of it."""
    over = {"channels": {"feishu": {"dm-policy": "allowlist", "allow-from": ["ou_a", "ou_c"]}}}
    async with Inside(tmp_path, model, over, feishu=feishu) as gateway:
        await bot_known(feishu)
        async with model.held("秘密"):
            secret = await gateway.feishu_event("我的秘密", "ou_a")
            await until(lambda: model.requests)
            others = [
                await gateway.feishu_says("我是谁都行", "ou_b"),
                await gateway.feishu_says("你好呀", "ou_c"),
                await gateway.feishu_says("@_user_1 群里问", "ou_a", **group(BOT)),
            ]
        await until(lambda: texts(feishu, secret))
        assert texts(feishu, secret) == ["答复：我的秘密"]
        assert others == ["抱歉，你还没有使用权限，请联系管理员。", "答复：你好呀", "答复：群里问"]
        assert len(texts(feishu)) == 4
        assert "秘密" not in json.dumps(model.requests[1:], ensure_ascii=False), "nor does the model, for anybody else"


async def test_a_thread_is_answered_in_its_thread(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    await gateway.feishu_says("我叫张三")
    await gateway.feishu_says("我叫什么？", thread_id="omt_1")
    assert asked(model)[-1] == [("user", "我叫什么？")], "a thread is a conversation of its own"
    replies = [call["body"]["reply_in_thread"] for call in feishu.sent if call["path"].endswith("/reply")]
    assert replies == [False, True]


# ---------------------------------------------------------------- B28


async def test_half_an_emoji_wedges_nothing(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    """B28: halves become U+FFFD at the border, in and out; pairs and families stay as they are."""
    event = message_event(open_id="ou_zhang", chat_id="oc_ou_zhang")
    event["event"]["message"]["content"] = '{"text":"\\ud83d怎么改 \\ud83d\\ude00 👨‍👩‍👧"}'
    model.answers = ["好\ud83d的 👨‍👩‍👧"]
    assert await gateway.deliver(event)
    await until(lambda: texts(feishu, id_of(event)))
    assert texts(feishu) == ["好\ufffd的 👨‍👩‍👧"]
    await gateway.feishu_says("然后呢")
    turns = [("user", "\ufffd怎么改 😀 👨‍👩‍👧"), ("assistant", "好\ufffd的 👨‍👩‍👧")]
    assert asked(model)[-1] == [*turns, ("user", "然后呢")]
    assert (await gateway.said())[:2] == turns
    said = await gateway.chat("u", "网页 \ud83d 也一样")
    assert said.text == "答复：网页 \ufffd 也一样"
