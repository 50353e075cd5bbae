"""A long consultation, measured: what is still known late, whether anything falls between, what filtering is worth."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.agent import Agent, AgentSettings
from agents.model import ChatMessage, Completion, ModelRequest, ModelSettings
from agents.prompt import compose
from gateway.turns.room import Room
from gateway.turns.summaries import Occasion, Summaries
from memory.acknowledgement import ASSENTS, CLOSERS, acknowledgements
from memory.context import ContextSettings
from memory.conversation import Turn
from memory.masking import Masking
from memory.memory import Memory
from memory.tokens import estimate
from memory.window import Window, WindowSettings, build_window
from tests.bench.consultation import FACT, ROUNDS
from tests.memory.pool import AT, CONVERSATION, answer, user
from tests.waiting import until

AGENT = Agent("job-recommend-agent", AgentSettings(prompt="你是求职顾问。"))
WORDS = acknowledgements(CLOSERS, ASSENTS, WindowSettings().short_message_threshold)


def is_acknowledgement(text: str) -> bool:
    return WORDS.kind(text) is not None


class KeepsMarkedFacts:
    """A summariser by script: what stands between 「 and 」 goes from summary to summary, the rest is told in brief."""

    settings = ModelSettings()

    async def complete(self, request: ModelRequest, on_text: Any, *, within: float | None = None) -> Completion:
        facts = dict.fromkeys(re.findall("「[^」]*」", request.messages[-1].content))
        return Completion(text="用户在找工作。" + "".join(facts), model="scripted")


class Consultation:
    """The consultation, with a gateway's summaries after each answer."""

    def __init__(self, workspace: Path, tasks: asyncio.TaskGroup) -> None:
        self.memory = Memory(workspace, durability="none")
        model, self.context = KeepsMarkedFacts(), ContextSettings()
        self.snapshot: Any = SimpleNamespace(
            context=lambda agent, entry: self.context,
            model=lambda agent: model,
            models=SimpleNamespace(client=lambda name: model),
            iso=lambda now: AT,
            tools=lambda agent, group: (),
            masking=lambda agent: Masking(()),
        )
        self.summaries = Summaries(self.memory, spawn=tasks.create_task, clock=lambda: 0.0, rng=random.Random(1))

    async def ask(self, number: int) -> tuple[Window, tuple[ChatMessage, ...]]:
        """One round: the window of its question, the request; its summary is finished then."""
        said, answered = ROUNDS[number - 1]
        (question,) = await self.memory.remember(CONVERSATION, [user(f"q{number}", said)])
        room = Room.of(self.snapshot, AGENT, CONVERSATION, None)
        window = await self.memory.window(
            CONVERSATION, self.context.window, question=question, room=room.tokens, weigh=room.weigh
        )
        summary = window.summary.text if window.summary else None
        request = compose(AGENT, window.messages, said, group=False, summary=summary)
        await self.memory.remember(CONVERSATION, [answer(f"q{number}/a", f"q{number}", answered)])
        self.summaries.after(Occasion(CONVERSATION, AGENT, "web", None, self.snapshot))
        await until(lambda: not self.summaries._running)
        return window, request


@pytest.fixture
async def consultation(tmp_path: Path) -> AsyncIterator[Consultation]:
    async with asyncio.TaskGroup() as tasks:
        consultation = Consultation(tmp_path, tasks)
        yield consultation
        await consultation.summaries.drain(0)
    await consultation.memory.close()


def test_it_is_what_it_says() -> None:
    assert len(ROUNDS) == 60
    for half in (ROUNDS[:30], ROUNDS[30:]):
        assert 6 <= sum(is_acknowledgement(said) for said, _ in half) <= 8
    assert [number for number, pair in enumerate(ROUNDS, 1) if FACT in "".join(pair)] == [3], "told once"


async def test_what_was_told_in_round_3_is_known_to_the_end(consultation: Consultation) -> None:
    """In every request from round 4 on, and no turn in neither window nor summary at any question."""
    made = set()
    for number in range(1, 61):
        window, request = await consultation.ask(number)
        assert window.gap == 0, number
        assert [message.role for message in request].count("system") == 1
        assert len(request) - 1 <= consultation.context.window.max_messages
        if number > 3:
            assert FACT in "".join(message.content for message in request), number
        if number in (25, 60):
            assert FACT in request[0].content, "in the summary: the window is past it"
            assert FACT not in "".join(message.content for message in request[1:])
        if window.summary:
            made.add(window.summary.through)
    print(f"\nsummaries used: {sorted(made)}")
    assert len(made) <= 11, "one per ten messages"


def turns_before(number: int) -> list[Turn]:
    """What stands in the file when round `number` is asked."""
    turns = []
    for round_, (said, answered) in enumerate(ROUNDS[: number - 1], 1):
        turns += [user(f"q{round_}", said), answer(f"q{round_}/a", f"q{round_}", answered)]
    return [Turn(role=t.role, text=t.text, id=t.id, at=t.at, to=t.to, n=n, epoch=0) for n, t in enumerate(turns)]


def content_tokens(window: Window) -> int:
    """Tokens of the rounds in the window that are about something: acknowledgements and their replies are not."""
    kept = {id for message in window.messages for id in message.ids}
    total = 0
    for number, (said, answered) in enumerate(ROUNDS, 1):
        if not is_acknowledgement(said):
            total += estimate(said) * (f"q{number}" in kept) + estimate(answered) * (f"q{number}/a" in kept)
    return total


def test_filtering_acknowledgements_gives_the_window_a_fifth_more_content() -> None:
    """Over all questions of the consultation for which the window is full."""
    with_filter = without = 0
    for number in range(12, 61):
        said, _ = ROUNDS[number - 1]
        if is_acknowledgement(said):
            continue
        found = []
        for filtered in (True, False):
            settings = WindowSettings(filter_short_messages=filtered)
            turns = reversed(turns_before(number))
            found.append(content_tokens(build_window(turns, question=said, settings=settings, room=10**6)))
        with_filter, without = with_filter + found[0], without + found[1]
    gain = with_filter / without - 1
    print(f"\ncontent tokens in all windows: {without} without the filter, {with_filter} with it: {gain:+.1%}")
    assert gain >= 0.2
