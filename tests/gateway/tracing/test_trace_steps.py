"""What the outbox, the shelf and the model leave in the trace of a message."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agents.model import Completion, ModelRequest, ModelSettings, ModelTimeout, TokenUsage
from channels.channel import SendDeferred, SendError, SendFailed, SendLimited, SendRefused, SendUncertain
from channels.message import InboundMessage
from gateway import outbox as outbox_module
from gateway.outbox import Outbox
from gateway.shelf import KEPT_SECONDS, InboxShelf
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA, Inbox
from gateway.storage.parts import Parts
from gateway.storage.stored_message import Group, State, Stored
from gateway.tracing.trace import Kind
from gateway.tracing.traced_model import TracedModel
from tests.gateway.messages import message
from tests.gateway.test_outbox import Platform


class Notes:
    """What was noted: the message's id, the kind, the facts."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Kind, dict[str, Any]]] = []

    def __call__(self, message: InboundMessage, kind: Kind, asked: object = None, /, **facts: Any) -> None:
        self.steps.append((message.id, kind, facts))

    @property
    def kinds(self) -> list[str]:
        return [str(kind) for _, kind, _ in self.steps]


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    yield Inbox(database)
    await database.close()


async def answered(inbox: Inbox, parts: list[str]) -> Stored:
    stored = await inbox.accept(message(message_id="om_1"), 0.0)
    assert isinstance(stored, Stored)
    await inbox.finish(Group((stored,)), State.ANSWERED, parts, 0.0)
    return stored


@pytest.mark.parametrize(
    ("errors", "kinds"),
    [
        ([], ["sent", "sent"]),
        ([SendFailed("500"), SendLimited("slow down", 0.01)], ["retried", "retried", "sent", "sent"]),
        ([SendRefused("not in chat")], ["unsent"]),
        ([SendDeferred("quota")], ["shelved"]),
        ([SendUncertain("cut")] * 2, ["retried", "sent", "sent"]),
        ([SendFailed("500")] * 9, ["retried"] * 2 + ["unsent"]),
    ],
)
async def test_each_way_a_send_can_end(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, errors: list[SendError], kinds: list[str]
) -> None:
    monkeypatch.setattr(outbox_module, "_FIRST_PAUSE", 0.005)
    notes, platform, now = Notes(), Platform(), 0.0
    platform.errors = list(errors)

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    async with asyncio.TaskGroup() as tasks:
        outbox = Outbox(
            Parts(inbox._database),
            {"feishu": platform},  # type: ignore[dict-item]
            patience=lambda: 4.0 if len(errors) > 2 else 100.0,
            spawn=tasks.create_task,
            clock=clock,
            rng=random.Random(1),
            note=notes,
        )
        stored = await answered(inbox, ["一", "二"])
        outbox.put(stored.seq, stored, ["一", "二"])
        await outbox.drain(30)
    assert notes.kinds == kinds
    facts = notes.steps[-1][2]
    if kinds[-1] == "sent":
        assert (facts["part"], facts["parts"], facts["platform_id"]) == (2, 2, f"om_{len(platform.sent)}")
    elif kinds[-1] == "unsent":
        assert (facts["part"], facts["reason"]) == (1, str(errors[0]))


async def test_an_answer_of_a_channel_that_is_off_is_left(inbox: Inbox) -> None:
    notes = Notes()
    async with asyncio.TaskGroup() as tasks:
        outbox = Outbox(
            Parts(inbox._database),
            {},
            patience=lambda: 100.0,
            spawn=tasks.create_task,
            clock=lambda: 0.0,
            rng=random.Random(1),
            note=notes,
        )
        stored = await answered(inbox, ["一"])
        outbox.put(stored.seq, stored, ["一"])
        await outbox.drain(30)
    assert notes.kinds == ["left"]


async def test_parts_on_the_shelf_are_fetched_or_not(inbox: Inbox) -> None:
    notes, parts, now = Notes(), Parts(inbox._database), 10.0
    shelf = InboxShelf(inbox, parts, None, lambda: now, notes)  # type: ignore[arg-type]
    stored = await answered(inbox, ["一", "二"])
    await parts.shelve(stored.seq, 0)
    first, _ = await shelf.waiting(stored.message.lane)
    await shelf.fetched(first)
    now += KEPT_SECONDS
    await shelf.clear_old()
    assert [(id_, str(kind)) for id_, kind, _ in notes.steps] == [("om_1", "sent"), ("om_1", "unsent")]
    assert notes.steps[0][2] == {"part": 1, "parts": 2, "fetched": True}


class Script:
    """A model that says its pieces and then ends as told."""

    settings = ModelSettings(model="m")

    def __init__(self, pieces: list[str], end: Completion | BaseException) -> None:
        self.pieces, self.end = pieces, end

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        for piece in self.pieces:
            await asyncio.sleep(0.01)
            on_text(piece)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


async def traced(script: Script) -> tuple[list[str], dict[str, Any]]:
    """What was heard, and the facts of the one step."""
    notes, heard = Notes(), list[str]()
    who = message()
    model = TracedModel(script, lambda kind, **facts: notes(who, kind, **facts))
    end = script.end
    if isinstance(end, BaseException):
        with pytest.raises(type(end)):
            await model.complete(ModelRequest(messages=()), heard.append)
    else:
        assert await model.complete(ModelRequest(messages=()), heard.append) is end
    ((_, kind, facts),) = notes.steps
    assert kind is Kind.MODEL
    return heard, facts


async def test_a_model_is_timed_to_the_first_word_and_the_last() -> None:
    done = Completion(text="一二", model="other", usage=TokenUsage(10, 2))
    begun = time.perf_counter()
    heard, facts = await traced(Script(["一", "二"], done))
    whole = time.perf_counter() - begun
    assert heard == ["一", "二"]
    assert 0.005 < facts["first_token"] < facts["seconds"] < whole + 0.01
    told = {key: facts[key] for key in ("model", "prompt_tokens", "completion_tokens", "finish")}
    assert told == {"model": "other", "prompt_tokens": 10, "completion_tokens": 2, "finish": "stop"}
    _, silent = await traced(Script([], Completion(text="x", model="m")))
    assert (silent["first_token"], silent["prompt_tokens"]) == (None, None)


@pytest.mark.parametrize(
    ("end", "error"), [(ModelTimeout("m: no answer in time"), "ModelTimeout"), (asyncio.CancelledError(), "stopped")]
)
async def test_a_model_that_gives_no_answer(end: BaseException, error: str) -> None:
    heard, facts = await traced(Script(["半"], end))
    assert heard == ["半"]
    assert (facts["model"], facts["error"]) == ("m", error)
    assert facts["seconds"] > 0
