"""Forgetting, piece by piece: lanes, outbox, inbox, summaries, limits, the API, and all of it together."""

import asyncio
import json
import random
import sqlite3
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.message import Failed, InboundMessage, Progress, Silent
from gateway.commands import parse
from gateway.forgetting import Forgetting, Records, Remembers
from gateway.lanes import Lanes, Merging, Waiting, Work
from gateway.limits import RateLimit
from gateway.outbox import Outbox
from gateway.removed import Removed
from gateway.route import By, LaneState, Route
from gateway.storage import conversation_index
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA, Inbox
from gateway.storage.parts import Parts
from gateway.storage.stored_message import Duplicate, Group, State, Stored
from gateway.tracing import store
from gateway.tracing.trace import Kind
from gateway.turns.summaries import Summaries
from memory.conversation import LaneKey, Role, Turn
from memory.errors import StoreError
from memory.memory import Memory
from tests.gateway.console.fake_backend import FakeBackend
from tests.gateway.console.test_console import RIGHT, Clock, Running
from tests.gateway.messages import message
from tests.gateway.tracing.test_traces import Bench as TraceBench
from tests.gateway.tracing.test_traces import asked
from tests.gateway.turns.test_summaries import Bench as SummaryBench
from tests.memory.pool import CONVERSATION
from tests.waiting import until

AT = "2026-11-30T18:10:05.123+08:00"


class Channel:
    """Records what it is told; remembers nobody."""

    name = "feishu"

    def __init__(self) -> None:
        self.told: list[tuple[str, Progress]] = []
        self.forgotten: list[str] = []
        self.hold: asyncio.Event | None = None
        self.sent: list[str] = []

    def progress(self, message: InboundMessage, event: Progress) -> None:
        self.told.append((message.text, event))

    def forget(self, user: str) -> None:
        self.forgotten.append(user)

    async def send(self, part: Any) -> str:
        if self.hold is not None:
            await self.hold.wait()
        self.sent.append(part.text)
        return "om"


class Bench:
    """Everything of the gateway that holds something of a person, over real files; turns wait at a gate."""

    def __init__(self, root: Path, database: Database, tasks: asyncio.TaskGroup) -> None:
        self.root = root
        self.now = 100.0
        self.inbox = Inbox(database)
        self.memory = Memory(root)
        self.index = ConversationIndex(database, self.memory)
        self.channel = Channel()
        self.gate = asyncio.Event()
        self.handled: list[str] = []
        self.running: list[str] = []

        def clock() -> float:
            return self.now

        channels: Any = {"feishu": self.channel}
        self.outbox = Outbox(
            Parts(database), channels, patience=lambda: 1e9, spawn=tasks.create_task, clock=clock, rng=random.Random(1)
        )
        merging = Merging(True, 0.0, 10_000)
        self.lanes = Lanes(
            self.inbox,
            self.handle,
            examine,
            lambda: merging,
            spawn=tasks.create_task,
            clock=clock,
            rng=random.Random(1),
        )
        self.states = self.inbox.lane_states
        self.forgetting = Forgetting(
            Records(self.memory, self.inbox, self.index),
            lanes=self.lanes,
            outbox=self.outbox,
            summaries=Summaries(self.memory, spawn=tasks.create_task, clock=clock, rng=random.Random(1)),
            states=self.states,
            channels=channels,
            text=lambda name: f"<{name}>",
        )

    async def handle(self, work: Work) -> None:
        text = work.group.newest.message.text
        self.running.append(text)
        try:
            await self.gate.wait()
            self.handled.append(text)
            await self.inbox.finish(work.group, State.DELIVERED, [], self.now)
        finally:
            self.running.remove(text)

    async def say(self, inbound: InboundMessage) -> Stored:
        stored = await self.inbox.accept(inbound, self.now)
        assert isinstance(stored, Stored)
        self.lanes.put(examine(stored))
        return stored

    async def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await self.inbox._database.run(lambda db: [tuple(row) for row in db.execute(sql, values)])


def examine(stored: Stored) -> Waiting:
    return Waiting(stored, command=parse(stored.message.text))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    database = Database(tmp_path / "gateway.db", SCHEMA + conversation_index.SCHEMA)
    await asyncio.to_thread(database.open)
    async with asyncio.TaskGroup() as tasks:
        made = Bench(tmp_path, database, tasks)
        yield made
        made.gate.set()
        await made.lanes.drain(30)
        await made.outbox.drain(30)
    await made.memory.close()
    await database.close()


async def dropped(bench: Bench, user: str) -> None:
    """All work for a person is ended, and their rows go while nothing of theirs is begun."""
    async with bench.lanes.closed_to(user):
        await bench.inbox.forget(user)


def in_group(inbound: InboundMessage) -> InboundMessage:
    return replace(inbound, lane=LaneKey("g" + "a" * 12, "feishu", "0" * 12, True))


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


