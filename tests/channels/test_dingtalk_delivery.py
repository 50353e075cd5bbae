"""Sending: by the session webhook while it lasts, else by the robot API; once, paced, each error to its remedy."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import markup
from channels.channel import SendFailed, SendLimited, SendRefused, SendUncertain
from channels.dingtalk.api import DingTalkApi
from channels.dingtalk.channel import DingTalkChannel
from channels.dingtalk.codes import Remedy, api_remedy, webhook_remedy
from channels.dingtalk.delivery import Delivery
from channels.dingtalk.render import PART_BYTES, message_parameters, webhook_body
from channels.dingtalk.session_webhook import session_webhook
from channels.health import Troubles
from channels.message import InboundMessage, Part
from channels.split import split
from tests.channels.dingtalk_recorder import asked, channel, settings
from tests.channels.feishu_recorder import Recorder, part
from tests.platforms.dingtalk_gateway import GROUP, SINGLE, TOKEN, FakeDingTalk
from tests.waiting import until

SESSION = "/robot/sendBySession"
GONE = {"errcode": 300001, "errmsg": "session 不存在"}


@pytest.fixture
async def ding() -> AsyncIterator[FakeDingTalk]:
    async with FakeDingTalk() as server:
        yield server


@pytest.fixture
async def dingtalk(ding: FakeDingTalk) -> AsyncIterator[DingTalkChannel]:
    made = channel(ding, Recorder())
    yield made
    await made.close()


def ends(seconds: float) -> int:
    """A time `seconds` from now as the platform writes it."""
    return int((time.time() + seconds) * 1000)


def without_webhook(ding: FakeDingTalk, kind: str = "1", **over: Any) -> InboundMessage:
    return asked(base=ding.base, kind=kind, sessionWebhookExpiredTime=ends(-10), **over)


# ---------------------------------------------------------------- the way


async def test_an_answer_goes_to_the_webhook_of_its_message(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    message = asked(base=ding.base, sessionWebhook=f"{ding.base}{SESSION}?session=abc%2F%3D+d")
    (text,) = dingtalk.parts("# 标题\n**答**\n次行", "…")
    await dingtalk.send(part(message, text))
    (reply,) = ding.replies
    assert reply.session == "abc/= d", "the address is used as it was given"
    assert reply.body == {"msgtype": "markdown", "markdown": {"title": "【标题】", "text": "# 标题\n**答**  \n次行"}}
    assert [call.path for call in ding.calls] == [SESSION], "no token is needed"


async def test_in_a_group_the_asker_is_mentioned_once(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    message = asked(base=ding.base, kind="2", staff="staff009")
    await dingtalk.send(part(message, "# 一", 0, 2))
    await dingtalk.send(part(message, "二", 1, 2))
    first, second = (reply.body for reply in ding.replies)
    assert first["at"] == {"atUserIds": ["staff009"], "isAtAll": False}
    assert first["markdown"]["text"] == "@staff009\n\n# 一"
    assert "staff009" not in first["markdown"]["title"]
    assert "at" not in second
    assert second["markdown"]["text"] == "二"
    await dingtalk.send(part(asked(base=ding.base, kind="2", senderStaffId=None), "三"))
    assert "at" not in ding.replies[-1].body


@pytest.mark.parametrize("left", [-10, 30, 59])
async def test_a_webhook_that_is_about_to_end_is_not_used(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, left: float
) -> None:
    key = await dingtalk.send(part(asked(base=ding.base, sessionWebhookExpiredTime=ends(left)), "**答**"))
    assert key
    assert not ding.replies
    (body,) = ding.sent(SINGLE)
    assert (body["robotCode"], body["userIds"], body["msgKey"]) == ("dingfakeappkey", ["staff001"], "sampleMarkdown")
    assert json.loads(body["msgParam"]) == {"title": "答", "text": "**答**"}


async def test_a_group_is_reached_by_its_conversation(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    message = without_webhook(ding, "2", conversation="cidG==", robotCode="robot7")
    assert await dingtalk.send(part(message, "答"))
    (body,) = ding.sent(GROUP)
    assert (body["robotCode"], body["openConversationId"]) == ("robot7", "cidG==")
    assert "@" not in body["msgParam"], "this API mentions nobody"


@pytest.mark.parametrize(("kind", "path"), [("1", SINGLE), ("2", GROUP)])
@pytest.mark.parametrize(
    "answer",
    [(200, GONE), (200, {"errcode": 460101}), (200, {"errcode": 987654}), (404, "<html>")],
)
async def test_what_the_webhook_does_not_take_goes_by_the_api_once(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, kind: str, path: str, answer: tuple[int, Any]
) -> None:
    ding.faults[SESSION] = [answer]
    assert await dingtalk.send(part(asked(base=ding.base, kind=kind), "答"))
    assert [call.path for call in ding.calls] == [SESSION, TOKEN, path]


async def test_a_webhook_nobody_listens_at_is_gone_round(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    made = channel(ding, Recorder(), **{"oapi-base-url": "http://127.0.0.1:9"})
    try:
        assert await made.send(part(asked(base="http://127.0.0.1:9"), "答"))
        assert ding.sent(SINGLE)
    finally:
        await made.close()


async def test_an_outsider_without_webhook_cannot_be_reached(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    with pytest.raises(SendRefused, match="staff id"):
        await dingtalk.send(part(without_webhook(ding, senderStaffId=None), "答"))
    assert not ding.calls


async def test_a_webhook_of_a_stranger_is_never_posted_to(ding: FakeDingTalk) -> None:
    made = channel(ding, Recorder(), **{"oapi-base-url": "https://oapi.dingtalk.com"})
    try:
        await made.send(part(asked(base=ding.base), "答"))
        assert not ding.replies
        assert ding.sent(SINGLE)
    finally:
        await made.close()


@pytest.mark.parametrize("host", ["oapi.dingtalk.com", "api.dingtalk.com", "dingtalk.com", "OAPI.DingTalk.COM"])
def test_hosts_of_dingtalk_are_trusted(host: str) -> None:
    assert session_webhook(f"https://{host}/robot/sendBySession?session=x", "https://oapi.dingtalk.com")


@pytest.mark.parametrize(
    "address",
    [
        "http://oapi.dingtalk.com/x",
        "https://oapi.dingtalk.com:8443/x",
        "https://oapi.dingtalk.com.evil.example/x",
        "https://evildingtalk.com/x",
        "https://oapi.dingtalk.com@127.0.0.1/x",
        "https://user:pass@oapi.dingtalk.com/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://localhost/?.dingtalk.com",
        "https://evil.example/#.dingtalk.com",
        "https://evil.example\\.dingtalk.com/x",
        "https://169.254.169.254/latest/meta-data",
        "ftp://oapi.dingtalk.com/x",
        "file:///etc/passwd",
        "//oapi.dingtalk.com/x",
        "oapi.dingtalk.com",
        "https://",
        "https://[",
        "https://a:b:c/",
        "",
    ],
)
def test_no_other_address_is_trusted(address: str) -> None:
    assert session_webhook(address, "https://oapi.dingtalk.com") is None
    assert session_webhook(address, "http://127.0.0.1:18900") is None


@given(st.text(max_size=60))
def test_no_address_raises(address: str) -> None:
    for text in (address, "https://" + address, f"https://oapi.dingtalk.com{address}"):
        found = session_webhook(text, "https://oapi.dingtalk.com")
        assert found is None or (found.host or "").endswith("dingtalk.com")


# ---------------------------------------------------------------- once


async def test_a_slow_webhook_is_waited_for_and_sent_to_once(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform takes it after what is a try's time elsewhere: one message for the person, not two."""
    monkeypatch.setattr("channels.calls.TRY_SECONDS", 0.2)
    ding.delays[SESSION] = 0.5
    await dingtalk.send(part(asked(base=ding.base), "答"))
    assert [call.path for call in ding.calls] == [SESSION]


