"""The web channel: a question becomes one message of the right lane, and its reader sees the answer's events."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import Admission, Answered, Delta, Failed, GatewayClosed, InboundMessage, Part, Progress, Routed
from channels.web import BadQuestion, Question, TooManyReaders, WebChannel
from gateway.config.texts import Texts
from memory.conversation import session_id, user_id


class Gate:
    """Stands for the gateway: keeps what it accepted; `error` is raised instead where set."""

    def __init__(self) -> None:
        self.accepted: list[InboundMessage] = []
        self.error: Exception | None = None

    async def accept(self, message: InboundMessage) -> Admission:
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        self.accepted.append(message)
        return Admission.ACCEPTED


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def web(gate: Gate) -> WebChannel:
    numbers = iter(range(10_000))
    return WebChannel("web", gate.accept, Texts().get, new_id=lambda: f"w-{next(numbers)}", patience=2.0, max_readers=3)


async def rest(events: AsyncIterator[Progress]) -> list[Progress]:
    return [event async for event in events]


async def test_a_question_is_accepted_in_its_lane(web: WebChannel, gate: Gate) -> None:
    await web.ask("ou_1", "你好", agent="general-agent", name="张三")
    await web.ask("ou_1", "你好", group="web group", session="s2")
    direct, group = gate.accepted
    assert str(direct.lane) == f"{user_id('web', 'web', 'ou_1')}:web:{session_id('web', 'web', 'ou_1')}:0"
    assert str(group.lane) == f"{user_id('web', 'web', 'ou_1')}:web:{session_id('web', 'web', 'web group', 's2')}:1"
    assert (direct.entry, direct.account, direct.agent, direct.name) == ("web", "web", "general-agent", "张三")
    assert direct.user == direct.lane.user
    assert direct.platform_user == "ou_1"
    assert direct.id != group.id


async def test_events_come_in_order_and_end_with_the_last(web: WebChannel, gate: Gate) -> None:
    reading = asyncio.create_task(rest(await web.ask("u", "问")))
    (message,) = gate.accepted
    sent = [Routed("general-agent", "默认"), Delta("答"), Delta("复"), Answered("答复")]
    for event in sent:
        web.progress(message, event)
        await asyncio.sleep(0.001)
    web.progress(message, Delta("太晚了"))
    assert await reading == sent
    assert web.health().detail.startswith("0 ")


async def test_a_slow_reader_gets_joined_deltas_and_always_the_last_event(web: WebChannel, gate: Gate) -> None:
    events = await web.ask("u", "问")
    (message,) = gate.accepted
    web.progress(message, Routed("a", "r"))
    for _ in range(10_000):
        web.progress(message, Delta("长" * 100))
    web.progress(message, Answered("全文"))
    got = await rest(events)
    assert [type(event) for event in got] == [Routed, Delta, Answered]
    assert len(got[1].text) <= 256 * 1024, "what waits is bounded"
    assert got[-1] == Answered("全文")


async def test_deltas_flow_again_after_a_slow_reader_caught_up(web: WebChannel, gate: Gate) -> None:
    events = await web.ask("u", "问")
    (message,) = gate.accepted
    web.progress(message, Delta("长" * 300_000))
    web.progress(message, Delta("短"))
    assert await anext(events) == Delta("短")
    web.progress(message, Delta("长" * 200_000))
    assert len((await anext(events)).text) == 200_000
    web.progress(message, Delta("长" * 200_000))
    assert len((await anext(events)).text) == 200_000, "what was read no longer counts"
    await events.aclose()


async def test_a_closed_tab_ends_only_the_reading(web: WebChannel, gate: Gate) -> None:
    events = await web.ask("u", "问")
    (message,) = gate.accepted
    web.progress(message, Delta("答"))
    assert await anext(events) == Delta("答")
    await events.aclose()
    web.progress(message, Delta("复"))
    web.progress(message, Answered("答复"))
    part = Part(message=message, text="答复", number=0, total=1, key="k")
    assert await web.send(part) == ""
    assert gate.accepted == [message]


async def test_two_questions_do_not_mix(web: WebChannel, gate: Gate) -> None:
    first, second = await web.ask("u", "一"), await web.ask("u", "二")
    one, two = gate.accepted
    web.progress(two, Answered("答二"))
    web.progress(one, Answered("答一"))
    assert await rest(first) == [Answered("答一")]
    assert await rest(second) == [Answered("答二")]


async def test_waiting_is_bounded(gate: Gate) -> None:
    web = WebChannel("web", gate.accept, Texts().get, new_id=lambda: "w", patience=0.02)
    (event,) = await rest(await web.ask("u", "问"))
    assert isinstance(event, Failed)
    assert event.message


async def test_readers_are_bounded(web: WebChannel) -> None:
    held = [await web.ask("u", "问") for _ in range(3)]
    with pytest.raises(TooManyReaders):
        await web.ask("u", "问")
    assert len(held) == 3


async def test_a_refused_message_leaves_no_reader(web: WebChannel, gate: Gate) -> None:
    gate.error = GatewayClosed()
    for _ in range(5):
        with pytest.raises(GatewayClosed):
            await web.ask("u", "问")


async def test_stop_takes_no_more_but_lets_answers_finish(web: WebChannel, gate: Gate) -> None:
    events = await web.ask("u", "问")
    left = await web.ask("u", "又问")
    await web.stop_receiving()
    with pytest.raises(GatewayClosed):
        await web.ask("u", "再问")
    web.progress(gate.accepted[0], Answered("答"))
    assert await rest(events) == [Answered("答")]
    await web.close()
    (event,) = await rest(left)
    assert isinstance(event, Failed), "whoever still waits is told"
    assert not web.health().ok


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", ""),
        ("user", "   "),
        ("user", "u" * 201),
        ("user", "a\0b"),
        ("user", "a\nb"),
        ("user", "a\ud800"),
        ("text", ""),
        ("text", " \n\t"),
        ("group", ""),
        ("group", "g" * 201),
        ("session", "s\0"),
        ("name", "n\x1b[31m"),
        ("agent", "../etc/passwd"),
        ("agent", "Upper"),
        ("agent", ""),
    ],
)
async def test_bad_questions_name_the_field(web: WebChannel, gate: Gate, field: str, value: str) -> None:
    with pytest.raises(BadQuestion, match=field):
        await web.ask(**{"user": "u", "text": "问", field: value})  # type: ignore[arg-type]
    assert not gate.accepted


ANYTHING = st.text(st.characters(), min_size=1, max_size=300)


@given(ANYTHING, ANYTHING)
def test_whatever_passes_the_check_can_be_stored(user: str, text: str) -> None:
    try:
        question = Question(user=user, text=text)
    except BadQuestion:
        return
    assert question.user.encode("utf-8")
    assert "\0" not in question.user


async def test_half_characters_of_a_text_are_replaced(web: WebChannel, gate: Gate) -> None:
    await web.ask("u", "好\ud83d")
    assert gate.accepted[0].text == "好\ufffd"