# ---- lanes


async def test_what_runs_and_waits_ends_and_others_go_on(bench: Bench) -> None:
    mine = message("甲一")
    await bench.say(mine)
    await until(lambda: bench.running == ["甲一"])
    await bench.say(message("甲二"))
    await bench.say(message("甲三", chat="oc_other"))
    await bench.say(message("乙", user="ou_2"))
    await until(lambda: len(bench.running) == 3)
    await dropped(bench, mine.user)
    assert bench.running == ["乙"]
    bench.gate.set()
    await until(lambda: len(bench.lanes) == 0)
    assert bench.handled == ["乙"]
    await bench.say(message("甲四"))
    await until(lambda: bench.handled == ["乙", "甲四"])


async def test_work_that_has_not_begun_yet_leaves_no_stuck_lane(bench: Bench) -> None:
    """A task that is cancelled before its first step never reaches its own tidying up."""
    bench.gate.set()
    mine = message("一")
    await bench.say(mine)
    await dropped(bench, mine.user)
    await until(lambda: len(bench.lanes) == 0)
    assert bench.handled == []
    await bench.say(message("/help"))
    await dropped(bench, mine.user)
    assert not bench.lanes._overtaking
    await bench.say(message("二"))
    await until(lambda: "二" in bench.handled)


async def test_in_a_shared_lane_only_the_speakers_work_ends(bench: Bench) -> None:
    one, two = in_group(message("甲", user="ou_1")), in_group(message("乙", user="ou_2"))
    await bench.say(one)
    await until(lambda: bench.running == ["甲"])
    await bench.say(two)
    await bench.say(in_group(message("甲又", user="ou_1")))
    await bench.say(in_group(message("乙又", user="ou_2")))
    await dropped(bench, one.user)
    bench.gate.set()
    await until(lambda: bench.handled == ["乙又"], what="the other member's two, joined")
    bench.gate.clear()
    await bench.say(in_group(message("乙三", user="ou_2")))
    await until(lambda: bench.running == ["乙三"])
    await dropped(bench, one.user)
    assert bench.running == ["乙三"]


async def test_what_overtakes_ends_but_not_the_one_that_asks(bench: Bench) -> None:
    mine = message("/history")
    await bench.say(mine)
    await until(lambda: bench.running == ["/history"])
    finished: list[bool] = []

    async def asks(work: Work) -> None:
        await dropped(bench, mine.user)
        finished.append(True)

    bench.lanes._handle = asks  # type: ignore[method-assign]
    await bench.say(message("/forget"))
    await until(lambda: finished)
    assert bench.running == []


async def test_what_waits_in_the_inbox_alone_is_not_begun_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after a restart nor behind what a lane has at hand; what others wait for goes on."""
    shared = [in_group(message(f"群里{n}", user=f"ou_{2 + n % 2}")) for n in range(4)]
    for n in range(60):
        await bench.inbox.accept(message(f"独角兽{n}"), 1.0)
    for each in shared:
        await bench.inbox.accept(each, 1.0)
    mine, forget = message("独角兽"), bench.memory.forget
    await bench.inbox.accept(in_group(mine), 1.0)
    bench.lanes.refill(mine.lane)
    bench.lanes.refill(shared[0].lane)

    async def slow(user: str) -> Any:
        bench.gate.set()
        await until(lambda: "群里3" in bench.handled)
        await asyncio.sleep(0.02)
        return await forget(user)

    monkeypatch.setattr(bench.memory, "forget", slow)
    removed = await bench.forgetting.forget(mine.user)
    await until(lambda: len(bench.lanes) == 0)
    assert removed.messages == 61
    assert not [text for text in bench.handled if "独角兽" in text]
    assert "独角兽".encode() not in await asyncio.to_thread(everything, bench.root)


async def test_who_is_accepted_meanwhile_is_handled_afterwards(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored behind the deletion: the lanes were closed to it, and look for it once they are open again."""
    mine, deletes = message("甲"), bench.inbox.forget
    bench.gate.set()

    async def slow(*args: Any) -> Any:
        deleted = await deletes(*args)
        for text in ("乙", "/help", "丙"):
            await bench.say(message(text))
        await asyncio.sleep(0.02)
        assert bench.handled == []
        return deleted

    monkeypatch.setattr(bench.inbox, "forget", slow)
    await bench.forgetting.forget(mine.user)
    await until(lambda: bench.handled == ["乙", "/help", "丙"])


# ---- outbox


