"""What is full behaves as docs/architecture.md says, where no test beside the code looks at it."""

import asyncio
import random
from typing import Any

import pytest

from channels import calls, pace
from channels.calls import Calls
from channels.feishu.chunks import Chunks
from channels.feishu.frame import Frame
from channels.health import Troubles
from channels.message import Part
from channels.reconnecting import Work
from channels.wecom import exchange
from channels.wecom.exchange import AckMissing, ConnectionLost, Exchange
from gateway import limits
from gateway.limits import RateLimit
from gateway.outbox import Outbox
from gateway.storage.parts import WaitingPart
from gateway.storage.stored_message import Stored
from tests.gateway.messages import message
from tests.platforms.model_server import ModelServer
from tests.waiting import until


async def test_a_connection_is_read_no_faster_than_its_messages_are_stored() -> None:
    """`Work`. What comes next stays with the platform, and is not forgotten."""
    work, free, done = Work("test", 2), asyncio.Event(), []

    async def job(number: int) -> None:
        await free.wait()
        done.append(number)

    for number in range(2):
        await work.begin(lambda number=number: job(number))
    third = asyncio.create_task(work.begin(lambda: job(2)))
    await asyncio.sleep(0.02)
    assert not third.done()
    free.set()
    await third
    await work.settle(1.0)
    assert sorted(done) == [0, 1, 2]


async def test_acknowledgements_nobody_sends_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ACK_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "_MOST_WAITING", 3)
    monkeypatch.setattr(exchange, "MOST_MISSED", 100)
    ended: list[str] = []

    async def send(text: str) -> None:
        """It goes out, and is never acknowledged."""

    connection = Exchange(send, ended.append)
    outcomes = await asyncio.gather(*(connection.ask("x", f"r{n}") for n in range(3)), return_exceptions=True)
    assert {type(each) for each in outcomes} <= {AckMissing, ConnectionLost}
    assert len(ended) == 1
    with pytest.raises(ConnectionLost):
        await connection.ask("x", "r4")


def test_paces_of_those_who_are_due_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_MOST_KEYS", 10)
    slow = pace.Pace(1.0)
    for number in range(100):
        slow.take(f"chat{number}", float(number))
    assert len(slow._due) <= 11
    assert slow.wait("chat99", 99.0) == pytest.approx(1.0)


def test_the_count_of_messages_knows_a_bounded_number_of_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_PEOPLE", 10)
    rate = RateLimit()
    assert all(rate.allows(f"u{number}", 1, 1.0) for number in range(30))
    assert len(rate._seen) <= 10
    assert not rate.allows("u29", 1, 2.0), "the latest are known"


class _Shelf:
    """The parts in the inbox: reads are counted."""

    def __init__(self) -> None:
        self.read: list[int] = []

    async def waiting(self, turn: int) -> list[WaitingPart]:
        self.read.append(turn)
        return [WaitingPart(0, 1, f"答{turn}")]

    async def sent(self, *given: Any) -> None:
        """Nothing to keep."""


class _Slow:
    """A channel whose first send takes until `free` is set."""

    name, repeatable = "feishu", True

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.sent: list[str] = []

    async def send(self, part: Part) -> str:
        await self.free.wait()
        self.sent.append(part.text)
        return ""


async def test_answers_that_wait_for_a_slow_platform_wait_on_the_disk() -> None:
    """of one lane at most twenty with their text in memory; the others are read when it is their turn, in order."""
    shelf, channel = _Shelf(), _Slow()
    async with asyncio.TaskGroup() as tasks:
        outbox = Outbox(
            shelf,  # type: ignore[arg-type]
            {"feishu": channel},  # type: ignore[dict-item]
            patience=lambda: 60.0,
            spawn=tasks.create_task,
            clock=lambda: 1.0,
            rng=random.Random(1),
        )
        for turn in range(40):
            outbox.put(turn, Stored(turn, 1.0, message()), [f"答{turn}"])
        (lane,) = outbox._lanes.values()
        assert sum(each.parts is not None for each in lane.waiting) == 20
        channel.free.set()
        await until(lambda: len(channel.sent) == 40)
    assert channel.sent == [f"答{turn}" for turn in range(40)]
    assert shelf.read == list(range(20, 40))


async def test_an_answer_of_a_platform_that_does_not_end_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MOST_ANSWER", 1000)
    async with ModelServer() as server:
        server.answer = lambda messages: "长" * 100_000
        some = Calls("飞书", Troubles("feishu", lambda: 1.0), None, proxy="", clock=lambda: 1.0)  # type: ignore[arg-type]
        body = '{"messages": [{"role": "user", "content": "x"}]}'
        answer = await some.request("POST", f"{server.base_url}/chat/completions", body)
        await some.close()
    assert 1000 <= len(answer.body) < 300_000


async def test_a_platform_is_called_on_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call waits for a connection, within its own time."""
    monkeypatch.setattr(calls, "_MOST_CONNECTIONS", 2)
    async with ModelServer() as server:
        server.delay = lambda messages: 0.2
        some = Calls("飞书", Troubles("feishu", lambda: 1.0), None, proxy="", clock=lambda: 1.0)  # type: ignore[arg-type]
        body = '{"messages": [{"role": "user", "content": "x"}]}'
        address = f"{server.base_url}/chat/completions"
        answers = await asyncio.gather(*(some.request("POST", address, body) for _ in range(5)))
        await some.close()
    assert [answer.status for answer in answers] == [200] * 5
    assert server.most_running <= 2


async def test_events_in_many_pieces_are_delivered_again_when_they_were_too_many() -> None:
    """`Chunks`: what was dropped was never acknowledged; whole again, it is taken."""
    gathered = Chunks(most_bytes=100)

    def piece(key: str, seq: int) -> Frame:
        return Frame(method=1, headers=(("message_id", key), ("sum", "2"), ("seq", str(seq))), payload=b"x" * 40)

    assert [gathered.add(piece(key, 0), 1.0) for key in "abc"] == [None] * 3
    assert gathered.add(piece("a", 1), 1.0) is None, "its first piece had to go"
    assert gathered.add(piece("a", 0), 1.0) == b"x" * 80