async def test_a_platform_that_never_answers_is_given_up(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.dingtalk.api.ANSWER_SECONDS", 0.2)
    ding.delays[SESSION] = 60
    with pytest.raises(SendUncertain, match="no answer"):
        await dingtalk.send(part(asked(base=ding.base), "答"))
    assert {call.path for call in ding.calls} <= {SESSION}, "whether it was taken is not known: not by the API as well"
    assert len(ding.calls) <= 1
    ding.delays = {SINGLE: 60}
    with pytest.raises(SendUncertain, match="no answer"):
        await dingtalk.send(part(without_webhook(ding), "答"))
    ding.delays = {TOKEN: 60}
    ding.revoke_tokens()
    monkeypatch.setattr("channels.calls.TRY_SECONDS", 0.2)
    with pytest.raises(SendFailed) as caught:
        await dingtalk.send(part(without_webhook(ding), "答"))
    assert not isinstance(caught.value, SendUncertain), "without a token nothing was sent"


async def test_a_slow_webhook_holds_up_no_other_chat(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    ding.delays[SESSION] = 60
    slow = asyncio.create_task(dingtalk.send(part(asked(base=ding.base, conversation="cidSlow"), "答")))
    await until(lambda: ding.sent(SESSION))
    await dingtalk.send(part(without_webhook(ding), "答"))
    assert not slow.done()
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "answer", ["<html>banned</html>", {}, [], {"errcode": None}, {"errcode": "x"}, {"errcode": -1}]
)
async def test_an_answer_that_is_none_is_tried_again_later(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, answer: Any
) -> None:
    ding.reply_answer = answer
    with pytest.raises(SendFailed):
        await dingtalk.send(part(asked(base=ding.base), "答"))
    assert not ding.sent(SINGLE)


@pytest.mark.parametrize("errcode", [130101, 90002, 90018, 90019])
async def test_too_fast_for_the_webhook_is_waited_for(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, errcode: int
) -> None:
    ding.reply_answer = {"errcode": errcode, "errmsg": "send too fast"}
    with pytest.raises(SendLimited) as caught:
        await dingtalk.send(part(asked(base=ding.base), "答"))
    assert 20 <= caught.value.retry_after <= 40
    assert not ding.sent(SINGLE)


@pytest.mark.parametrize("errcode", [90020, 90030])
async def test_a_spent_quota_is_refused_and_told_to_admins(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, errcode: int
) -> None:
    ding.reply_answer = {"errcode": errcode}
    with pytest.raises(SendRefused):
        await dingtalk.send(part(asked(base=ding.base), "答"))
    assert "额度" in dingtalk.health().detail
    assert str(errcode) in dingtalk.health().detail
    ding.reply_answer = {"errcode": 0}
    await dingtalk.send(part(asked(base=ding.base), "答"))
    assert dingtalk.health().ok


@pytest.mark.parametrize(
    ("answer", "error", "detail"),
    [
        ((403, {"code": "Forbidden.AccessDenied.QpsLimitForApi"}), SendLimited, ""),
        ((429, {"code": "x"}), SendLimited, ""),
        ((403, {"code": "Forbidden.AccessDenied.AccessTokenPermissionDenied"}), SendRefused, "qyapi_robot_sendmsg"),
        ((403, {"code": "Forbidden.AccessDenied.ApiCountLimitForOrg"}), SendRefused, "额度"),
        ((400, {"code": "invalidParameter.x"}), SendRefused, ""),
        ((404, {"code": "resource.not.found"}), SendRefused, ""),
        ((500, {"code": "ServiceUnavailable"}), SendFailed, ""),
        ((502, "<html>bad gateway</html>"), SendUncertain, ""),
        ((403, "<html>banned</html>"), SendFailed, ""),
        ((200, "<html>banned</html>"), SendFailed, ""),
    ],
)
async def test_each_error_of_the_api_has_its_remedy(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, answer: tuple[int, Any], error: type[Exception], detail: str
) -> None:
    ding.faults[SINGLE] = [answer]
    with pytest.raises(error):
        await dingtalk.send(part(without_webhook(ding), "答"))
    assert len(ding.sent(SINGLE)) == 1
    assert detail in dingtalk.health().detail
    assert dingtalk.health().ok == (not detail)


async def test_a_person_the_platform_does_not_know_is_refused(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    ding.single_lists = {"invalidStaffIdList": ["staff001"]}
    with pytest.raises(SendRefused):
        await dingtalk.send(part(without_webhook(ding), "答"))


async def test_a_person_who_gets_too_many_is_waited_for(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    ding.single_lists = {"flowControlledStaffIdList": ["staff001"]}
    with pytest.raises(SendLimited):
        await dingtalk.send(part(without_webhook(ding), "答"))


# ---------------------------------------------------------------- the token


async def test_a_revoked_token_is_fetched_once_and_the_calls_repeated(
    ding: FakeDingTalk, dingtalk: DingTalkChannel
) -> None:
    await asyncio.gather(*(dingtalk.send(part(without_webhook(ding, conversation=f"c{n}"), "一")) for n in range(3)))
    assert len(ding.sent(TOKEN)) == 1
    ding.revoke_tokens()
    await asyncio.gather(*(dingtalk.send(part(without_webhook(ding, conversation=f"d{n}"), "二")) for n in range(3)))
    assert len(ding.sent(TOKEN)) == 2


@pytest.mark.parametrize("answer", [(400, {"code": "InvalidAuthentication"}), (401, {"code": "x"})])
async def test_a_token_that_stays_refused_ends_in_a_failure(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, answer: tuple[int, Any]
) -> None:
    ding.faults[SINGLE] = [answer] * 2
    with pytest.raises(SendFailed):
        await dingtalk.send(part(without_webhook(ding), "答"))
    assert len(ding.sent(TOKEN)) == len(ding.sent(SINGLE)) == 2


async def test_a_wrong_secret_is_named(ding: FakeDingTalk) -> None:
    made = channel(ding, Recorder(), **{"client-secret": "wrong-secret-7"})
    try:
        with pytest.raises(SendFailed):
            await made.send(part(without_webhook(ding), "答"))
        assert "client-secret" in made.health().detail
        assert "wrong-secret-7" not in made.health().detail
        with pytest.raises(SendFailed):
            await made.send(part(without_webhook(ding), "答"))
        assert len(ding.sent(TOKEN)) == 1, "not asked again at once"
    finally:
        await made.close()


@pytest.mark.parametrize(
    "answer",
    [(500, "<html>"), (200, {}), (200, {"accessToken": "a\nb", "expireIn": 7200}), (200, {"accessToken": "t"})],
)
async def test_a_token_that_is_none_is_a_failure(
    ding: FakeDingTalk, dingtalk: DingTalkChannel, answer: tuple[int, Any]
) -> None:
    ding.faults[TOKEN] = [answer]
    with pytest.raises(SendFailed):
        await dingtalk.send(part(without_webhook(ding), "答"))


# ---------------------------------------------------------------- pace and size


class Quick:
    """An API that takes everything at once and remembers when, by a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def post_to_session(self, webhook: object, body: str) -> None:
        self.sent.append(self.now)

    async def send_to_person(self, robot: str, staff: str, parameters: str) -> str:
        self.sent.append(self.now)
        return "k"


async def deliver_all(parts: list[Part]) -> list[float]:
    """Sends as the outbox does: a limited part is tried again when its wait is over."""
    quick: Any = Quick()
    delivery = Delivery(
        quick,
        Troubles("d", lambda: 0.0),
        "http://127.0.0.1:9",
        now=lambda: quick.now,
        sleep=quick.sleep,
        rng=lambda: 0.0,
    )
    for each in parts:
        while True:
            try:
                await delivery.send(each)
            except SendLimited as limited:
                quick.now += limited.retry_after
            else:
                break
    return list(quick.sent)


async def test_a_chat_gets_at_most_20_messages_in_any_minute() -> None:
    sent = await deliver_all([part(asked(), "答")] * 45)
    assert sent[9] == 0, "ten at once after a rest"
    assert all(later - earlier >= 59.9 for earlier, later in zip(sent, sent[20:], strict=False))


async def test_other_chats_do_not_wait() -> None:
    assert max(await deliver_all([part(asked(conversation=f"c{n}"), "答") for n in range(500)])) == 0


async def test_the_api_is_called_at_most_15_times_in_any_second() -> None:
    ended = ends(-10)
    parts = [part(asked(conversation=f"c{n}", sessionWebhookExpiredTime=ended), "答") for n in range(60)]
    sent = await deliver_all(parts)
    assert all(later - earlier > 1 for earlier, later in zip(sent, sent[15:], strict=False))
    assert max(sent) < 5


@given(st.text(alphabet=st.sampled_from('好a"\\\n\t🚀`#|-*_<>@/:. '), max_size=6000))
def test_every_part_fits_both_ways(text: str) -> None:
    for piece in split(markup.dingtalk(text), PART_BYTES, notice="（未完）"):
        assert len(piece.encode()) <= PART_BYTES
        assert len(message_parameters(piece).encode()) <= 15_000
        assert len(webhook_body(piece, "s" * 64).encode()) <= 18_000


def test_the_parts_of_a_channel_are_the_whole_answer() -> None:
    async def unused(message: InboundMessage) -> Any: ...

    made = DingTalkChannel(
        "dingtalk", settings(SimpleNamespace(client_id="a", client_secret="b", base="http://x")), unused
    )  # type: ignore[arg-type]
    assert "".join(made.parts("好" * 5000, "…")) == "好" * 5000
    assert [len(piece) for piece in made.parts("好" * 5000, "…")] == [1500, 1500, 1500, 500]
    assert made.parts("", "…") == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("**你好**，张三", "你好，张三"),
        ("2026 年计划\n第二行", "2026 年计划"),
        ("\n\n后面", "后面"),
        ("好" * 50, "好" * 40 + "…"),
        ("", "回复"),
        ("   ", "回复"),
        ("[链接](https://a.example)", "链接（https://a.example）"),
    ],
)
def test_the_title_is_the_start_of_the_text(text: str, title: str) -> None:
    assert json.loads(message_parameters(text))["title"] == title


async def test_an_answer_can_mention_nobody(ding: FakeDingTalk, dingtalk: DingTalkChannel) -> None:
    (text,) = dingtalk.parts("@all @staff002 <@staff002> ![x](https://evil.example/?q=secret)", "…")
    await dingtalk.send(part(asked(base=ding.base), text))
    (reply,) = ding.replies
    assert "at" not in reply.body
    assert "![" not in reply.text


def test_codes_are_told_apart() -> None:
    assert webhook_remedy(200, 300001) is Remedy.OTHER_WAY
    assert webhook_remedy(503, None) is webhook_remedy(403, None) is Remedy.ASK_AGAIN
    assert api_remedy(403, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi") is Remedy.WAIT
    assert api_remedy(400, "invalidClientIdOrSecret") is Remedy.BAD_CREDENTIALS


async def test_api_secrets_are_in_no_error(ding: FakeDingTalk) -> None:
    api = DingTalkApi(settings(ding), Troubles("d", time.time))
    try:
        ding.faults[SINGLE] = [(500, {"code": "x", "message": "quotes 你的话"})]
        with pytest.raises(Exception, match="status 500") as caught:
            await api.send_to_person("r", "s", "你的话")
        assert "你的话" not in str(caught.value)
        assert ding.client_secret not in repr(api) + str(vars(api))
    finally:
        await api.close()