async def test_no_part_goes_out_any_more_but_others_do(bench: Bench) -> None:
    bench.channel.hold = asyncio.Event()
    answered = {}
    for user in ("ou_1", "ou_2"):
        for text in ("一", "二"):
            stored = await bench.inbox.accept(message(text, user=user), 0.0)
            assert isinstance(stored, Stored)
            await bench.inbox.finish(Group((stored,)), State.ANSWERED, [user + text], 0.0)
            bench.outbox.put(stored.seq, stored, [user + text])
            answered[user + text] = stored
    await asyncio.sleep(0.02)
    dropped = await bench.outbox.drop(answered["ou_1一"].message.user)
    assert {each.seq for each in dropped} == {answered["ou_1一"].seq, answered["ou_1二"].seq}
    bench.channel.hold.set()
    await until(lambda: bench.channel.sent == ["ou_2一", "ou_2二"])


# ---- inbox


async def test_the_rows_go_and_hashes_stay(bench: Bench) -> None:
    one = await bench.inbox.accept(message("独角兽", message_id="om_1"), 10.0)
    other = await bench.inbox.accept(message("凤凰", user="ou_2", message_id="om_2"), 10.0)
    asks = await bench.inbox.accept(message("/forget", message_id="om_3"), 11.0)
    assert isinstance(one, Stored)
    assert isinstance(other, Stored)
    assert isinstance(asks, Stored)
    await bench.inbox.finish(Group((one,)), State.ANSWERED, ["独角兽的角"], 11.0, LaneState("job", 1.0))
    deleted, waiting = await bench.inbox.forget(one.message.user, asks)
    assert (deleted, waiting) == (1, [])
    assert await bench.rows("SELECT id, user FROM messages ORDER BY seq") == [
        ("om_2", other.message.user),
        ("om_3", ""),
    ]
    assert await bench.rows("SELECT * FROM parts") == []
    assert await bench.rows("SELECT * FROM lanes") == []
    for number in ("om_1", "om_3"):
        again = await bench.inbox.accept(message("独角兽", message_id=number), 13.0)
        assert again == Duplicate(State.FORGOTTEN)
    assert await bench.inbox.accept(message("凤凰", user="ou_2", message_id="om_2"), 13.0) == Duplicate(State.ACCEPTED)
    await bench.inbox.finish(Group((asks,)), State.COMMAND, ["已删除"], 14.0)
    assert (await bench.rows("SELECT COUNT(*) FROM messages"))[0] == (2,)
    await bench.outbox._parts.sent(asks.seq, 0, "om", 15.0)
    assert await bench.rows("SELECT id FROM messages") == [("om_2",)]
    assert await bench.rows("SELECT * FROM parts") == []
    raw = await asyncio.to_thread(everything, bench.root)
    for trace in ("独角兽", "om_1", "om_3", one.message.user, "ou_1"):
        assert trace.encode() not in raw, trace
    assert "凤凰".encode() in raw


async def test_a_silent_answer_removes_the_command_too(bench: Bench) -> None:
    asks = await bench.inbox.accept(message("/forget", message_id="om_3"), 11.0)
    assert isinstance(asks, Stored)
    await bench.inbox.forget(asks.message.user, asks)
    await bench.inbox.finish(Group((asks,)), State.COMMAND, [], 14.0)
    assert await bench.rows("SELECT * FROM messages") == []


async def test_hashes_are_purged_with_the_ids(bench: Bench) -> None:
    one = await bench.inbox.accept(message("x", message_id="om_1"), 10.0)
    assert isinstance(one, Stored)
    await bench.inbox.forget(one.message.user)
    await bench.inbox.purge(9.0)
    assert await bench.rows("SELECT COUNT(*) FROM forgotten") == [(1,)]
    await bench.inbox.purge(11.0)
    assert await bench.rows("SELECT COUNT(*) FROM forgotten") == [(0,)]


async def test_a_log_that_another_process_reads_is_said_to_be_kept(bench: Bench) -> None:
    database = bench.inbox._database
    await bench.inbox.accept(message("x"), 10.0)
    reader = sqlite3.connect(bench.root / "gateway.db", check_same_thread=False, isolation_level=None)
    await asyncio.to_thread(lambda: [reader.execute("BEGIN"), reader.execute("SELECT * FROM messages").fetchall()])
    await bench.inbox.accept(message("y"), 10.0)
    await database.run(lambda db: db.execute("PRAGMA busy_timeout=50") and None)
    assert not await database.empty_log()
    await asyncio.to_thread(reader.close)
    assert await database.empty_log()
    assert (await asyncio.to_thread((bench.root / "gateway.db-wal").stat)).st_size == 0


async def test_an_earlier_command_of_theirs_goes_too(bench: Bench) -> None:
    """Its row was nobody's, its answer not sent yet."""
    first = await bench.inbox.accept(message("/forget", message_id="om_first"), 11.0)
    other = await bench.inbox.accept(message("/forget", user="ou_2", message_id="om_other"), 11.0)
    for each in (first, other):
        assert isinstance(each, Stored)
        await bench.inbox.forget(each.message.user, each)
        await bench.inbox.finish(Group((each,)), State.COMMAND, ["已删除"], 12.0)
    assert isinstance(first, Stored)
    assert await bench.inbox.forget(first.message.user) == (0, [])
    assert await bench.rows("SELECT id FROM messages") == [("om_other",)]
    assert len(await bench.rows("SELECT * FROM parts")) == 1


