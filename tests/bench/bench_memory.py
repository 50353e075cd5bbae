"""What one message costs the memory, by the length of its conversation: run by hand, prints figures.

    python -m tests.bench.bench_memory [--messages 20 1000 100000 1000000] [--rounds 300]

A step is what every question costs: it is appended, and the window before it is read. All lengths take turns, in random
order, with the floor (one bare append to a file of its own, put on the disk) in the same round; so a busy machine is
busy for all of them. Exit code 1 when a bound is missed: a step at 100,000 messages costs at most 1.2 times one at
20, reads at most 2 MiB, the event loop works at most 20 ms at a stretch, trimming 500 turns takes less than 1 ms.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memory import tail
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory
from memory.window import WindowSettings, build_window
from memory.yamlform import write_item

RATIO, READ, LAG, TRIM = 1.2, 2 << 20, 0.020, 0.001
AT = "2026-01-05T10:00:00.000+08:00"
SETTINGS = WindowSettings()
SHORT_ONES = 40
"""Conversations of a length below 1,000: after 300 rounds each has 16 messages more."""


def turn_of(n: int, acknowledged: float) -> Turn:
    """The turn with ordinal `n` of a conversation in which this share of the user's turns are acknowledgements."""
    if n % 2:
        text = f"第 {n} 个回答：上海的后端岗位目前有十二个，薪资从两万到四万，要不要我按通勤时间排一下？"
        return Turn(role=Role.ASSISTANT, text=text, id=f"m{n}", to=f"m{n - 1}", at=AT, n=n, epoch=0)
    often = round(1 / (1 - acknowledged))
    text = "收到" if often > 1 and n // 2 % often else f"第 {n} 个问题：我想在上海找后端开发的工作，薪资两万五以上"
    return Turn(role=Role.USER, text=text, id=f"m{n}", at=AT, n=n, epoch=0)


