"""All measurements of the product against a floor: ``make bench``, or ``python -m tests.bench [--quick]``.

The whole run writes tests/bench/RESULTS.md and is refused (exit code 2) on a busy machine; ``--quick`` measures less,
prints the page, and writes nothing.
"""

import argparse
import asyncio
import gc
import itertools
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tests.bench.cold_start import cold_start
from tests.bench.deliveries import CHANNELS, Channel, WeChatPassive
from tests.bench.endurance import idle, turns
from tests.bench.load import Figures, Stage, load
from tests.bench.machine import machine
from tests.bench.platform import Platform
from tests.bench.results import Cell, Results, Rounds, markdown
from tests.bench.subject import FLOOR, PRODUCT, ROOT, Places, SubjectFailed, child, model_process, running
from tests.bench.wire import Client

RESULTS = Path(__file__).with_name("RESULTS.md")
BUSY = 2.5
PARTS = ("load", "turns", "idle", "cold-start", "memory")
COLD_STARTS = 5


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    cells: Sequence[tuple[int, float]]
    seconds: float
    rounds: int
    turns: Sequence[int]
    idle: int
    few_idle: int
    memory: Sequence[str]


WHOLE = Extent(
    cells=[(50, 0.0), (500, 0.0), (50, 1.0), (500, 1.0)],
    seconds=6.0,
    rounds=3,
    turns=(10, 1000, 5000),
    idle=10_000,
    few_idle=1000,
    memory=(),
)
QUICK = replace(
    WHOLE,
    cells=[(50, 0.0), (500, 1.0)],
    seconds=3.0,
    turns=(10, 1000),
    idle=2000,
    few_idle=500,
    memory=("--messages", "20", "1000", "100000", "--rounds", "100"),
)


class Bench:
    """The measurements of one run; `folder` holds the workspaces."""

    def __init__(self, extent: Extent, folder: Path, model: str, platform: Platform) -> None:
        self._extent, self._folder, self._model, self._platform = extent, folder, model, platform
        self._numbers = itertools.count()

    @asynccontextmanager
    async def stage(self, kind: str, channel: Channel) -> AsyncIterator[Stage]:
        """Product or floor, freshly started, with this channel on."""
        places = Places(self._model, self._platform.base, {channel.name: channel.entry(self._platform.base)})
        async with (
            running(kind, places, self._folder / f"{next(self._numbers)}") as subject,
            Client(subject.port) as client,
            Client(int(self._model.rsplit(":", 1)[1])) as model,
        ):
            yield Stage(subject, channel, self._platform, client, model)

    async def load(self) -> Mapping[Cell, Rounds]:
        """Every channel and load, `rounds` times; who goes first changes with each round."""
        found: dict[Cell, dict[str, list[Figures]]] = {}
        for number in range(self._extent.rounds):
            for channel, (people, seconds) in itertools.product(CHANNELS, self._extent.cells):
                cell = Cell(channel.title, people, seconds)
                sides = found.setdefault(cell, {PRODUCT: [], FLOOR: []})
                for kind in (PRODUCT, FLOOR) if number % 2 == 0 else (FLOOR, PRODUCT):
                    async with self.stage(kind, channel) as stage:
                        figures = await load(stage, people=people, seconds=self._extent.seconds, model_seconds=seconds)
                    sides[kind].append(figures)
                    say(f"round {number + 1} {channel.name} {people} people {seconds:g} s {kind}: {figures}")
        return {cell: Rounds(sides[PRODUCT], sides[FLOOR]) for cell, sides in found.items()}

    async def all(self, parts: Sequence[str], results: Results) -> Results:
        """The results with these parts measured."""
        extent = self._extent
        if "load" in parts:
            results = replace(results, load=await self.load())
        if "turns" in parts:
            async with self.stage(PRODUCT, WeChatPassive()) as stage:
                results = replace(results, turns=await turns(stage, extent.turns))
            say(f"turns: {results.turns}")
        if "idle" in parts:
            async with self.stage(PRODUCT, WeChatPassive()) as stage:
                results = replace(results, idle=await idle(stage, extent.idle, few=extent.few_idle))
            say(f"idle: {results.idle}")
        if "cold-start" in parts:
            folder = self._folder / "cold"
            found = await cold_start(self._model, self._platform.base, folder, rounds=COLD_STARTS)
            results = replace(results, cold_start=found)
            say(f"cold start: {found}")
        if "memory" in parts:
            results = replace(results, memory=await memory(self._folder, extent.memory))
        return results


async def memory(folder: Path, arguments: Sequence[str]) -> str:
    """What bench_memory prints, from a process of its own; its files are in `folder`."""
    command = ("-m", "tests.bench.bench_memory", *arguments)
    async with child(*command, temporary=folder, stdout=asyncio.subprocess.PIPE) as process:
        out, _ = await process.communicate()
    return out.decode().strip()


def settle() -> None:
    """What is measured must not wait for the driver's garbage collector."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def say(line: str) -> None:
    """Progress, beside the page."""
    print(line, file=sys.stderr, flush=True)


async def measure(given: argparse.Namespace, command: str) -> Results:
    """Everything that was asked for. Ends its processes however it ends. Raises SubjectFailed."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    extent = QUICK if given.quick else WHOLE
    extent = replace(extent, rounds=given.rounds or extent.rounds, seconds=given.seconds or extent.seconds)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sanqiao-bench-") as name:
        folder = Path(name)
        results = Results(
            command=command,
            at=datetime.now().astimezone().isoformat(" ", "minutes"),
            minutes=0.0,
            rounds=extent.rounds,
            seconds=extent.seconds,
            machine=await asyncio.to_thread(machine, folder, ROOT),
            load={},
        )
        async with model_process() as model, Platform() as platform:
            results = await Bench(extent, folder, model, platform).all(given.only, results)
    return replace(results, minutes=(time.monotonic() - began) / 60)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all was measured, 2 when it was refused or could not be; 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="measure less, write nothing")
    parser.add_argument("--anyway", action="store_true", help="measure and write on a busy machine too")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts, write nothing")
    parser.add_argument(
        "--rounds", type=int, default=0, help="rounds of the load; with fewer than three nothing is written"
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="seconds of one load")
    given = parser.parse_args(arguments)
    writes = not given.quick and set(given.only) == set(PARTS) and (given.rounds or WHOLE.rounds) >= WHOLE.rounds
    busy = os.getloadavg()[0]
    if writes and busy > BUSY and not given.anyway:
        say(
            f"The load of this machine is {busy:.2f}, above {BUSY}: figures would say nothing, so {RESULTS.name} is not"
        )
        say("written. Wait until it is quiet; or --quick, which writes nothing; or --anyway.")
        return 2
    settle()
    words = shlex.join(sys.argv[1:] if arguments is None else arguments)
    try:
        results = asyncio.run(measure(given, f"make bench ARGS='{words}'" if words else "make bench"))
    except SubjectFailed as error:
        say(f"cannot measure: {error}")
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted; nothing is written")
        return 130
    page = markdown(results)
    print(page)
    if writes:
        RESULTS.write_text(page, encoding="utf-8")
        say(f"written: {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