async def test_a_message_that_cannot_be_read_goes_too(bench: Bench) -> None:
    mine = message("独角兽")
    stored = await bench.inbox.accept(mine, 10.0)
    assert isinstance(stored, Stored)
    await bench.rows("UPDATE messages SET message = '{\"no\": 1}' WHERE seq = ?", stored.seq)
    assert await bench.inbox.forget(mine.user) == (1, [])


async def test_an_answer_that_comes_too_late_is_not_recorded(bench: Bench) -> None:
    mine = message("独角兽")
    stored = await bench.inbox.accept(mine, 10.0)
    assert isinstance(stored, Stored)
    await bench.inbox.forget(mine.user)
    await bench.inbox.finish(Group((stored,)), State.ANSWERED, ["独角兽的角"], 11.0, LaneState("job", 1.0))
    for table in ("messages", "parts", "lanes"):
        assert await bench.rows(f"SELECT * FROM {table}") == []


async def test_who_asked_to_be_forgotten_does_not_expire(bench: Bench) -> None:
    asks = await bench.inbox.accept(message("忘记我。"), 10.0)
    talk = await bench.inbox.accept(message("忘记我说的"), 10.0)
    assert isinstance(asks, Stored)
    assert isinstance(talk, Stored)
    assert [seq for seq, _ in await bench.inbox.expire(50.0, 60.0)] == [talk.seq]
    assert [each.seq for each in await bench.inbox.waiting(str(asks.message.lane), 0, 9)] == [asks.seq]


async def test_who_asked_is_known_after_a_restart(bench: Bench) -> None:
    asks = await bench.inbox.accept(message("/forget"), 10.0)
    await bench.inbox.accept(message("忘记我说的"), 10.0)
    done = await bench.inbox.accept(message("/forget", user="ou_2"), 10.0)
    assert isinstance(asks, Stored)
    assert isinstance(done, Stored)
    await bench.inbox.forget(done.message.user, done)
    assert await bench.inbox.asking_to_be_forgotten() == [asks, done]
    await bench.inbox.finish(Group((done,)), State.COMMAND, ["已删除"], 11.0)
    assert await bench.inbox.asking_to_be_forgotten() == [asks]


# ---- marks


async def test_all_ids_of_a_person_are_marked_from_before_the_first_goes_until_after_it_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = message("甲").user, message("乙", user="ou_2").user
    forget, seen = bench.memory.forget, []

    async def both(self: Records, user: str) -> tuple[str, ...]:
        return one, two

    async def looks(user: str) -> Any:
        seen.append(await bench.inbox.marks.all())
        return await forget(user)

    monkeypatch.setattr(Records, "ids_of", both)
    monkeypatch.setattr(bench.memory, "forget", looks)
    await bench.forgetting.forget(one)
    assert seen == [sorted([one, two]), [two]]
    assert await bench.inbox.marks.all() == []


async def test_no_account_of_a_person_works_until_the_last_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of the second would write into the profile they share after the first one's removal took it."""
    one, two = message("甲"), message("乙", user="ou_2")
    running = await bench.say(two)
    await until(lambda: bench.running == ["乙"])
    forget, seen = bench.memory.forget, []

    async def both(self: Records, user: str) -> tuple[str, ...]:
        return one.user, two.user

    async def looks(user: str) -> Any:
        bench.lanes.put(examine(running))
        await asyncio.sleep(0)
        seen.append((user, list(bench.running)))
        return await forget(user)

    monkeypatch.setattr(Records, "ids_of", both)
    monkeypatch.setattr(bench.memory, "forget", looks)
    await bench.forgetting.forget(one.user)
    assert seen == [(one.user, []), (two.user, [])]


async def test_the_database_is_written_anew_once_for_all_accounts_and_not_for_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = message("独角兽"), message("独角兽", user="ou_2")
    empty_log, emptied = bench.inbox.empty_log, 0

    async def both(self: Records, user: str) -> tuple[str, ...]:
        return one.user, two.user

    async def counted() -> bool:
        nonlocal emptied
        emptied += 1
        return await empty_log()

    monkeypatch.setattr(Records, "ids_of", both)
    monkeypatch.setattr(bench.inbox, "empty_log", counted)
    await bench.inbox.accept(one, 1.0)
    assert (await bench.forgetting.forget(one.user)).messages == 1, "of the first; of the last there was nothing"
    assert emptied == 1
    assert "独角兽".encode() not in await asyncio.to_thread(everything, bench.root)
    assert not await bench.forgetting.forget(one.user)
    assert emptied == 1
    await bench.inbox.accept(two, 1.0)
    assert await bench.forgetting.forget(one.user)
    assert emptied == 2