@dataclass
class Case:
    """Conversations of one length, and what their steps took in seconds. Short ones take turns, to stay short."""

    messages: int
    acknowledged: float
    conversations: list[ConversationId]
    appends: list[float] = field(default_factory=list)
    windows: list[float] = field(default_factory=list)
    read: int = 0
    count: int = 0

    @property
    def step(self) -> float:
        """The median of a step."""
        return statistics.median(map(sum, zip(self.appends, self.windows, strict=True)))

    def write(self, workspace: Path) -> None:
        """Makes the files. Blocking."""
        for conversation in self.conversations:
            path = workspace / "conversations" / conversation.lane.user / conversation.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for n in range(self.messages):
                    file.write(write_item(turn_of(n, self.acknowledged)))

    async def measure(self, memory: Memory) -> None:
        """One step: a question, and the window before it; its answer is not timed."""
        conversation = self.conversations[self.count % len(self.conversations)]
        n = self.messages + 2 * (self.count // len(self.conversations))
        self.count += 1
        question = Turn(role=Role.USER, text=f"第 {n} 个问题：有没有离地铁近的", id=f"m{n}", at=AT)
        start = time.perf_counter()
        await memory.remember(conversation, [question])
        appended = time.perf_counter()
        window = await memory.window(conversation, SETTINGS, question=question, room=30_000)
        end = time.perf_counter()
        assert len(window.messages) >= 2
        self.appends.append(appended - start)
        self.windows.append(end - appended)
        await memory.remember(conversation, [turn_of(n + 1, 0)])


def cases(messages: Sequence[int]) -> list[Case]:
    """Each length without and with nine acknowledgements in ten."""
    found = []
    for number, (count, share) in enumerate((count, share) for share in (0.0, 0.9) for count in messages):
        ids = [
            f"uu3r7qbo6l6i3:web:{number:06x}{copy:06x}:0:general-agent"
            for copy in range(SHORT_ONES if count < 1000 else 1)
        ]
        found.append(Case(count, share, list(map(ConversationId.parse, ids))))
    return found


@contextmanager
def counted_reads() -> Iterator[list[int]]:
    """Counts the bytes read from conversation files meanwhile."""
    real, read = tail.read_range, [0]

    def reading(fd: int, length: int, offset: int) -> bytes:
        data = real(fd, length, offset)
        read[0] += len(data)
        return data

    tail.read_range = reading
    try:
        yield read
    finally:
        tail.read_range = real


class Lag:
    """How long the event loop let others wait, at most, in seconds; and the most it worked itself meanwhile (`own`).

    `held`: the most that this whole process worked meanwhile: a machine that stands still, or serves others, adds
    nothing to it, a thread that keeps the interpreter's lock does.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self.own = 0.0
        self.held = 0.0

    async def __aenter__(self) -> "Lag":
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            start, own, all_ = time.perf_counter(), time.thread_time(), time.process_time()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.perf_counter() - start - 0.001)
            self.own = max(self.own, time.thread_time() - own)
            self.held = max(self.held, time.process_time() - all_)


def floor(path: Path) -> float:
    """One bare append to a file of its own, put on the disk, in seconds."""
    data = write_item(turn_of(0, 0))
    start = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, data)
    os.fdatasync(fd)
    os.close(fd)
    return time.perf_counter() - start


@dataclass(frozen=True)
class Figures:
    """All that was measured."""

    cases: list[Case]
    floors: list[float]
    lag: float
    own: float
    trim: float

    def ratio(self, acknowledged: float, long: int = 100_000, short: int = 20) -> float:
        """A step at the one length over one at the other."""
        steps = {case.messages: case.step for case in self.cases if case.acknowledged == acknowledged}
        return steps[long] / steps[short]


async def measured(workspace: Path, messages: Sequence[int], rounds: int) -> Figures:
    """Makes the files and measures."""
    found, floors, rng = cases(messages), [], random.Random(1)
    for case in found:
        await asyncio.to_thread(case.write, workspace)
    memory = Memory(workspace)
    for case in found:
        for _ in case.conversations:  # the first look at a file's end
            await case.measure(memory)
        with counted_reads() as read:
            await case.measure(memory)
        case.read = read[0]
        case.appends.clear()
        case.windows.clear()
    async with Lag() as lag:
        for _ in range(rounds):
            floors.append(await asyncio.to_thread(floor, workspace / "floor"))
            for case in rng.sample(found, len(found)):
                await case.measure(memory)
    await memory.close()
    return Figures(found, floors, lag.worst, lag.own, await asyncio.to_thread(trim))


def trim() -> float:
    """The window of 500 turns that are in memory already, default settings, in seconds."""
    turns = [turn_of(n, 0) for n in reversed(range(500))]
    times = []
    for _ in range(50):
        start = time.perf_counter()
        build_window(turns, question="有没有离地铁近的", settings=SETTINGS, room=30_000)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:8.2f}"


def _table(figures: Figures) -> str:
    lines = [" messages  acks   append   window     step      p95  KiB read"]
    for case in figures.cases:
        steps = sorted(map(sum, zip(case.appends, case.windows, strict=True)))
        lines.append(
            f"{case.messages:9,} {case.acknowledged:5.0%} {_ms(statistics.median(case.appends))} "
            f"{_ms(statistics.median(case.windows))} {_ms(case.step)} {_ms(steps[len(steps) * 95 // 100])} "
            f"{case.read / 1024:9.0f}"
        )
    lines.append(f"floor (bare append and fdatasync): {_ms(statistics.median(figures.floors)).strip()} ms; all in ms")
    lines.append(
        f"longest wait of the event loop {_ms(figures.lag).strip()} ms, of its own work {_ms(figures.own).strip()} ms; 500 turns trimmed in {_ms(figures.trim).strip()} ms"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, nargs="+", default=[20, 1000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measured(Path(folder), args.messages, args.rounds))
    print(_table(figures))
    missed = [f"{case.read} bytes read at {case.messages}" for case in figures.cases if case.read > READ]
    if {20, 100_000} <= set(args.messages):
        ratios = {share: figures.ratio(share) for share in (0.0, 0.9)}
        print("100,000 over 20: " + ", ".join(f"{ratio:.2f} ({share:.0%} acks)" for share, ratio in ratios.items()))
        missed += [f"ratio {ratio:.2f}" for ratio in ratios.values() if ratio > RATIO]
    missed += [f"loop {figures.own:.3f} s"] if figures.own > LAG else []
    missed += [f"trimming {figures.trim:.4f} s"] if figures.trim > TRIM else []
    print("missed: " + "; ".join(missed) if missed else "all bounds kept")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
