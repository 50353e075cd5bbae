"""The outbox: in order, tried again within bounds, given up truthfully."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.channel import Health, SendDeferred, SendFailed, SendLimited, SendRefused, SendUncertain
from channels.message import InboundMessage, Part, Progress
from gateway import outbox as outbox_module
from gateway.outbox import Outbox
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA, Inbox
from gateway.storage.parts import Parts
from gateway.storage.stored_message import Duplicate, Group, State, Stored
from tests.gateway.messages import message
from tests.waiting import until


class Platform:
    """A channel whose sends fail as told, one error each."""

    name = "feishu"
    repeatable = True

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.tried: list[Part] = []
        self.sent: list[str] = []
        self.hold: asyncio.Event | None = None

    async def send(self, part: Part) -> str:
        self.tried.append(part)
        if self.hold:
            await self.hold.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(part.text)
        return f"om_{len(self.sent)}"

    def progress(self, message: InboundMessage, event: Progress) -> None: ...
    def routes(self) -> list[object]:
        return []

    async def run(self) -> None: ...
    async def stop_receiving(self) -> None: ...
    async def close(self) -> None: ...
    def health(self) -> Health:
        return Health(True, "", 0)


class Bench:
    """An outbox over a real inbox and a platform that fails as told."""

    def __init__(self, inbox: Inbox, tasks: asyncio.TaskGroup) -> None:
        self.inbox = inbox
        self.parts = Parts(inbox._database)
        self.platform = Platform()
        self.now = 0.0
        self.outbox = Outbox(
            self.parts,
            {"feishu": self.platform},  # type: ignore[dict-item]
            patience=lambda: 100.0,
            spawn=tasks.create_task,
            clock=lambda: self.now,
            rng=random.Random(1),
        )

    async def answer(self, parts: list[str], user: str = "ou_1") -> Stored:
        stored = await self.inbox.accept(message(user=user), 0.0)
        assert isinstance(stored, Stored)
        await self.inbox.finish(Group((stored,)), State.ANSWERED, parts, 0.0)
        self.outbox.put(stored.seq, stored, parts)
        return stored

    async def state(self, stored: Stored) -> State:
        seen = await self.inbox.accept(stored.message, 0.0)
        assert isinstance(seen, Duplicate)
        return seen.state


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    yield Inbox(database)
    await database.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_FIRST_PAUSE", 0.005)
    monkeypatch.setattr(outbox_module, "_CALL_SECONDS", 20.0)


async def test_parts_go_out_in_order_with_keys_of_their_own(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        first = await bench.answer(["一", "二", "三"])
        second = await bench.answer(["四"])
        await until(lambda: bench.platform.sent == ["一", "二", "三", "四"])
        await bench.outbox.drain(30)
    assert await bench.state(first) == await bench.state(second) == State.DELIVERED
    assert len({part.key for part in bench.platform.tried}) == 4


async def test_a_part_is_tried_again_under_the_same_key(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendFailed("500"), SendLimited("slow down", 0.01), SendFailed("reset")]
        stored = await bench.answer(["一"])
        await bench.outbox.drain(30)
    assert bench.platform.sent == ["一"]
    assert len(bench.platform.tried) == 4
    assert len({part.key for part in bench.platform.tried}) == 1
    assert await bench.state(stored) == State.DELIVERED


async def test_a_refused_part_ends_the_answer_not_the_lane(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendRefused("bot not in chat")]
        refused = await bench.answer(["一", "二"])
        next_one = await bench.answer(["三"])
        await bench.outbox.drain(30)
    assert bench.platform.sent == ["三"]
    assert await bench.state(refused) == State.FAILED
    assert await bench.state(next_one) == State.DELIVERED
    assert "bot not in chat" in caplog.text


async def test_patience_is_bounded(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.now = 99.999
        bench.platform.errors = [SendFailed("down")] * 3
        stored = await bench.answer(["一"])
        await bench.outbox.drain(30)
    assert len(bench.platform.tried) == 1
    assert await bench.state(stored) == State.FAILED


async def test_a_call_that_hangs_is_cut_and_tried_again(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_CALL_SECONDS", 0.1)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.hold = asyncio.Event()
        await bench.answer(["一"])
        await until(lambda: len(bench.platform.tried) == 2)
        bench.platform.hold.set()
        await bench.outbox.drain(30)
    assert bench.platform.sent == ["一"]


async def test_a_call_that_is_cut_where_repeats_show_is_repeated_once(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_CALL_SECONDS", 0.1)
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.repeatable = False
        bench.platform.hold = asyncio.Event()
        stored = await bench.answer(["一"])
        await bench.outbox.drain(30)
    assert len(bench.platform.tried) == 2
    assert await bench.state(stored) == State.DELIVERED


async def test_an_answer_that_is_dropped_goes_out_no_more_but_its_neighbours_do(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.hold = asyncio.Event()
        current, after, waits, last = [await bench.answer([text]) for text in ("一", "二", "三", "四")]
        await until(lambda: len(bench.platform.tried) == 1)
        assert await bench.outbox.drop_turns({current.seq, waits.seq}) == [waits, current]
        bench.platform.hold.set()
        await until(lambda: bench.platform.sent == ["二", "四"])
        await bench.outbox.drain(30)
    assert await bench.state(after) == await bench.state(last) == State.DELIVERED
    assert await bench.state(current) == await bench.state(waits) == State.ANSWERED, "what they are is not its affair"


async def test_one_slow_chat_holds_up_no_other(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendLimited("wait", 60)]
        await bench.answer(["慢"], user="ou_1")
        await until(lambda: bench.platform.tried)
        await bench.answer(["快"], user="ou_2")
        await until(lambda: bench.platform.sent == ["快"], timeout=20)
        await bench.outbox.drain(0.01)


async def test_drain_leaves_the_rest_in_the_inbox(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendLimited("wait", 50)]
        stored = await bench.answer(["一", "二"])
        await until(lambda: bench.platform.tried)
        await bench.outbox.drain(0.01)
    (pending,) = await inbox.pending()
    assert pending.turn == stored.seq
    assert [part.text for part in await bench.parts.waiting(stored.seq)] == ["一", "二"]


async def test_a_channel_that_is_off_is_said(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        stored = await inbox.accept(message(entry="feishu-gone"), 0.0)
        assert isinstance(stored, Stored)
        await inbox.finish(Group((stored,)), State.ANSWERED, ["一"], 0.0)
        bench.outbox.put(stored.seq, stored)
        await bench.outbox.drain(30)
    assert "channel-is-off" in caplog.text
    assert await bench.state(stored) == State.ANSWERED, "once the channel is on again it is sent"
    assert len(await inbox.pending()) == 1


async def test_a_part_that_may_have_arrived_is_repeated_once(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendUncertain("no answer"), SendUncertain("no answer")]
        stored = await bench.answer(["一", "二"])
        await bench.outbox.drain(30)
    assert [part.text for part in bench.platform.tried] == ["一", "一", "二"]
    assert await bench.state(stored) == State.DELIVERED


async def test_a_send_that_cannot_be_recorded_is_not_repeated(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        sent, failures = bench.parts.sent, [sqlite3.OperationalError("disk full")] * 2

        async def fails_twice(turn: int, number: int, platform_id: str, now: float, *, only: bool = False) -> None:
            if failures:
                raise failures.pop()
            await sent(turn, number, platform_id, now, only=only)

        monkeypatch.setattr(bench.parts, "sent", fails_twice)
        stored = await bench.answer(["一", "二"])
        await bench.answer(["三"])
        await bench.outbox.drain(30)
    assert bench.platform.sent == ["一", "二", "三"]
    assert await bench.state(stored) == State.DELIVERED


async def test_what_cannot_be_sent_now_goes_to_the_shelf(inbox: Inbox) -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(inbox, tasks)
        bench.platform.errors = [SendDeferred("no open delivery")]
        stored = await bench.answer(["一", "二"])
        await bench.outbox.drain(30)
    lane = stored.message.lane
    assert await inbox.pending() == [], "a restart does not send it by itself"
    shelved = await bench.parts.shelved(lane, 0.0)
    assert [(part.number, part.total, part.text) for part in shelved] == [(0, 2, "一"), (1, 2, "二")]
    assert {part.message_id for part in shelved} == {stored.message.id}
    await bench.parts.sent(stored.seq, 0, "", 1.0)
    assert await bench.state(stored) == State.ANSWERED
    await bench.parts.sent(stored.seq, 1, "", 1.0)
    assert await bench.state(stored) == State.DELIVERED
    assert await bench.parts.shelved(lane, 0.0) == []
