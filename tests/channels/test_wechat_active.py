"""客服消息 through real sockets: quota, each kind of error, tokens, the typing sign, what the next contact gets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import SendFailed, SendLimited, SendRefused, SendUncertain
from channels.message import InboundMessage, Part, Routed
from channels.wechat.quota import EVENT_SENDS, MESSAGE_SENDS, Quota
from tests.channels.wechat_stage import MORE, Stage, staged
from tests.platforms.wechat_platform import (
    APP_SECRET,
    SEND,
    STABLE_TOKEN,
    TYPING,
    Delivered,
    WeChatPlatform,
    message_xml,
)
from tests.waiting import until


@pytest.fixture
async def platform() -> AsyncIterator[WeChatPlatform]:
    async with WeChatPlatform() as started:
        yield started


@pytest.fixture
async def stage(platform: WeChatPlatform) -> AsyncIterator[Stage]:
    async with staged(platform, Stage(), active_send="auto") as running:
        yield running


async def heard(platform: WeChatPlatform, stage: Stage, text: str = "问", user: str = "oA") -> InboundMessage:
    """A message that was acknowledged."""
    delivered = await platform.deliver(message_xml(user, Content=text, MsgId=platform.new_id()))
    assert (delivered.status, delivered.raw) == (200, "success")
    assert delivered.took < 15, "not held"
    return stage.message(text)


def part(message: InboundMessage, text: str = "答", number: int = 0, total: int = 1) -> Part:
    return Part(message=message, text=text, number=number, total=total, key=f"{message.id}:{number}")


async def test_success_at_once_and_the_answer_by_the_api(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    stage.channel.progress(message, Routed("a", "b"))
    await until(lambda: platform.of(TYPING))
    assert await stage.answer(message, "**答复** ]]> 好😀") == ["sent"]
    (call,) = platform.sent
    assert (call.body["touser"], call.body["msgtype"], call.text) == ("oA", "text", "答复 ]]> 好😀")
    assert "好😀".encode() in call.raw, "real UTF-8"
    assert [each.body for each in platform.of(TYPING)] == [{"touser": "oA", "command": "Typing"}]
    assert len(platform.of(STABLE_TOKEN)) == 1
    assert stage.channel.health().ok


async def test_a_repeat_is_success_and_nothing_more(platform: WeChatPlatform, stage: Stage) -> None:
    xml = message_xml("oA", Content="问", MsgId=1)
    assert [(await platform.deliver(xml)).raw for _ in range(3)] == ["success"] * 3
    assert len(stage.messages) == 1


async def test_five_sends_for_a_message_and_the_rest_waits(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    fate = await stage.answer(message, "好" * 4500)
    assert fate[:5] == ["sent"] * 5
    assert set(fate[5:]) == {"shelved"}
    assert len(platform.of(SEND)) == 5, "the platform was not even asked"
    assert [call.text.endswith(MORE) for call in platform.sent] == [False] * 4 + [True]
    assert all(len(call.text.encode()) <= 2000 for call in platform.sent)
    texts = [call.text for call in platform.sent]
    while stage.shelf:
        texts.append((await platform.ask("oA", "继续"))[0])
    assert "".join(text.removesuffix(MORE).strip() for text in texts) == "好" * 4500
    assert len(stage.messages) == 1


@pytest.mark.parametrize("code", [45015, 45047])
async def test_what_the_platform_takes_no_more_waits(platform: WeChatPlatform, stage: Stage, code: int) -> None:
    message = await heard(platform, stage)
    platform.errors = [code]
    assert await stage.answer(message, "答复") == ["shelved"]
    assert await stage.answer(message, "再一个") == ["shelved"]
    assert len(platform.of(SEND)) == 1, "nothing is left until the person writes"
    next_contact = await platform.deliver(message_xml("oA", Content="新问题", MsgId=2))
    assert next_contact.text == f"答复\n\n{MORE}"
    assert await stage.answer(stage.message("新问题"), "新答复") == ["sent"]


async def test_without_the_right_auto_becomes_passive(platform: WeChatPlatform, stage: Stage) -> None:
    platform.right = False
    message = await heard(platform, stage)
    assert await stage.answer(message, "头一个") == ["shelved"]
    assert len(platform.of(SEND)) == 1
    assert stage.channel.health().ok, "this is how unverified accounts are"

    async def react(message: InboundMessage) -> None:
        await stage.reply_with(message, f"答复：{message.text}")

    stage.react = react
    assert await platform.ask("oA", "下一个") == ("头一个\n\n答复：下一个", 1)
    assert await platform.ask("oA", "第三个") == ("答复：第三个", 1)
    assert len(platform.of(SEND)) == 1, "found out once"


async def test_without_the_right_on_stays_active_and_says_so(platform: WeChatPlatform) -> None:
    platform.right = False
    async with staged(platform, Stage(), active_send="on") as stage:
        message = await heard(platform, stage)
        assert await stage.answer(message, "答复") == ["shelved"]
        assert "48001" in stage.channel.health().detail
        assert (await platform.ask("oA", "下一个"))[0] == "答复"
        platform.right = True
        assert await stage.answer(stage.message("下一个"), "第二个") == ["sent"]
        assert stage.channel.health().ok


@pytest.mark.parametrize("code", [40001, 40014, 42001])
async def test_a_refused_token_is_replaced_once(platform: WeChatPlatform, stage: Stage, code: int) -> None:
    message = await heard(platform, stage)
    platform.errors = [code]
    assert await stage.answer(message, "答复") == ["sent"]
    assert len(platform.of(STABLE_TOKEN)) == 2
    assert len(platform.of(SEND)) == 2


async def test_tokens_that_are_never_good_cost_two_calls(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    platform.tokens_die = True
    with pytest.raises(SendFailed):
        await stage.channel.send(part(message))
    assert len(platform.of(SEND)) == 2
    assert len(platform.of(STABLE_TOKEN)) == 2


async def test_many_sends_at_once_share_one_token(platform: WeChatPlatform, stage: Stage) -> None:
    platform.delay = 0.05
    people = [f"o{number}" for number in range(12)]
    messages = [await heard(platform, stage, f"问 {user}", user) for user in people]
    await asyncio.gather(*(stage.channel.send(part(message)) for message in messages))
    assert len(platform.of(STABLE_TOKEN)) == 1
    assert sorted(call.body["touser"] for call in platform.sent) == sorted(people)


@pytest.mark.parametrize(("code", "word"), [(40125, "app-secret"), (40164, "白名单")])
async def test_refused_credentials_are_named(
    platform: WeChatPlatform, stage: Stage, caplog: pytest.LogCaptureFixture, code: int, word: str
) -> None:
    message = await heard(platform, stage)
    platform.token_error = code
    with pytest.raises(SendFailed):
        await stage.channel.send(part(message, "一段私密的话"))
    health = stage.channel.health()
    assert not health.ok
    assert word in health.detail
    assert str(code) in health.detail
    assert APP_SECRET not in caplog.text + health.detail
    assert "私密" not in caplog.text


async def test_a_text_too_long_for_the_platform_goes_in_halves(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    platform.limit = 1000
    assert await stage.answer(message, "好" * 500) == ["sent"]
    assert "".join(call.text for call in platform.sent) == "好" * 500
    assert 2 <= len(platform.sent) <= 3
    platform.limit = 10
    with pytest.raises(SendRefused):
        await stage.channel.send(part(message, "x" * 150))


@pytest.mark.parametrize(
    ("code", "error"),
    [(45009, SendLimited), (45011, SendLimited), (43004, SendRefused), (40003, SendRefused), (48002, SendRefused)],
)
async def test_each_error_has_its_kind(
    platform: WeChatPlatform, stage: Stage, code: int, error: type[Exception]
) -> None:
    message = await heard(platform, stage)
    platform.errors = [code] * 9
    with pytest.raises(error, match=str(code)):
        await stage.channel.send(part(message))
    assert len(platform.of(SEND)) == 1


async def test_a_part_is_posted_once_and_a_busy_platform_asked_again_by_who_sends(
    platform: WeChatPlatform, stage: Stage
) -> None:
    message = await heard(platform, stage)
    platform.errors = [-1]
    with pytest.raises(SendFailed, match="-1") as caught:
        await stage.channel.send(part(message))
    assert not isinstance(caught.value, SendUncertain), "the platform said that it did not take it"
    assert len(platform.of(SEND)) == 1
    await stage.channel.send(part(message))
    assert len(platform.of(SEND)) == 2


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (web.Response(status=500, text="<html>"), SendFailed),
        (web.Response(text="<html>login</html>"), SendFailed),
        (web.Response(status=504, text="<html>"), SendUncertain),
        (web.Response(status=429), SendLimited),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), SendRefused),
    ],
)
async def test_answers_that_are_none(
    platform: WeChatPlatform, stage: Stage, response: web.Response, error: type[Exception]
) -> None:
    message = await heard(platform, stage)
    platform.raw = [response, web.Response(status=500)]
    with pytest.raises(error) as caught:
        await stage.channel.send(part(message))
    assert type(caught.value) is error
    assert len(platform.raw) == 1, "posted once"


async def test_no_answer_is_uncertain_and_posted_once(
    platform: WeChatPlatform, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await heard(platform, stage)
    assert await stage.answer(message, "先取得令牌") == ["sent"]
    monkeypatch.setattr("channels.calls.TRY_SECONDS", 0.1)
    platform.delay = 0.3
    with pytest.raises(SendUncertain, match="no answer"):
        await stage.channel.send(part(message))
    await until(lambda: len(platform.of(SEND)) == 2)


async def test_half_of_a_part_that_was_sent_makes_it_uncertain(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    platform.errors = [45002, 0, -1]
    with pytest.raises(SendUncertain, match="half"):
        await stage.channel.send(part(message, "好" * 500))


async def test_nobody_listens(platform: WeChatPlatform) -> None:
    async with staged(platform, Stage(), active_send="on", api_base_url="http://127.0.0.1:9") as stage:
        message = await heard(platform, stage)
        with pytest.raises(SendFailed):
            await stage.channel.send(part(message))
        assert "api-base-url" in stage.channel.health().detail


async def test_a_typing_sign_that_fails_hurts_nobody(platform: WeChatPlatform, stage: Stage) -> None:
    platform.token_error = 40164
    message = await heard(platform, stage)
    for _ in range(200):
        stage.channel.progress(message, Routed("a", "b"))
    assert stage.channel._typing.qsize() == 100, "the others are not shown"
    await asyncio.sleep(0.1)
    platform.token_error = 0


async def test_a_menu_click_allows_three(platform: WeChatPlatform, stage: Stage) -> None:
    click = message_xml("oA", "event", Event="CLICK", EventKey="推荐")
    delivered: Delivered = await platform.deliver(click)
    assert delivered.raw == "success"
    fate = await stage.answer(stage.message("推荐"), "好" * 4500)
    assert (fate[:4], fate[2:4]) == (["sent"] * 3 + ["shelved"], ["sent", "shelved"])


async def test_a_fetch_word_with_nothing_waiting_is_a_message(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage, "继续")
    assert await stage.answer(message, "答复") == ["sent"]


async def test_a_fetch_word_while_parts_are_being_sent_is_no_question(platform: WeChatPlatform, stage: Stage) -> None:
    message = await heard(platform, stage)
    await stage.channel.send(part(message, "第一段", 0, 2))
    assert await platform.ask("oA", "继续") == ("", 1)
    await stage.channel.send(part(message, "第二段", 1, 2))
    assert [call.text for call in platform.sent] == ["第一段", "第二段"]
    assert stage.messages == [message]


# ---- quota


actions = st.lists(st.sampled_from(["message", "event", "take", "take", "take", "spent"]) | st.integers(1, 90))


@given(actions)
def test_never_more_sends_than_the_platform_allows(actions: list[str | int]) -> None:
    """Against a model that keeps every allowance apart."""
    quota, now = Quota(), 0.0
    quota.heard("oA", now, event=False)
    message, click, click_until = MESSAGE_SENDS, 0, 0.0
    for action in actions:
        match action:
            case int():
                now += action
            case "message":
                quota.heard("oA", now, event=False)
                message = MESSAGE_SENDS
            case "event":
                quota.heard("oA", now, event=True)
                click, click_until = EVENT_SENDS, now + 60
            case "spent":
                quota.spent("oA", now)
                message = click = 0
            case _:
                usable = click if click_until > now else 0
                assert quota.left("oA", now) == message + usable
                assert quota.take("oA", now) == bool(message + usable)
                if usable:
                    click -= 1
                elif message:
                    message -= 1


def test_people_are_apart_and_the_unknown_may_be_sent_to() -> None:
    quota = Quota()
    quota.heard("oA", 0, event=False)
    for _ in range(MESSAGE_SENDS):
        assert quota.take("oA", 1)
    assert not quota.take("oA", 1)
    assert quota.take("oB", 1)
    assert quota.left("oB", 1) == MESSAGE_SENDS - 1
    assert quota.left("oA", 49 * 3600.0) == 0
