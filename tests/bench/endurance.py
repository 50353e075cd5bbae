"""What grows: one conversation of thousands of turns, and thousands of conversations in which nobody speaks any more."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.bench import model
from tests.bench.load import Said, Stage, percentile
from tests.bench.subject import SubjectFailed

BLOCK = 200
"""So many turns are measured together: CPU comes in steps of 10 ms."""
REPEATS = 3
"""So often, in turn with turns of short conversations: the pace of a machine changes within seconds."""


@dataclass(frozen=True)
class Turns:
    """The cost of a turn about this place in a conversation: CPU and time without the model's, in ms.

    `ratio` is that of its CPU to a turn's of short conversations at the same time, the median of the repeats.
    """

    place: int
    cpu: float
    overhead_p50: float
    overhead_p99: float
    requests: float
    ratio: float = 1.0


async def turns(stage: Stage, places: Sequence[int]) -> list[Turns]:
    """One conversation to the last of `places`; the first is the middle of as many short ones as make a block.

    Raises SubjectFailed when a reply is lost.
    """
    await stage.warm()
    await model.reset(stage.model, 0.0)
    first, *later = places

    async def short(name: str) -> Turns:
        return await _block(stage, first, [f"{name}.{n // (2 * first)}" for n in range(BLOCK)])

    found, count = [await short("short")], 0
    for place in later:
        await _block(stage, place, ["long"] * (place - REPEATS * BLOCK - count))
        blocks = []
        for number in range(REPEATS):
            block = await _block(stage, place, ["long"] * BLOCK)
            beside = await short(f"{place}.{number}")
            blocks.append(replace(block, ratio=block.cpu / beside.cpu if beside.cpu else 1.0))
        ratio = statistics.median(block.ratio for block in blocks)
        found.append(replace(sorted(blocks, key=lambda block: block.cpu)[len(blocks) // 2], ratio=ratio))
        count = place
    return found


async def _block(stage: Stage, place: int, people: Sequence[str]) -> Turns:
    await model.reset(stage.model, 0.0)
    cpu = stage.subject.cpu()
    said = [await _said(stage, person) for person in people]
    cpu = stage.subject.cpu() - cpu
    told = await model.told(stage.model)
    taken = {tag: went - came for tag, (came, went) in told.answered.items()}
    overhead = sorted(1000 * ((each.replied or 0) - each.sent - taken[each.tag]) for each in said)
    count = max(1, len(said))
    return Turns(
        place, 1000 * cpu / count, percentile(overhead, 0.5), percentile(overhead, 0.99), told.requests / count
    )


async def _said(stage: Stage, person: str) -> Said:
    said = await stage.say(person)
    if said.replied is None:
        raise SubjectFailed(f"no reply to {person}")
    return said


async def _one_thing_each(stage: Stage, waiting: Iterator[int]) -> None:
    for number in waiting:
        await _said(stage, f"idle{number}")


@dataclass(frozen=True)
class Idle:
    """MiB at start, after the first conversations, after all of them; `each` is KiB for one of the later ones."""

    conversations: int
    start: float
    few: int
    after_few: float
    after_all: float
    seconds: float

    @property
    def each(self) -> float:
        return 1024 * (self.after_all - self.after_few) / (self.conversations - self.few)


async def idle(stage: Stage, conversations: int, *, few: int, at_once: int = 50, rest: float = 3.0) -> Idle:
    """So many people say one thing each, then nobody says anything. Raises SubjectFailed when a reply is lost."""
    began, start = time.monotonic(), stage.subject.rss()
    await stage.warm()
    await model.reset(stage.model, 0.0)
    seen = []
    for people in (range(few), range(few, conversations)):
        waiting = iter(people)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(_one_thing_each(stage, waiting))
        except* SubjectFailed as failed:
            raise failed.exceptions[0] from None
        await asyncio.sleep(rest)
        seen.append(stage.subject.rss())
    return Idle(conversations, start, few, seen[0], seen[1], time.monotonic() - began)
