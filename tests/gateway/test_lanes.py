"""Lanes: order inside, side by side among them, merging, bounded memory."""

import asyncio
import random
import sqlite3
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import lanes
from gateway.commands import parse
from gateway.lanes import Lanes, Merging, Waiting, Work, next_group
from gateway.route import By, Route
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA, Inbox
from gateway.storage.stored_message import Group, State, Stored
from tests.gateway.messages import message
from tests.waiting import until

ALL = Merging(True, 0.0, 10_000)


def waiting(text: str, *, user: str = "ou_1", agent: str | None = None, rule: str | None = None) -> Waiting:
    return Waiting(Stored(1, 0.0, message(text, user=user, agent=agent)), command=parse(text), rule=rule)


def groups(items: list[Waiting], merging: Merging = ALL) -> list[list[str]]:
    left = deque(items)
    out = []
    while left:
        work = next_group(left, merging)
        out.append([stored.message.text for stored in work.group.stored])
    return out


def test_what_waits_becomes_one_turn() -> None:
    assert groups([waiting("一"), waiting("二"), waiting("三")]) == [["一", "二", "三"]]
    assert groups([waiting("一"), waiting("二")], Merging(False, 0, 10_000)) == [["一"], ["二"]]


def test_never_across_a_command_a_refusal_a_speaker_or_an_agent() -> None:
    refused = Waiting(Stored(1, 0.0, message("x")), refusal="rate-limited")
    assert groups([waiting("一"), waiting("/new"), waiting("二"), waiting("三")]) == [["一"], ["/new"], ["二", "三"]]
    assert groups([waiting("一"), refused, waiting("二")]) == [["一"], ["x"], ["二"]]
    assert groups([waiting("一"), waiting("二", user="ou_2")]) == [["一"], ["二"]]
    assert groups([waiting("一"), waiting("二", agent="other")]) == [["一"], ["二"]]
    assert groups([waiting("岗位", rule="job"), waiting("25k"), waiting("简历", rule="resume")]) == [
        ["岗位", "25k"],
        ["简历"],
    ]
    assert groups([waiting("随便"), waiting("简历", rule="resume")]) == [["随便"], ["简历"]]


def test_a_group_is_bounded_in_bytes() -> None:
    assert groups([waiting("字" * 10)] * 3, Merging(True, 0, 65)) == [["字" * 10] * 2, ["字" * 10]]