async def test_bytes_that_a_failure_left_go_with_the_next_forgetting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though that one finds nothing to remove."""
    mine, empty_log, answers = message("独角兽"), bench.inbox.empty_log, [True, False, True]

    async def sometimes() -> bool:
        return await empty_log() and answers.pop()

    monkeypatch.setattr(bench.inbox, "empty_log", sometimes)
    await bench.forgetting.forget(mine.user)
    await bench.inbox.accept(mine, 1.0)
    assert await bench.forgetting.forget(mine.user)
    assert "database_bytes_kept" in caplog.text
    assert not await bench.forgetting.forget(mine.user)
    assert answers == []


async def test_after_a_failure_the_work_of_all_accounts_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those whose turn had not come, and their answers that were on the way; each once."""
    one, two = message("甲"), message("乙", user="ou_2")
    bench.channel.hold = asyncio.Event()
    answered = await bench.inbox.accept(message("已答", user="ou_2"), 100.0)
    assert isinstance(answered, Stored)
    await bench.inbox.finish(Group((answered,)), State.ANSWERED, ["一"], 100.0)
    bench.outbox.put(answered.seq, answered, ["一"])
    running = await bench.say(two)
    await until(lambda: bench.running == ["乙"])
    await bench.inbox.take(Group((running,)), two.lane.with_agent("a"), Route("a", By.DEFAULT, "默认"), 100.0)

    async def both(self: Records, user: str) -> tuple[str, ...]:
        return one.user, two.user

    async def broken(user: str) -> Any:
        raise StoreError("conversations/…")

    monkeypatch.setattr(Records, "ids_of", both)
    monkeypatch.setattr(bench.memory, "forget", broken)
    with pytest.raises(StoreError):
        await bench.forgetting.forget(one.user)
    bench.gate.set()
    bench.channel.hold.set()
    await until(lambda: bench.handled == ["乙"] and bench.channel.sent == ["一"] and len(bench.lanes) == 0)


