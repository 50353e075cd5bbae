"""The inbox: one claim per message id, across restarts; what a restart finds."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.route import By, LaneState, Route
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA, Inbox
from gateway.storage.parts import Parts
from gateway.storage.stored_message import Duplicate, Group, State, Stored
from memory.conversation import LaneKey
from tests.gateway.messages import message

Open = Callable[[], "asyncio.Future[Inbox]"]


class Reopened:
    """An inbox that can be closed and opened again, as a restart does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database: Database | None = None
        self.parts: Parts

    async def open(self) -> Inbox:
        if self.database:
            await self.database.close()
        self.database = Database(self.path, SCHEMA)
        await asyncio.to_thread(self.database.open)
        self.parts = Parts(self.database)
        return Inbox(self.database)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Reopened]:
    made = Reopened(tmp_path / "gateway.db")
    yield made
    if made.database:
        await made.database.close()


async def accepted(inbox: Inbox, text: str = "你好", now: float = 100.0, **more: str) -> Stored:
    stored = await inbox.accept(message(text, **more), now)
    assert isinstance(stored, Stored)
    return stored


async def test_many_claims_at_once_one_wins(files: Reopened) -> None:
    inbox = await files.open()
    same = message(message_id="om_dup")
    results = await asyncio.gather(*(inbox.accept(same, 1.0) for _ in range(20)))
    assert sum(isinstance(result, Stored) for result in results) == 1
    inbox = await files.open()
    assert await inbox.accept(same, 2.0) == Duplicate(State.ACCEPTED), "a restart forgets nothing"


async def test_the_same_id_of_another_account_is_another_message(files: Reopened) -> None:
    inbox = await files.open()
    one = message(message_id="om_dup")
    await inbox.accept(one, 1.0)
    other = type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"account": "cli_2"})
    assert isinstance(await inbox.accept(other, 1.0), Stored)


async def test_a_message_comes_back_as_it_was(files: Reopened) -> None:
    inbox = await files.open()
    sent = message("a\r\nb\u2028\0😀 \"'", user="o'\"x", agent="general-agent")
    await inbox.accept(sent, 5.0)
    inbox = await files.open()
    (stored,) = await inbox.waiting(str(sent.lane), 0, 10)
    assert stored.message == sent
    assert stored.accepted_at == 5.0


async def test_what_was_taken_comes_back_as_the_same_group(files: Reopened) -> None:
    inbox = await files.open()
    stored = [await accepted(inbox, f"第{n}条") for n in range(3)]
    conversation = stored[0].message.lane.with_agent("general-agent")
    route = Route("general-agent", By.RULE, "规则：两条 消息（1 处命中）")
    await inbox.take(Group(tuple(stored[:2])), conversation, route, 101.0)
    inbox = await files.open()
    (group,) = await inbox.taken()
    assert [each.seq for each in group.stored] == [stored[0].seq, stored[1].seq]
    assert (group.rerun, group.conversation, group.route) == (True, conversation, route)
    assert [each.seq for each in await inbox.waiting(str(stored[2].message.lane), 0, 10)] == [stored[2].seq]
    assert await inbox.waiting_lanes() == [str(stored[2].message.lane)]


async def test_what_an_older_version_took_keeps_its_reason(files: Reopened) -> None:
    inbox = await files.open()
    stored = await accepted(inbox)
    lane = stored.message.lane
    await inbox.take(Group((stored,)), lane.with_agent("a"), Route("a", By.RULE, "规则：岗位"), 101.0)
    assert files.database is not None
    await files.database.run(lambda db: db.execute("UPDATE messages SET reason = '规则：岗位 二'") and None)
    (group,) = await (await files.open()).taken()
    assert group.route == Route("a", By.DEFAULT, "规则：岗位 二")


async def test_answered_is_sent_from_the_first_part_not_sent(files: Reopened) -> None:
    inbox = await files.open()
    stored = await accepted(inbox)
    group = Group((stored,))
    await inbox.finish(group, State.ANSWERED, ["一", "二", "三"], 102.0, LaneState("general-agent", 102.0))
    await files.parts.sent(group.turn, 0, "om_bot_1", 103.0)
    inbox = await files.open()
    (pending,) = await inbox.pending()
    assert pending.stored.message == stored.message
    assert [(p.number, p.total, p.text) for p in await files.parts.waiting(pending.turn)] == [
        (1, 3, "二"),
        (2, 3, "三"),
    ]
    assert await inbox.lane_states.get(stored.message.lane) == LaneState("general-agent", 102.0)
    for number in (1, 2):
        await files.parts.sent(pending.turn, number, "", 104.0)
    assert await inbox.pending() == []
    assert await inbox.accept(stored.message, 105.0) == Duplicate(State.DELIVERED)


async def test_texts_are_gone_once_the_answer_is_delivered(files: Reopened) -> None:
    inbox = await files.open()
    stored = await accepted(inbox, "独角兽的秘密")
    await inbox.finish(Group((stored,)), State.ANSWERED, ["麒麟的答复"], 1.0)
    await files.parts.sent(stored.seq, 0, "", 2.0)
    dropped = await accepted(inbox, "独角兽的秘密")
    await inbox.finish(Group((dropped,)), State.ANSWERED, ["麒麟的答复"], 1.0)
    await files.parts.give_up(dropped.seq, 3.0)
    silent = await accepted(inbox, "独角兽的秘密")
    await inbox.finish(Group((silent,)), State.REFUSED, [], 1.0)
    assert files.database is not None
    await files.database.close()
    files.database = None
    blob = b"".join(path.read_bytes() for path in files.path.parent.iterdir())
    assert "独角兽".encode() not in blob
    assert "麒麟".encode() not in blob


