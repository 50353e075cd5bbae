"""Passive replies through real sockets: three deliveries, what comes late, fetch words, repeats, restarts, races."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from channels.channel import SendDeferred, ShelvedPart
from channels.message import GatewayClosed, InboundMessage, Part, Routed
from channels.wechat.events import Account, read_message
from channels.wechat.exchange import Exchange
from channels.wechat.passive import FETCH_WORDS, Passive, Times
from gateway.config.texts import Texts
from tests.channels.wechat_stage import LATER, MORE, Stage, staged
from tests.platforms.wechat_platform import Delivered, WeChatPlatform, message_xml
from tests.waiting import until


@pytest.fixture
async def platform() -> AsyncIterator[WeChatPlatform]:
    async with WeChatPlatform() as started:
        yield started


@pytest.fixture
async def stage(platform: WeChatPlatform) -> AsyncIterator[Stage]:
    async with staged(platform, Stage()) as running:
        yield running


def text_xml(user: str, text: str, number: int) -> str:
    return message_xml(user, Content=text, MsgId=number)


def answering(stage: Stage, after: float = 0.0) -> None:
    """Every message is answered with 答复：… after so many seconds."""

    async def react(message: InboundMessage) -> None:
        await stage.reply_with(message, f"答复：{message.text}", after)

    stage.react = react


async def promised(platform: WeChatPlatform, stage: Stage, user: str = "oA", text: str = "很慢") -> InboundMessage:
    """A message whose third delivery said that the answer follows; they overlap, for the sake of time."""
    xml = text_xml(user, text, platform.new_id())
    with stage.times.short():
        delivered = await asyncio.gather(*(platform.deliver(xml) for _ in range(3)))
    assert sorted(each.text for each in delivered) == ["", "", LATER]
    return stage.message(text)


async def test_an_answer_in_time_is_the_reply_to_the_first_delivery(platform: WeChatPlatform, stage: Stage) -> None:
    answering(stage)
    assert await platform.ask("oA", "你好") == ("答复：你好", 1)
    assert [(m.text, m.platform_user, m.account) for m in stage.messages] == [("你好", "oA", "wx1234567890abcdef")]


async def test_a_slow_answer_is_the_reply_to_the_second_delivery(platform: WeChatPlatform, stage: Stage) -> None:
    xml = text_xml("oA", "慢", 1)
    with stage.times.short():
        assert (await platform.deliver(xml)).cut
    second = asyncio.create_task(platform.deliver(xml))
    await stage.held()
    assert await stage.answer(stage.message("慢"), "答复：慢") == ["sent"]
    assert (await second).text == "答复：慢"
    assert len(stage.messages) == 1
    assert stage.shelf == []


async def test_the_first_two_deliveries_end_unanswered_and_the_third_says_later(
    platform: WeChatPlatform, stage: Stage
) -> None:
    xml = text_xml("oA", "很慢", 1)
    with stage.times.short(0.2):
        first, second, third, fourth = [await platform.deliver(xml) for _ in range(4)]
    assert first.cut
    assert second.cut
    assert first.took >= 0.2
    assert (third.status, third.text) == (fourth.status, fourth.text) == (200, LATER)
    assert len(stage.messages) == 1


async def test_a_fetch_word_fetches_the_late_answer_once(platform: WeChatPlatform, stage: Stage) -> None:
    message = await promised(platform, stage)
    assert await stage.answer(message, "迟到的答复") == ["shelved"]
    assert await platform.ask("oA", "继续") == ("迟到的答复", 1)
    assert stage.shelf == []
    assert len(stage.messages) == 1, "the fetch word is no question"
    answering(stage)
    assert await platform.ask("oA", "继续") == ("答复：继续", 1), "nothing waits: an ordinary message"


async def test_a_fetch_word_waits_for_the_promised_answer(platform: WeChatPlatform, stage: Stage) -> None:
    message = await promised(platform, stage)
    asking = asyncio.create_task(platform.ask("oA", "1"))
    await stage.held()
    await asyncio.sleep(0.1)
    assert await stage.answer(message, "答复") == ["sent"]
    assert await asking == ("答复", 1)
    assert len(stage.messages) == 1


async def test_a_fetch_word_before_the_answer_is_told_later_too(platform: WeChatPlatform, stage: Stage) -> None:
    message = await promised(platform, stage)
    with stage.times.short():
        assert await platform.ask("oA", "更多") == (LATER, 3)
    assert await stage.answer(message, "答复") == ["shelved"]
    assert await platform.ask("oA", "更多") == ("答复", 1)
    assert len(stage.messages) == 1


async def test_a_fetch_word_in_the_very_moment_of_shelving_fetches(
    platform: WeChatPlatform, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.wechat.exchange._SHELVING_SECONDS", 30.0)
    stage.shelving = asyncio.Event()
    message = await promised(platform, stage)
    answer = asyncio.create_task(stage.answer(message, "答复"))
    await asyncio.sleep(0.02)
    asking = asyncio.create_task(platform.ask("oA", "继续"))
    await stage.held()
    await asyncio.sleep(0.1)
    assert stage.shelf == []
    stage.shelving.set()
    assert await asking == ("答复", 1)
    assert await answer == ["shelved"]
    assert len(stage.messages) == 1


async def test_a_promise_ends_with_a_turn_that_says_nothing(platform: WeChatPlatform, stage: Stage) -> None:
    message = await promised(platform, stage)
    asking = asyncio.create_task(platform.deliver(text_xml("oA", "继续", 2)))
    await stage.held()
    await asyncio.sleep(0.1)
    stage.silent(message)
    delivered = await asking
    assert (delivered.raw, len(stage.messages)) == ("success", 1)
    answering(stage)
    assert (await platform.ask("oA", "继续"))[0] == "答复：继续"


@pytest.mark.parametrize("word", sorted(FETCH_WORDS))
async def test_every_fetch_word(platform: WeChatPlatform, stage: Stage, word: str) -> None:
    answering(stage)
    assert (await platform.ask("oB", word))[0] == f"答复：{word}"
    await stage.answer(stage.message(word), "在架上")
    assert await platform.ask("oB", f" {word.upper()}。") == ("在架上", 1)


async def test_parts_belong_to_one_person(platform: WeChatPlatform, stage: Stage) -> None:
    message = await promised(platform, stage, "oA")
    await stage.answer(message, "A 的私事")
    answering(stage)
    assert await platform.ask("oB", "继续") == ("答复：继续", 1)
    assert await platform.ask("oA", "继续") == ("A 的私事", 1)


async def test_the_next_contact_gets_the_late_answer_and_its_own(platform: WeChatPlatform, stage: Stage) -> None:
    await stage.answer(await promised(platform, stage), "迟到的答复")
    answering(stage)
    assert await platform.ask("oA", "另一个问题") == ("迟到的答复\n\n答复：另一个问题", 1)
    assert stage.shelf == []


async def test_what_comes_late_while_a_question_is_held_keeps_its_answer_from_nothing(
    platform: WeChatPlatform, stage: Stage
) -> None:
    """The answers of one person go out one after the other: whoever held the first would never see the second."""
    late = await promised(platform, stage)
    asking = asyncio.create_task(platform.ask("oA", "另一个问题"))
    message = await stage.taken("另一个问题")
    await stage.held()
    assert await stage.answer(late, "迟到的答复") == ["shelved"]
    assert await stage.answer(message, "第二个答复") == ["sent"]
    assert await asking == ("迟到的答复\n\n第二个答复", 1)
    assert stage.shelf == []


async def test_two_answers_that_come_late_are_not_overtaken_by_the_next_one(
    platform: WeChatPlatform, stage: Stage
) -> None:
    one, two = await promised(platform, stage), await promised(platform, stage, text="也很慢")
    asking = asyncio.create_task(platform.ask("oA", "第三问"))
    message = await stage.taken("第三问")
    await stage.held()
    answers = [("一", one), ("二", two), ("三", message)]
    assert [await stage.answer(each, text) for text, each in answers] == [["shelved"]] * 3
    assert await asking == (f"一\n\n{MORE}", 1)
    assert await platform.ask("oA", "继续") == (f"二\n\n{MORE}", 1)
    assert await platform.ask("oA", "继续") == ("三", 1)


async def test_an_own_answer_that_is_not_ready_waits_in_turn(platform: WeChatPlatform, stage: Stage) -> None:
    await stage.answer(await promised(platform, stage), "迟到的答复")
    with stage.times.short():
        text, deliveries = await platform.ask("oA", "另一个问题")
    assert (text, deliveries) == (f"迟到的答复\n\n{LATER}", 1)
    assert await stage.answer(stage.message("另一个问题"), "第二个答复") == ["shelved"]
    assert await platform.ask("oA", "继续") == ("第二个答复", 1)


async def test_an_own_answer_that_does_not_fit_waits_in_turn(platform: WeChatPlatform, stage: Stage) -> None:
    long = "好" * 600
    await stage.answer(await promised(platform, stage), "迟" * 600)

    async def react(message: InboundMessage) -> None:
        await stage.answer(message, long)

    stage.react = react
    assert await platform.ask("oA", "另一个问题") == ("迟" * 600 + "\n\n" + MORE, 1)
    await until(lambda: stage.shelf)
    assert await platform.ask("oA", "继续") == (long, 1)


async def test_a_long_answer_comes_part_by_part_in_order(platform: WeChatPlatform, stage: Stage) -> None:
    async def react(message: InboundMessage) -> None:
        await stage.answer(message, "好" * 1500)

    stage.react = react
    seen = [(await platform.ask("oA", "长文"))[0]]
    await until(lambda: len(stage.shelf) == 2)
    seen += [(await platform.ask("oA", "继续"))[0] for _ in range(2)]
    assert [text.endswith(MORE) for text in seen] == [True, True, False]
    assert "".join(text.removesuffix(MORE).strip() for text in seen) == "好" * 1500
    assert len(stage.messages) == 1
    assert stage.shelf == []


async def test_a_fetch_word_right_after_the_first_part_fetches_the_second(
    platform: WeChatPlatform, stage: Stage
) -> None:
    """The gateway has noted the first part and not yet come to the second."""
    asking = asyncio.create_task(platform.ask("oA", "长文"))
    message = await stage.taken("长文")
    await stage.channel.send(Part(message=message, text="第一段", number=0, total=2, key="k0"))
    assert await asking == (f"第一段\n\n{MORE}", 1)
    fetching = asyncio.create_task(platform.ask("oA", "继续"))
    await stage.held()
    await asyncio.sleep(0.1)
    await stage.channel.send(Part(message=message, text="第二段", number=1, total=2, key="k1"))
    assert await fetching == ("第二段", 1)
    assert stage.messages == [message]


async def test_an_answer_becomes_ready_while_another_message_is_open(platform: WeChatPlatform, stage: Stage) -> None:
    slow = await promised(platform, stage)
    asking = asyncio.create_task(platform.ask("oA", "第二个问题"))
    second = await stage.taken("第二个问题")
    answers = stage.spawn(stage.answer(slow, "第一个答复"))
    await asyncio.sleep(0.05)
    assert await stage.answer(second, "第二个答复") == ["sent"]
    assert await asking == ("第一个答复\n\n第二个答复", 1)
    assert (await answers, stage.shelf) == (["shelved"], [])


async def test_two_open_deliveries_get_their_own_answers(platform: WeChatPlatform, stage: Stage) -> None:
    one = asyncio.create_task(platform.ask("oA", "一"))
    two = asyncio.create_task(platform.ask("oA", "二"))
    await stage.answer(await stage.taken("一"), "答一")
    await stage.answer(await stage.taken("二"), "答二")
    assert (await one, await two) == (("答一", 1), ("答二", 1))


async def test_a_repeated_id_gets_the_same_answer_and_asks_nobody(platform: WeChatPlatform, stage: Stage) -> None:
    answering(stage)
    xml = text_xml("oA", "你好", 5)
    assert [(await platform.deliver(xml)).text for _ in range(3)] == ["答复：你好"] * 3
    assert len(stage.messages) == 1


async def test_overlapping_deliveries_share_one_turn(platform: WeChatPlatform, stage: Stage) -> None:
    answering(stage, after=0.2)
    xml = text_xml("oA", "你好", 6)
    delivered = await asyncio.gather(*(platform.deliver(xml) for _ in range(4)))
    assert {each.text for each in delivered} == {"答复：你好"}
    assert len(stage.messages) == 1
    assert stage.shelf == []


async def test_a_merged_turn_answers_the_newest_delivery(platform: WeChatPlatform, stage: Stage) -> None:
    one = asyncio.create_task(platform.deliver(text_xml("oA", "一", 1)))
    older = await stage.taken("一")
    two = asyncio.create_task(platform.deliver(text_xml("oA", "二", 2)))
    newer = await stage.taken("二")
    stage.joined(older, newer)
    assert (await one).raw == "success"
    await stage.answer(newer, "合并的答复")
    assert (await two).text == "合并的答复"
    assert (await platform.deliver(text_xml("oA", "一", 1))).raw == "success"


async def test_a_promise_moves_to_the_message_it_was_merged_into(platform: WeChatPlatform, stage: Stage) -> None:
    older = await promised(platform, stage)
    with stage.times.short():
        assert (await platform.deliver(text_xml("oA", "二", 2))).cut
    newer = stage.message("二")
    stage.joined(older, newer)
    asking = asyncio.create_task(platform.ask("oA", "继续"))
    await stage.held()
    await asyncio.sleep(0.1)
    await stage.answer(newer, "合并的答复")
    assert await asking == ("合并的答复", 1)


async def test_a_turn_that_says_nothing_is_success(platform: WeChatPlatform, stage: Stage) -> None:
    asking = asyncio.create_task(platform.deliver(text_xml("oA", "嗯", 1)))
    stage.silent(await stage.taken("嗯"))
    delivered = await asking
    assert (delivered.status, delivered.raw) == (200, "success")


async def test_an_answer_between_two_deliveries_is_the_reply_to_the_next(
    platform: WeChatPlatform, stage: Stage
) -> None:
    xml = text_xml("oA", "慢", 1)
    with stage.times.short():
        assert (await platform.deliver(xml)).cut
    assert await stage.answer(stage.message("慢"), "答复") == ["shelved"]
    delivered = await platform.deliver(xml)
    assert delivered.text == "答复"
    assert stage.shelf == []
    assert (await platform.deliver(xml)).text == "答复"


async def test_after_a_restart_the_repeated_delivery_gets_the_answer_of_the_rerun(
    platform: WeChatPlatform, stage: Stage
) -> None:
    stage.messages.append(await _message(stage, platform, 9))
    asking = asyncio.create_task(platform.deliver(text_xml("oA", "旧", 9)))
    await until(lambda: stage.duplicates)
    await stage.reply_with(stage.messages[0], "重做的答复")
    assert (await asking).text == "重做的答复"


async def test_after_a_restart_what_was_answered_is_answered_again(platform: WeChatPlatform, stage: Stage) -> None:
    stage.before["oA:9"] = "当时的答复" + "好" * 1000
    texts = [(await platform.deliver(text_xml("oA", "旧", 9))).text for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0].startswith("当时的答复好")
    assert texts[0].endswith(MORE)
    assert stage.messages == []


async def test_after_a_restart_an_answer_on_the_shelf_is_not_waited_for(platform: WeChatPlatform, stage: Stage) -> None:
    stage.before["oA:9"] = "架上的答复"
    await stage.answer(await _message(stage, platform, 9), "架上的答复")
    delivered = await platform.deliver(text_xml("oA", "旧", 9))
    assert delivered.text == "架上的答复"
    assert delivered.took < 15


async def test_after_a_restart_a_turn_begun_again_counts_as_promised(platform: WeChatPlatform, stage: Stage) -> None:
    message = await _message(stage, platform, 9)
    rerun = stage.spawn(stage.reply_with(message, "重做的答复", after=0.2))
    await asyncio.sleep(0.05)
    assert await platform.ask("oA", "继续") == ("重做的答复", 1)
    await rerun
    assert stage.messages == []


async def test_after_a_restart_a_message_that_joined_another_promises_nothing(
    platform: WeChatPlatform, stage: Stage
) -> None:
    """A turn of two is begun again; once it is answered, a plain fetch word is a question like any other."""
    older, newer = await _message(stage, platform, 9), await _message(stage, platform, 10)
    stage.joined(older, newer)
    for message in (older, newer):
        stage.channel.progress(message, Routed("general-agent", "default"))
    asked = stage.spawn(platform.ask("oA", "继续"))
    await stage.held()
    await asyncio.sleep(0.05)
    assert stage.messages == [], "the answer is promised"
    await stage.answer(newer, "两条的答复")
    assert await asked == ("两条的答复", 1)
    answering(stage)
    assert await platform.ask("oA", "继续") == ("答复：继续", 1)


async def _message(stage: Stage, platform: WeChatPlatform, number: int) -> InboundMessage:
    """A message as another run of the gateway got it."""
    other, url = Stage(), platform.url
    async with staged(platform, other):
        other.times.hold = 0.05
        assert (await platform.deliver(text_xml("oA", "旧", number))).cut
    platform.url = url
    return other.messages[0]


async def test_a_person_who_hung_up_loses_nothing(platform: WeChatPlatform, stage: Stage) -> None:
    xml = text_xml("oA", "慢", 1)
    delivery = asyncio.create_task(platform.deliver(xml))
    await stage.taken("慢")
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)
    await asyncio.sleep(0.05)
    assert await stage.answer(stage.message("慢"), "答复") == ["shelved"]
    assert (await platform.deliver(xml)).text == "答复"


async def test_a_part_of_the_shelf_is_given_to_one_of_two_contacts(platform: WeChatPlatform, stage: Stage) -> None:
    await stage.answer(await promised(platform, stage), "只一份")
    answering(stage, after=0.1)
    texts = await asyncio.gather(platform.ask("oA", "甲"), platform.ask("oA", "乙"))
    assert sum("只一份" in text for text, _ in texts) == 1
    assert sorted(text.removeprefix("只一份\n\n") for text, _ in texts) == ["答复：乙", "答复：甲"]


async def test_a_send_that_is_cancelled_while_its_reply_is_written_leaves_nothing(stage: Stage) -> None:
    passive = Passive(stage.accept, stage, Texts().get, now=time.monotonic, times=Times())
    message = read_message({"FromUserName": "oA", "MsgType": "text", "Content": "问", "MsgId": "1"}, Account("w", "a"))
    assert message is not None
    writing, written = asyncio.Event(), asyncio.Event()

    async def write(text: str) -> bool:
        writing.set()
        await written.wait()
        return True

    contact = asyncio.create_task(passive.contact(message, write, hold=True))
    await until(lambda: stage.messages)
    send = asyncio.create_task(passive.send(Part(message=message, text="答", number=0, total=1, key="k")))
    await writing.wait()
    send.cancel()
    await asyncio.gather(send, return_exceptions=True)
    written.set()
    assert await contact
    (exchange,) = _exchanges(passive)
    assert (exchange.own, exchange.first, exchange.open, exchange.reply) == (None, None, 0, "答")


@pytest.mark.parametrize("first", ["later", "reply"])
async def test_word_that_the_answer_follows_is_not_taken_for_the_answer(stage: Stage, first: str) -> None:
    """The third delivery is told so while one more, which overlaps, gets the answer, and is gone before it is written."""
    clock = [0.0]
    passive = Passive(stage.accept, stage, Texts().get, now=lambda: clock[0], times=Times(hold=60, join=50))
    message = read_message({"FromUserName": "oA", "MsgType": "text", "Content": "问", "MsgId": "1"}, Account("w", "a"))
    assert message is not None
    writing: dict[str, asyncio.Future[bool]] = {}

    async def write(text: str) -> bool:
        writing[text] = asyncio.get_running_loop().create_future()
        return await writing[text]

    async def contact() -> "asyncio.Task[bool]":
        delivery = asyncio.create_task(passive.contact(message, write, hold=True))
        await asyncio.sleep(0)
        return delivery

    deliveries = []
    for _ in range(3):
        deliveries.append(await contact())
        clock[0] += 100
        await until(lambda: deliveries[-1].done() or writing)
    assert list(writing) == [LATER]
    fourth = await contact()
    await until(lambda: passive._held == 2 and all(each.accepted for each in _exchanges(passive)))
    send = asyncio.create_task(passive.send(Part(message=message, text="答", number=0, total=1, key="k")))
    await until(lambda: "答" in writing)
    ends = {"later": (LATER, True, deliveries[-1]), "reply": ("答", False, fourth)}
    for name in (first, *(ends.keys() - {first})):
        text, arrived, delivery = ends[name]
        writing[text].set_result(arrived)
        await delivery
    with pytest.raises(SendDeferred):
        await send
    (exchange,) = _exchanges(passive)
    assert (exchange.own, exchange.first, exchange.open, exchange.reply) == (None, None, 0, None)


async def test_what_was_answered_before_a_restart_takes_nothing_from_the_shelf(stage: Stage) -> None:
    """One of two overlapping deliveries takes a part from the shelf while the other learns what the answer was."""
    asked, told = asyncio.Event(), asyncio.Event()

    class Slow(Stage):
        async def answered(self, message: InboundMessage) -> str | None:
            asked.set()
            await told.wait()
            return "当时的答复"

    gateway, seen = Slow(), list[str]()
    passive = Passive(gateway.accept, gateway, Texts().get, now=time.monotonic, times=Times())
    message = read_message({"FromUserName": "oA", "MsgType": "text", "Content": "问", "MsgId": "1"}, Account("w", "a"))
    assert message is not None
    gateway.before[message.id] = "当时的答复"

    async def write(text: str) -> bool:
        seen.append(text)
        return True

    first = asyncio.create_task(passive.contact(message, write, hold=True))
    await asked.wait()
    part = ShelvedPart(7, 0, 1, "架上的一份", "another")
    gateway.shelf.append((message.lane, part))
    second = asyncio.create_task(passive.contact(message, write, hold=True))
    await until(lambda: any(each.first for each in _exchanges(passive)))
    told.set()
    await asyncio.gather(first, second)
    assert seen == ["当时的答复"] * 2
    assert [each for _, each in gateway.shelf] == [part], "it was in neither reply"
    (person,) = passive._people.values()
    assert not person.claimed


def _exchanges(passive: Passive) -> list[Exchange]:
    (person,) = passive._people.values()
    return list(person.exchanges.values())


# ---- failures


async def test_a_closed_gateway_cuts_so_that_it_is_delivered_again(platform: WeChatPlatform, stage: Stage) -> None:
    stage.error = GatewayClosed()
    assert (await platform.deliver(text_xml("oA", "你好", 1))).cut
    stage.error = None
    answering(stage)
    assert (await platform.deliver(text_xml("oA", "你好", 1))).text == "答复：你好"


@pytest.mark.parametrize("where", ["accept", "shelf"])
async def test_an_internal_failure_is_success_and_one_log_line(
    platform: WeChatPlatform, stage: Stage, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    setattr(stage, "error" if where == "accept" else "shelf_error", RuntimeError("broken"))
    delivered = await platform.deliver(text_xml("oA", "一段私密的话", 1))
    assert (delivered.status, delivered.raw) == (200, "success")
    assert [record.getMessage() for record in caplog.records] == ["wechat_delivery_failed entry=wechat"]
    assert "私密" not in caplog.text


async def test_stopping_keeps_what_is_held_and_cuts_what_is_new(platform: WeChatPlatform, stage: Stage) -> None:
    held = asyncio.create_task(platform.deliver(text_xml("oA", "慢", 1)))
    message = await stage.taken("慢")
    await stage.channel.stop_receiving()
    assert (await platform.deliver(text_xml("oA", "新", 2))).cut
    await stage.answer(message, "答复")
    assert (await held).text == "答复"


async def test_closing_lets_go_at_once(platform: WeChatPlatform, stage: Stage) -> None:
    held = asyncio.create_task(platform.deliver(text_xml("oA", "慢", 1)))
    message = await stage.taken("慢")
    await stage.channel.close()
    assert (await asyncio.wait_for(held, 30)).cut
    assert await stage.answer(message, "答复") == ["shelved"]


async def test_nothing_is_kept_open_or_for_ever(platform: WeChatPlatform, stage: Stage) -> None:
    answering(stage)
    for number in range(15):
        await platform.ask("oA", f"问 {number}")
    passive: Any = stage.channel._passive
    (person,) = passive._people.values()
    assert len(person.exchanges) == 10
    assert passive._held == 0
    assert not person.busy
    assert not person.claimed


async def test_many_people_are_forgotten_but_those_who_wait(
    platform: WeChatPlatform, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.wechat.passive._MOST_PEOPLE", 3)
    held = asyncio.create_task(platform.deliver(text_xml("oWaits", "慢", 1)))
    message = await stage.taken("慢")
    answering(stage)
    for number in range(6):
        await platform.ask(f"oU{number}", "快")
    assert len(stage.channel._passive._people) == 3
    await stage.answer(message, "答复")
    assert (await held).text == "答复"


async def test_when_too_many_are_held_the_answer_follows_later(
    platform: WeChatPlatform, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.wechat.passive._MOST_HELD", 0)
    delivered: Delivered = await platform.deliver(text_xml("oA", "慢", 1))
    assert delivered.text == LATER
    assert delivered.took < 15
    await stage.answer(stage.message("慢"), "答复")
    assert (await platform.ask("oA", "继续"))[0] == "答复"


async def test_a_person_who_is_forgotten_is_remembered_no_more(platform: WeChatPlatform, stage: Stage) -> None:
    answering(stage)
    xml = text_xml("oA", "秘密", platform.new_id())
    assert (await platform.deliver(xml)).text == "答复：秘密"
    assert await platform.ask("oB", "别人") == ("答复：别人", 1)
    people = stage.channel._passive._people
    one, other = stage.message("秘密").lane, stage.message("别人").lane
    assert [each.reply for each in people[one].exchanges.values()] == ["答复：秘密"]
    stage.channel.forget(stage.message("秘密").user)
    assert one not in people
    assert other in people


async def test_a_delivery_that_is_open_gets_its_reply_all_the_same(platform: WeChatPlatform, stage: Stage) -> None:
    """The message by which a person asks to be forgotten is answered through its own delivery."""
    waiting = stage.spawn(platform.deliver(text_xml("oA", "/forget", platform.new_id())))
    message = await stage.taken("/forget")
    stage.channel.forget(message.user)
    assert await stage.answer(message, "已删除") == ["sent"]
    assert (await waiting).text == "已删除"