async def test_a_failure_leaves_no_mark_and_where_it_must_nothing_is_accepted_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next start would delete what was said after the person was told that it failed."""
    mine = message("独角兽")

    async def broken(*args: Any) -> Any:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(bench.inbox, "forget", broken)
    with pytest.raises(sqlite3.OperationalError):
        await bench.forgetting.forget(mine.user)
    assert await bench.inbox.marks.all() == []
    with monkeypatch.context() as patch:
        patch.setattr(bench.inbox.marks, "remove", broken)
        with pytest.raises(sqlite3.OperationalError):
            await bench.forgetting.forget(mine.user)
        with pytest.raises(sqlite3.OperationalError):
            await bench.forgetting.settled(mine.user)
        await bench.forgetting.settled("u" + "b" * 12)
        assert len(await bench.inbox.marks.all()) == 1
    await bench.forgetting.settled(mine.user)
    assert await bench.inbox.marks.all() == []


# ---- summaries


async def test_a_summary_under_way_ends_and_others_are_made(tmp_path: Path) -> None:
    other = replace(CONVERSATION, lane=replace(CONVERSATION.lane, user="u" + "b" * 12))
    async with asyncio.TaskGroup() as tasks:
        made = SummaryBench(tmp_path, tasks)
        made.model.gate = asyncio.Event()
        for conversation in (CONVERSATION, other):
            await made.talk(30, conversation)
            made.after(conversation)
        await until(lambda: made.model.running == 2)
        async with made.summaries.closed_to(CONVERSATION.lane.user):
            assert made.model.running == 1
        made.model.gate.set()
        await made.settled()
        made.after()
        async with made.summaries.closed_to(CONVERSATION.lane.user):
            assert not made.summaries._running, "one that had not begun"
        archives = await asyncio.to_thread(lambda: [path.parent.name for path in tmp_path.glob("archives/*/*.yaml")])
        assert archives == [other.lane.user]
        made.after()
        await made.settled()
        assert len(await asyncio.to_thread(lambda: list(tmp_path.glob("archives/*/*.yaml")))) == 2
        await made.memory.close()


async def test_no_summary_of_a_group_is_begun_while_somebody_is_forgotten(tmp_path: Path) -> None:
    """It could read what they said just before it goes, and keep it just after."""
    group = replace(CONVERSATION, lane=LaneKey("g" + "a" * 12, "feishu", "0" * 12, True))
    async with asyncio.TaskGroup() as tasks:
        made = SummaryBench(tmp_path, tasks)
        made.model.gate = asyncio.Event()
        await made.talk(30, group)
        made.after(group)
        await until(lambda: made.model.running == 1)
        async with made.summaries.closed_to("u" + "c" * 12):
            assert made.model.running == 0
            async with made.summaries.closed_to("u" + "d" * 12):
                made.after(group)
            assert not made.summaries._running
        await until(lambda: made.model.running == 1, what="what was asked for meanwhile")
        made.model.gate.set()
        await made.settled()
        assert len(await asyncio.to_thread(lambda: list(tmp_path.glob("archives/*/*.yaml")))) == 1
        await made.memory.close()


# ---- traces


def test_system_messages_of_their_groups_go_also_when_nobody_knows_the_groups_any_more() -> None:
    """After a kill: what they said in the groups is replaced by then, and the files name them no more."""
    db = sqlite3.connect(":memory:")
    db.row_factory = sqlite3.Row
    db.executescript(store.SCHEMA)
    group, other = "g" + "a" * 12, "g" + "b" * 12
    for number, (user, owner) in enumerate((("u1", "u1"), ("u1", group), ("u2", other), ("u2", "u2"))):
        blank = {row["name"]: "" for row in db.execute("PRAGMA table_info(traces)") if row["name"] != "seq"}
        trace = {**blank, "id": str(number), "at": 1.0, "last": 1.0, "user": user, "lane": f"{owner}:feishu:0:1"}
        marks = ", ".join("?" * len(trace))
        db.execute(f"INSERT INTO traces ({', '.join(trace)}) VALUES ({marks})", tuple(trace.values()))
        frame = {row["name"]: "" for row in db.execute("PRAGMA table_info(frames)")} | {"owner": owner}
        frame |= {"id": str(number)} if "id" in frame else {}
        marks = ", ".join("?" * len(frame))
        db.execute(f"INSERT INTO frames ({', '.join(frame)}) VALUES ({marks})", tuple(frame.values()))
    assert store.forget(db, "u1", ()) == 2
    assert sorted(row["owner"] for row in db.execute("SELECT owner FROM frames")) == [other, "u2"]
    db.close()


async def test_a_request_of_their_group_that_is_under_way_is_not_kept(tmp_path: Path) -> None:
    """Neither one that is noted already nor one that was read before and is noted after."""
    bench = TraceBench(tmp_path)
    await bench.traces.open()
    friends = [in_group(message(f"朋友{n}", user="ou_2", message_id=f"om_{n}")) for n in range(3)]
    for n in (0, 1):
        bench.traces.note(friends[n], Kind.RECEIVED)
    bench.traces.note(friends[0], Kind.WINDOW, asked("系统：独角兽"))
    await bench.traces.forget(message().user, [friends[0].lane])
    bench.traces.note(friends[1], Kind.WINDOW, asked("系统：独角兽"))
    bench.traces.note(friends[2], Kind.RECEIVED)
    bench.traces.note(friends[2], Kind.WINDOW, asked("系统：凤凰"))
    await bench.traces.flush()
    database = bench.traces._database
    assert database is not None
    bodies = await database.run(lambda db: [row["body"] for row in db.execute("SELECT body FROM frames")])
    assert [json.loads(zlib.decompress(body))["system"] for body in bodies] == ["系统：凤凰"]
    assert sorted(await bench.found()) == ["om_0", "om_1", "om_2"]
    await bench.traces.close()


# ---- all together


async def test_all_together(bench: Bench) -> None:
    mine = message("独角兽")
    conversation = mine.lane.with_agent("general-agent")
    turn = Turn(role=Role.USER, text="独角兽", id="q", at=AT)
    await bench.memory.remember(conversation, [turn])
    bench.index.touch(conversation)
    await bench.index.flush()
    bench.index.touch(conversation)
    await bench.states.set(mine.lane, LaneState("job", 1.0))
    await bench.say(mine)
    await bench.say(message("还在等"))
    asks = await bench.inbox.accept(message("/forget"), 100.0)
    assert isinstance(asks, Stored)
    removed = await bench.forgetting.forget(mine.user, keep=asks)
    assert removed == Removed(conversations=1, messages=2)
    assert str(removed) == "1 个会话、2 条收件记录"
    for text in ("独角兽", "还在等"):
        assert [event for told, event in bench.channel.told if told == text] == [
            Failed("<forgotten-waiting>"),
            Silent(),
        ]
    assert bench.channel.forgotten == [mine.user]
    assert await bench.states.get(mine.lane) == LaneState()
    assert (await bench.index.page()).items == ()
    assert "独角兽".encode() not in await asyncio.to_thread(everything, bench.root)


async def test_nothing_to_forget(bench: Bench) -> None:
    removed = await bench.forgetting.forget("u" + "a" * 12)
    assert not removed
    assert str(removed) == "没有找到资料"


async def test_two_at_once_and_messages_meanwhile_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = message("独角兽")
    await bench.inbox.accept(mine, 1.0)
    begun, go_on, forget = asyncio.Event(), asyncio.Event(), bench.memory.forget

    async def slow(user: str) -> Any:
        begun.set()
        await go_on.wait()
        return await forget(user)

    monkeypatch.setattr(bench.memory, "forget", slow)
    first = asyncio.create_task(bench.forgetting.forget(mine.user))
    await begun.wait()
    second = asyncio.create_task(bench.forgetting.forget(mine.user))
    arrives = asyncio.create_task(bench.forgetting.settled(mine.user))
    await asyncio.wait_for(bench.forgetting.settled("u" + "b" * 12), 30)
    await asyncio.sleep(0.02)
    assert not any(each.done() for each in (first, second, arrives))
    go_on.set()
    assert await first
    assert not await second
    await arrives


async def test_a_failure_is_told_and_asking_again_removes_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = message("独角兽")
    await bench.memory.remember(mine.lane.with_agent("a"), [Turn(role=Role.USER, text="独角兽", id="q", at=AT)])
    erase = bench.memory._eraser.erase

    def broken(user: str) -> Any:
        raise StoreError("conversations/…")

    monkeypatch.setattr(bench.memory._eraser, "erase", broken)
    with pytest.raises(StoreError):
        await bench.forgetting.forget(mine.user)
    monkeypatch.setattr(bench.memory._eraser, "erase", erase)
    assert (await bench.forgetting.forget(mine.user)).conversations == 1


async def test_after_a_failure_what_was_ended_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, each once, without a restart: turns begun and waiting, commands, answers that are not sent."""
    bench.channel.hold = asyncio.Event()
    answered = await bench.inbox.accept(message("已答"), 100.0)
    assert isinstance(answered, Stored)
    await bench.inbox.finish(Group((answered,)), State.ANSWERED, ["一", "二"], 100.0)
    bench.outbox.put(answered.seq, answered, ["一", "二"])
    begun = await bench.say(message("begun"))
    await until(lambda: bench.running == ["begun"])
    await bench.inbox.take(Group((begun,)), begun.message.lane.with_agent("a"), Route("a", By.DEFAULT, "默认"), 100.0)
    for text in ("/new", "waits"):
        await bench.say(message(text))
    await bench.say(message("/status"))
    elsewhere = await bench.say(message("elsewhere", chat="oc_other"))
    asks = await bench.inbox.accept(message("/forget"), 100.0)
    assert isinstance(asks, Stored)
    await until(lambda: len(bench.running) == 3)

    async def broken(user: str) -> Any:
        raise StoreError("conversations/…")

    monkeypatch.setattr(bench.memory, "forget", broken)
    with pytest.raises(StoreError):
        await bench.forgetting.forget(begun.message.user, keep=asks)
    await bench.inbox.finish(Group((asks,)), State.FAILED, [], 100.0)
    bench.gate.set()
    bench.channel.hold.set()
    await until(lambda: len(bench.handled) == 5 and len(bench.channel.sent) == 2)
    await until(lambda: len(bench.lanes) == 0)
    assert sorted(bench.handled) == sorted(["begun", "/new", "waits", "/status", elsewhere.message.text])
    assert [text for text in bench.handled if text in ("begun", "/new", "waits")] == ["begun", "/new", "waits"]
    assert bench.channel.sent == ["一", "二"]
    assert not [told for told in bench.channel.told if told[1] != Silent()]