class Bench:
    """Lanes over a real inbox; what is handled is recorded and ended."""

    def __init__(self, inbox: Inbox, tasks: asyncio.TaskGroup, merging: Merging) -> None:
        self.inbox = inbox
        self.done: list[list[str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.running = 0
        self.failures: dict[str, int] = {}
        self.reruns: list[bool] = []
        self.lanes = Lanes(
            inbox,
            self.handle,
            self.examine,
            lambda: merging,
            spawn=tasks.create_task,
            clock=lambda: self.now,
            rng=random.Random(1),
        )
        self.now = 0.0

    def examine(self, stored: Stored) -> Waiting:
        return Waiting(stored, command=parse(stored.message.text))

    async def say(self, text: str, user: str = "ou_1") -> None:
        stored = await self.inbox.accept(message(text, user=user), self.now)
        assert isinstance(stored, Stored)
        self.lanes.put(self.examine(stored))

    async def handle(self, work: Work) -> None:
        self.running += 1
        texts = [stored.message.text for stored in work.group.stored]
        if texts[0] in self.failures:
            self.reruns.append(work.group.rerun)
            self.failures[texts[0]] -= 1
            if self.failures[texts[0]] >= 0:
                raise RuntimeError("broken secret")
        gate = self.gates.get(texts[0])
        if gate:
            await gate.wait()
        await self.inbox.finish(work.group, State.DELIVERED, [], self.now)
        self.done.append(texts)
        self.running -= 1


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    yield Inbox(database)
    await database.close()


async def test_order_inside_a_lane_side_by_side_among_lanes(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        gate = bench.gates["慢"] = asyncio.Event()
        await bench.say("慢")
        await until(lambda: bench.running == 1)
        await bench.say("后一")
        await bench.say("后二")
        await bench.say("别人", user="ou_2")
        await until(lambda: bench.done == [["别人"]])
        gate.set()
        await until(lambda: len(bench.done) == 3)
        assert bench.done == [["别人"], ["慢"], ["后一", "后二"]]
        await until(lambda: len(bench.lanes) == 0)


async def test_stop_and_reading_commands_overtake_the_rest_keeps_its_place(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        gate = bench.gates["慢"] = asyncio.Event()
        for text in ("慢", "/new", "/status", "/stop", "之后"):
            await bench.say(text)
        await until(lambda: len(bench.done) == 2)
        assert sorted(bench.done) == [["/status"], ["/stop"]]
        gate.set()
        await until(lambda: len(bench.done) == 5)
        assert bench.done[2:] == [["慢"], ["/new"], ["之后"]]


async def test_a_flood_stays_in_the_inbox_and_keeps_its_order(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, Merging(False, 0, 0))
        gate = bench.gates["0"] = asyncio.Event()
        for n in range(180):
            await bench.say(str(n))
        await bench.say("/status")
        (lane,) = bench.lanes._lanes.values()
        assert len(lane.waiting) <= 50, "the rest waits on disk"
        gate.set()
        await until(lambda: len(bench.done) == 181)
        assert [texts[0] for texts in bench.done if texts != ["/status"]] == [str(n) for n in range(180)]
        assert bench.done.count(["/status"]) == 1


async def test_debounce_waits_for_the_rest_of_a_thought(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, Merging(True, 0.1, 10_000))
        await bench.say("我想")
        await asyncio.sleep(0.03)
        await bench.say("找工作")
        assert bench.done == []
        bench.now = 1.0
        await until(lambda: bench.done == [["我想", "找工作"]])


async def test_a_restart_runs_the_taken_group_first(inbox: Inbox) -> None:
    stored = [await inbox.accept(message(text), 0.0) for text in ("一", "二", "三")]
    assert all(isinstance(each, Stored) for each in stored)
    group = Group((stored[0], stored[1]))  # type: ignore[arg-type]
    await inbox.take(group, group.newest.message.lane.with_agent("a"), Route("a", By.DEFAULT, "默认"), 0.0)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        for taken in await inbox.taken():
            bench.lanes.put_rerun(taken)
        bench.lanes.refill(group.newest.message.lane)
        await until(lambda: len(bench.done) == 2)
        assert bench.done == [["一", "二"], ["三"]]


async def test_drain_starts_nothing_new_and_cancels_at_the_deadline(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        bench.gates["卡住"] = asyncio.Event()
        await bench.say("卡住")
        await until(lambda: bench.running == 1)
        await bench.say("下一条")
        await bench.lanes.drain(0.05)
        await bench.say("停止之后")
    assert bench.done == []
    lane = str(message().lane)
    assert [each.message.text for each in await inbox.waiting(lane, 0, 10)] == ["卡住", "下一条", "停止之后"]


async def test_work_that_fails_is_handled_again_and_holds_up_no_other_lane(
    inbox: Inbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.05)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        bench.failures = {"坏": 2}
        await bench.say("坏")
        await bench.say("后面的")
        await bench.say("好", user="ou_2")
        await until(lambda: bench.done[:1] == [["好"]])
        await until(lambda: len(bench.done) == 3)
    assert bench.done == [["好"], ["坏"], ["后面的"]]
    assert bench.reruns == [False, True, True], "what was begun is looked up before it is done again"
    assert "lane failed" in caplog.text
    assert "broken secret" not in caplog.text


async def test_a_lane_survives_a_failing_inbox(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.02)
    waiting, failures = inbox.waiting, [sqlite3.OperationalError("disk full")] * 2

    async def fails_twice(lane: str, after: int, limit: int) -> list[Stored]:
        if failures:
            raise failures.pop()
        return await waiting(lane, after, limit)

    monkeypatch.setattr(inbox, "waiting", fails_twice)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, Merging(False, 0, 0))
        gate = bench.gates["0"] = asyncio.Event()
        for n in range(60):
            await bench.say(str(n))
        gate.set()
        await until(lambda: len(bench.done) == 60)
        await bench.say("60")
        await until(lambda: len(bench.done) == 61)


async def test_what_is_asked_for_while_a_fetch_is_under_way_is_fetched_too(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch had read before the message was there; each is handled once all the same."""
    fetch, has_read, go_on = inbox.waiting, asyncio.Event(), asyncio.Event()

    async def slow(lane: str, after: int, limit: int) -> list[Stored]:
        found = await fetch(lane, after, limit)
        has_read.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(inbox, "waiting", slow)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, Merging(False, 0, 0))
        await inbox.accept(message("一"), 0.0)
        bench.lanes.refill(message().lane)
        await has_read.wait()
        await inbox.accept(message("二"), 0.0)
        bench.lanes.refill(message().lane)
        go_on.set()
        await until(lambda: len(bench.lanes) == 0)
    assert bench.done == [["一"], ["二"]]


async def test_an_overtaking_command_that_fails_is_tried_again_alone(
    inbox: Inbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FIRST_PAUSE", 0.05)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks, ALL)
        bench.failures = {"/status": 2}
        await bench.say("/status")
        await bench.say("你好")
        await until(lambda: bench.done == [["你好"], ["/status"]])
    assert caplog.text.count("command failed") == 2
    assert len(bench.lanes) == 0
