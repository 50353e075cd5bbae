"""Summaries in the background: after an answer, where one is due, without ever delaying an answer.

A summary is a luxury: whatever fails here changes nothing, and is tried again after a later answer.
"""

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from agents.agent import Agent
from agents.model import ContextTooLong, ModelClient, ModelError
from agents.summarise import Summarised, room_for_turns, summarise, tidy
from gateway.snapshot import Snapshot
from gateway.turns.room import room_of
from memory.conversation import ConversationId
from memory.drafting import Draft
from memory.errors import StoreError
from memory.memory import Memory
from memory.summary import Summary, SummarySettings, portion

log = logging.getLogger("sanqiao.summaries")

AT_ONCE = 4
"""How many models are asked for a summary at a time."""
WAITING = 1000
"""For how many conversations it may be under way or waiting; above that it is left to a later answer."""
STEPS = 8
"""The most summaries of one conversation in a row, where a long history was never summarised; more after its next answer."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
"""Seconds for which a conversation is left alone after a failure, and after many."""
_PAUSES = 4096
_END_SECONDS = 10.0

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class Occasion:
    """A conversation that was just answered: by whom, through which channel entry, to which speaker, on what config."""

    conversation: ConversationId
    agent: Agent
    entry: str
    speaker: str | None
    snapshot: Snapshot

    @property
    def settings(self) -> SummarySettings:
        """The settings of its summaries."""
        return self.snapshot.context(self.agent, self.entry).summary


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until: float


class Summaries:
    """Keeps every conversation's summary in step with its window; at most one is made per conversation at a time."""

    def __init__(self, memory: Memory, *, spawn: Spawn, clock: Callable[[], float], rng: random.Random) -> None:
        self._memory = memory
        self._spawn = spawn
        self._clock = clock
        self._rng = rng
        self._wanted: dict[ConversationId, Occasion] = {}
        self._running: dict[ConversationId, asyncio.Task[None]] = {}
        self._pauses: OrderedDict[ConversationId, _Pause] = OrderedDict()
        self._held: dict[str, dict[ConversationId, Occasion]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._closed = False

    def after(self, occasion: Occasion) -> None:
        """Sees to it that the summary is made, if one is due; returns at once."""
        conversation = occasion.conversation
        for user, held in self._held.items():
            if _concerns(user, conversation):
                held[conversation] = occasion
                return
        if self._closed or not occasion.settings.enabled or self._paused(conversation):
            return
        if conversation in self._running:
            self._wanted[conversation] = occasion
        elif len(self._running) < WAITING:
            self._wanted[conversation] = occasion
            self._running[conversation] = self._spawn(self._run(conversation))
        else:
            log.warning("summary.skipped conversation=%s waiting=%d", conversation, len(self._running))

    async def drain(self, deadline: float) -> None:
        """Begins none any more, waits `deadline` seconds at most for those under way, then cancels them."""
        self._closed = True
        self._wanted.clear()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=deadline)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @contextlib.asynccontextmanager
    async def closed_to(self, user: str) -> AsyncIterator[None]:
        """Ends what is under way for a person and for shared groups, and begins none of these meanwhile.

        What a group's summary is made of may be theirs: one that had read it already would be kept after it is gone.
        What is asked for meanwhile begins afterwards; what was ended is made after a later answer.
        """
        held = self._held[user] = {}
        try:
            await self._end(user)
            yield
        finally:
            del self._held[user]
            for occasion in held.values():
                self.after(occasion)

    async def _end(self, user: str) -> None:
        running = {each: task for each, task in self._running.items() if _concerns(user, each)}
        for task in running.values():
            task.cancel()
        if running:
            await asyncio.wait(running.values(), timeout=_END_SECONDS)
        for conversation, task in running.items():
            if task.done() and self._running.get(conversation) is task:  # ended before it began
                del self._running[conversation]
                self._wanted.pop(conversation, None)
        for conversation in [each for each in self._pauses if each.lane.user == user]:
            del self._pauses[conversation]

    # ---- one conversation

    async def _run(self, conversation: ConversationId) -> None:
        try:
            while (occasion := self._wanted.pop(conversation, None)) is not None:
                await self._make(occasion)
        except (ModelError, StoreError) as error:
            self._failed(conversation, f"{type(error).__name__} reason={error}")
        except Exception as error:  # border of a background task: no summary, all else goes on
            self._failed(conversation, repr(error))
            log.debug("summary.failed", exc_info=True)
        finally:
            self._wanted.pop(conversation, None)
            self._running.pop(conversation, None)

    async def _make(self, occasion: Occasion) -> None:
        """Makes summaries until none is due, the oldest turns first."""
        room = await room_of(
            occasion.snapshot, occasion.agent, occasion.conversation, occasion.speaker, self._memory, again=True
        )
        context = occasion.snapshot.context(occasion.agent, occasion.entry)
        for _ in range(STEPS):
            draft = await self._memory.draft(
                occasion.conversation, context.window, context.summary, room=room.tokens, weigh=room.weigh
            )
            if draft is None:
                return
            async with self._places:
                kept = await self._step(occasion, draft, room.tokens)
            if not kept:
                return

    async def _step(self, occasion: Occasion, draft: Draft, room: int) -> bool:
        """One summary: asked for without any lock, kept if nothing has overtaken it; whether it was kept."""
        conversation, snapshot, started = occasion.conversation, occasion.snapshot, self._clock()
        client = snapshot.models.client(occasion.settings.model)
        max_chars = min(occasion.settings.max_chars, max(min(room, client.settings.context_tokens) // 8, 100))
        made, through = await _summarised(client, draft, max_chars)
        version = Summary(
            text=made.text,
            id=f"s-{draft.epoch}-{through}",
            epoch=draft.epoch,
            through=through,
            at=snapshot.iso(self._clock()),
            model=made.model,
        )
        kept = await self._memory.archive(conversation, version, after=draft.after, generation=draft.generation)
        self._pauses.pop(conversation, None)
        log.info(
            "summary.%s conversation=%s reason=%s through=%d chars=%d model=%s seconds=%.1f",
            "made" if kept else "overtaken",
            conversation,
            draft.reason,
            through,
            len(made.text),
            made.model,
            self._clock() - started,
        )
        return kept

    # ---- after a failure

    def _paused(self, conversation: ConversationId) -> bool:
        pause = self._pauses.get(conversation)
        return pause is not None and 0 < pause.until - self._clock() <= LONGEST_PAUSE

    def _failed(self, conversation: ConversationId, why: str) -> None:
        before = self._pauses.pop(conversation, None)
        failures = before.failures + 1 if before else 1
        longest = min(FIRST_PAUSE * 2 ** min(failures - 1, 16), LONGEST_PAUSE)
        pause = longest * self._rng.uniform(0.5, 1.0)
        self._pauses[conversation] = _Pause(failures, self._clock() + pause)
        if len(self._pauses) > _PAUSES:
            self._pauses.popitem(last=False)
        log.warning(
            "summary.failed conversation=%s failures=%d pause=%.0f error=%s", conversation, failures, pause, why
        )


def _concerns(user: str, conversation: ConversationId) -> bool:
    """Whether something of this person may be in its summary."""
    return conversation.lane.user == user or conversation.lane.is_shared


async def _summarised(client: ModelClient, draft: Draft, max_chars: int) -> tuple[Summarised, int]:
    """The summary of the oldest turns of the draft that the model can take, and the ordinal it reaches."""
    previous = tidy(draft.previous.text, max_chars) if draft.previous else ""
    room = room_for_turns(client.settings, previous, max_chars)
    for share in (1, 2):
        turns = portion(draft.turns, draft.upto, room // share)
        try:
            made = await summarise(client, previous, turns, max_chars=max_chars, room=room // share)
            return made, turns[-1].n
        except ContextTooLong:
            if share == 2:
                raise
    raise AssertionError("unreachable")