async def test_a_failure_of_the_database_leaves_the_rest_to_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error")

    for name in ("pending", "forget"):
        monkeypatch.setattr(bench.inbox, name, broken)
    mine = await bench.say(message("begun"))
    await until(lambda: bench.running == ["begun"])
    with pytest.raises(sqlite3.OperationalError):
        await bench.forgetting.forget(mine.message.user)
    assert "left in the inbox" in caplog.text
    bench.gate.set()
    await until(lambda: bench.handled == ["begun"], what="what was not taken yet goes on all the same")


async def test_batches_of_the_index_do_not_cross_a_forgetting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither batches that follow it, nor what was read while files were still being removed."""
    monkeypatch.setattr(conversation_index, "_AT_ONCE", 1)
    mine, other = message("独角兽"), message("凤凰", user="ou_2")
    for inbound in (mine, other):
        for agent in ("a", "b", "c"):
            conversation = inbound.lane.with_agent(agent)
            await bench.memory.remember(conversation, [Turn(role=Role.USER, text=inbound.text, id="q", at=AT)])
            bench.index.touch(conversation)
    run, written, go_on = bench.inbox._database.run, asyncio.Event(), asyncio.Event()

    async def slow(work: Any) -> Any:
        done = await run(work)
        if asyncio.current_task() is flushing:
            written.set()
            await go_on.wait()
        return done

    monkeypatch.setattr(bench.inbox._database, "run", slow)
    flushing = asyncio.create_task(bench.index.flush())
    await written.wait()
    await bench.forgetting.forget(mine.user)
    go_on.set()
    await flushing
    found = await bench.rows("SELECT user FROM conversations")
    assert found == [(other.user,)] * 3
    assert mine.user.encode() not in await asyncio.to_thread(everything, bench.root)


async def test_the_index_knows_nothing_of_files_seen_while_they_are_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = message("独角兽")
    conversation = mine.lane.with_agent("a")
    await bench.memory.remember(conversation, [Turn(role=Role.USER, text="独角兽", id="q", at=AT)])
    forget, seen = bench.memory.forget, []

    async def looked_at(user: str) -> Any:
        info = await bench.memory.info(conversation)
        erased = await forget(user)
        seen.append((info, bench.memory.generations.now()))  # as if read behind the last step that tells of it
        return erased

    monkeypatch.setattr(bench.memory, "forget", looked_at)
    await bench.forgetting.forget(mine.user)
    ((info, generation),) = seen
    assert info is not None
    await bench.index._write([info], generation, {})
    assert await bench.rows("SELECT * FROM conversations") == []


async def test_the_index_does_not_write_what_it_read_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = message("独角兽")
    conversation = mine.lane.with_agent("a")
    await bench.memory.remember(conversation, [Turn(role=Role.USER, text="独角兽", id="q", at=AT)])
    info, go_on, reading = bench.memory.info, asyncio.Event(), asyncio.Event()

    async def slow(asked: Any) -> Any:
        found = await info(asked)
        reading.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(bench.memory, "info", slow)
    bench.index.touch(conversation)
    flushing = asyncio.create_task(bench.index.flush())
    await reading.wait()
    await bench.forgetting.forget(mine.user)
    go_on.set()
    await flushing
    assert await bench.rows("SELECT * FROM conversations") == []


def test_a_channel_without_memory_of_persons_is_not_asked() -> None:
    assert isinstance(Channel(), Remembers)
    assert not isinstance(object(), Remembers)


def test_what_is_said_of_what_was_removed() -> None:
    some = Removed(conversations=2, summaries=1) + Removed(turns=4, profiles=1, originals=3, messages=9, cached=True)
    assert str(some) == (
        "2 个会话、1 份摘要、共享群聊中的 4 条内容、1 份个人资料、3 份留存的原件、9 条收件记录"
        "（Redis 暂时连不上，其中的缓存会在它恢复后或到期时删除）"
    )
    assert some
    assert not Removed(cached=True)


def test_a_rate_is_remembered_no_longer_than_it_counts() -> None:
    limit = RateLimit()
    assert limit.allows("u1", 2, 0.0)
    assert limit.allows("u1", 2, 1.0)
    assert not limit.allows("u1", 2, 2.0)
    assert limit.allows("u2", 2, 62.0)
    assert set(limit._seen) == {"u2"}
    assert limit.allows("u1", 2, 63.0)
    assert limit.allows("u1", 2, 64.0)
    assert not limit.allows("u1", 2, 65.0)


# ---- the API

USER = "u" + "a" * 12


async def post(running: Running, body: object) -> tuple[int, dict[str, Any]]:
    async with running.session.post("/api/forget", json=body, headers=RIGHT) as response:
        return response.status, await response.json()


async def test_the_api_removes_and_says_what() -> None:
    backend = FakeBackend()
    backend.removed = Removed(conversations=2)
    async with Running(backend, Clock()) as running:
        assert await post(running, {"user": USER}) == (200, {"user": USER, "removed": "2 个会话", "found": True})
        backend.removed = Removed()
        assert await post(running, {"user": USER}) == (200, {"user": USER, "removed": "没有找到资料", "found": False})
        assert backend.asked == [("forget", USER)] * 2
        backend.broken = True
        status, body = await post(running, {"user": USER})
        assert status == 500
        assert "日志" in body["error"]


@pytest.mark.parametrize(
    "body", [{}, {"user": ""}, {"user": "张三"}, {"user": "g" + "a" * 12}, {"user": 1}, {"u": USER}]
)
async def test_the_api_takes_no_other_than_a_persons_id(body: object) -> None:
    backend = FakeBackend()
    async with Running(backend, Clock()) as running:
        assert (await post(running, body))[0] == 400
    assert backend.asked == []


async def test_the_api_needs_the_token_and_the_own_origin() -> None:
    backend = FakeBackend()
    async with Running(backend, Clock()) as running:
        for headers, status in (({}, 401), ({**RIGHT, "Origin": "https://evil.example"}, 403)):
            async with running.session.post("/api/forget", json={"user": USER}, headers=headers) as response:
                assert response.status == status
    assert backend.asked == []
