"""The way in under a burst: acknowledgements come before answers are begun, but no answer waits for ever."""

import asyncio
import random
import time
from typing import Any, cast

import pytest

from channels.message import GatewayClosed
from gateway import intake as module
from gateway.intake import Intake
from gateway.snapshot import Snapshots
from gateway.storage.inbox import Inbox
from gateway.storage.stored_message import Duplicate, State
from memory.generations import Generations
from tests.gateway.messages import message


class SlowInbox:
    """Says of every message that it was there before, once it may."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def accept(self, *_: object) -> Duplicate:
        await self.go.wait()
        return Duplicate(State.DELIVERED)


class AnySettings:
    """Settings in which nothing is special."""

    def now(self) -> Any:
        return self

    settings = conversations = limits = property(lambda self: self)
    group_context = "own"
    max_text_bytes = 10_000


async def nothing(_: object) -> None:
    return None


@pytest.fixture
async def inbox() -> SlowInbox:
    return SlowInbox()


@pytest.fixture
def intake(inbox: SlowInbox) -> Intake:
    made = Intake(
        cast(Inbox, inbox),
        cast(Snapshots, AnySettings()),
        settled=nothing,
        person=str,
        generations=Generations(),
        put=lambda waiting: None,
        refill=lambda lane: None,
        spawn=asyncio.create_task,
        clock=time.time,
    )
    made.open()
    return made


async def begun(intake: Intake, count: int) -> list["asyncio.Task[Any]"]:
    tasks = [asyncio.create_task(intake.accept(message(f"m{random.random()}"))) for _ in range(count)]
    await asyncio.sleep(0.01)
    return tasks


async def test_answers_wait_for_a_burst_to_be_acknowledged(intake: Intake, inbox: SlowInbox) -> None:
    tasks = await begun(intake, module._MANY + 1)
    waiting = asyncio.create_task(intake.eased())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    inbox.go.set()
    await asyncio.wait_for(waiting, 30)
    await asyncio.gather(*tasks)


async def test_no_answer_waits_for_a_few(intake: Intake, inbox: SlowInbox) -> None:
    tasks = await begun(intake, module._MANY)
    await asyncio.wait_for(intake.eased(), 30)
    inbox.go.set()
    await asyncio.gather(*tasks)


async def test_no_answer_waits_long(intake: Intake, inbox: SlowInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.02)
    tasks = await begun(intake, module._MANY + 1)
    await asyncio.wait_for(intake.eased(), 30)
    inbox.go.set()
    await asyncio.gather(*tasks)


async def test_what_is_too_much_is_to_be_delivered_later(
    intake: Intake, inbox: SlowInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 5)
    tasks = await begun(intake, 5)
    with pytest.raises(GatewayClosed):
        await intake.accept(message("太多了"))
    inbox.go.set()
    await asyncio.gather(*tasks)
    await intake.accept(message("又可以了"))