async def test_too_old_is_expired_and_said(files: Reopened) -> None:
    inbox = await files.open()
    old, new = await accepted(inbox, now=10.0), await accepted(inbox, now=100.0)
    assert await inbox.expire(50.0, 200.0) == [(old.seq, str(old.message.lane))]
    assert [each.seq for each in await inbox.waiting(str(new.message.lane), 0, 10)] == [new.seq]
    assert await inbox.accept(old.message, 200.0) == Duplicate(State.EXPIRED)


async def test_purge_forgets_only_what_has_ended(files: Reopened) -> None:
    inbox = await files.open()
    ended, open_, unsent = [await accepted(inbox, now=10.0) for _ in range(3)]
    await inbox.finish(Group((ended,)), State.COMMAND, [], 11.0)
    await inbox.finish(Group((unsent,)), State.COMMAND, ["答复"], 11.0)
    assert await inbox.purge(50.0) == 1
    assert isinstance(await inbox.accept(ended.message, 60.0), Stored)
    assert isinstance(await inbox.accept(open_.message, 60.0), Duplicate)
    assert isinstance(await inbox.accept(unsent.message, 60.0), Duplicate)
    assert len(await files.parts.waiting(unsent.seq)) == 1


async def test_answers_nobody_was_sent_in_time_expire_too(files: Reopened) -> None:
    inbox = await files.open()
    old, shelved, new = [await accepted(inbox, now=now) for now in (10.0, 10.0, 100.0)]
    for stored in (old, shelved, new):
        await inbox.finish(Group((stored,)), State.ANSWERED, ["答复"], 11.0)
    await files.parts.shelve(shelved.seq, 0)
    assert await inbox.expire(50.0, 200.0) == [(old.seq, str(old.message.lane))]
    assert [pending.turn for pending in await inbox.pending()] == [new.seq]
    assert len(await files.parts.shelved(shelved.message.lane, 0.0)) == 1
    assert await inbox.accept(old.message, 200.0) == Duplicate(State.EXPIRED)


async def test_who_has_nothing_on_the_shelf_costs_the_database_nothing(files: Reopened) -> None:
    """Also after a restart, and where something was there once."""
    inbox = await files.open()
    stored = await accepted(inbox, now=10.0)
    other = LaneKey("uabcdefghijk2", "wechat", "b759cea3338c", False)
    await inbox.finish(Group((stored,)), State.ANSWERED, ["答复"], 11.0)
    for _ in range(2):
        assert await files.parts.shelved(stored.message.lane, 0.0) == []
    await files.parts.shelve(stored.seq, 0)
    assert len(await files.parts.shelved(stored.message.lane, 0.0)) == 1
    await files.open()
    assert len(await files.parts.shelved(stored.message.lane, 0.0)) == 1
    await files.parts.sent(stored.seq, 0, "", 12.0)
    assert await files.parts.shelved(stored.message.lane, 0.0) == []
    assert files.database is not None
    await files.database.close()  # whoever asks it now waits for ever
    assert await files.parts.shelved(stored.message.lane, 0.0) == []
    assert await files.parts.shelved(other, 0.0) == []


async def test_an_answer_stopped_before_its_first_word_is_done(files: Reopened) -> None:
    inbox = await files.open()
    stored = await accepted(inbox, now=10.0)
    await inbox.finish(Group((stored,)), State.ANSWERED, [], 11.0)
    assert await inbox.accept(stored.message, 12.0) == Duplicate(State.DELIVERED)
    assert await inbox.purge(50.0) == 1


async def test_a_row_of_another_version_fails_alone(files: Reopened, caplog: pytest.LogCaptureFixture) -> None:
    inbox = await files.open()
    odd, good = await accepted(inbox, "旧"), await accepted(inbox, "新")
    assert files.database is not None
    await files.database.run(
        lambda db: db.execute("UPDATE messages SET message = '{\"no\": 1}' WHERE seq = ?", (odd.seq,)) and None
    )
    lane = str(good.message.lane)
    assert [stored.seq for stored in await inbox.waiting(lane, 0, 10)] == [good.seq]
    assert "unreadable" in caplog.text
    assert await inbox.accept(odd.message, 200.0) == Duplicate(State.FAILED)


async def test_a_database_of_a_newer_version_is_refused(files: Reopened) -> None:
    await files.open()
    assert files.database is not None
    await files.database.run(lambda db: db.execute("PRAGMA user_version = 99") and None)
    with pytest.raises(sqlite3.DatabaseError, match="更新的版本"):
        await files.open()
    files.database = None


async def test_what_is_forgotten_meanwhile_is_neither_taken_nor_answered(files: Reopened) -> None:
    inbox = await files.open()
    assert files.database is not None
    stored = await accepted(inbox, "独角兽")
    group, where = Group((stored,)), stored.message.lane.with_agent("a")
    route = Route("a", By.DEFAULT, "默认")
    assert await inbox.take(group, where, route, 2.0)
    await files.database.run(lambda db: db.execute("UPDATE messages SET state = 'forgotten'").rowcount)
    assert not await inbox.take(group, where, route, 3.0)
    assert not await inbox.finish(group, State.ANSWERED, ["角"], 4.0)
    assert await inbox.pending() == []
    assert await inbox.taken() == []
