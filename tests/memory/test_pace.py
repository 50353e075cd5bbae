"""A thread waits between its turns only while it is asked for much."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.storage.database import Database
from memory import pace
from memory.pace import MANY, PAUSE, Pace
from memory.steps import Steps
from memory.workers import Together


def pauses(turns: Iterable[tuple[int, float]]) -> list[float]:
    """The pauses after turns of so many jobs, each so many seconds behind the one before."""
    own, now, found = Pace(), 1000.0, list[float]()
    for done, seconds in turns:
        now += seconds
        found.append(own.pause(done, now))
    return found


@given(gaps=st.lists(st.floats(2 / MANY, 1.0), max_size=200))
def test_little_never_waits(gaps: list[float]) -> None:
    assert not any(pauses((1, gap) for gap in gaps))


def test_a_burst_alone_does_not_wait() -> None:
    assert not any(pauses((done, 1.0) for done in (64, 1, 64, 1)))


def test_one_alone_never_waits_however_much_it_asks_for() -> None:
    assert not any(pauses([(1, 0.0001)] * 10_000))


def test_much_waits_soon_and_until_it_is_over() -> None:
    found = pauses([(10, 10 / (2 * MANY))] * 100 + [(2, 20 / MANY)] * 100)
    busy, over = found[:100], found[100:]
    assert set(busy[20:]) == {PAUSE}
    assert set(over[:1]) == {PAUSE}
    assert set(over[20:]) == {0.0}


@pytest.mark.parametrize("kind", ["database", "appends", "appends without a step"])
async def test_one_after_another_shares_a_turn_where_they_are_many(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two come at a time; as soon as it is known that they are many, more are done in one turn."""
    monkeypatch.setattr(pace, "MANY", 5)
    monkeypatch.setattr(pace, "_LOOK", 0.05)
    turns: list[int] = []
    tell = Pace.pause

    def told(own: Pace, done: int, now: float) -> float:
        turns.append(done)
        return tell(own, done, now)

    monkeypatch.setattr(Pace, "pause", told)
    database, appends = Database(tmp_path / "x.db", ""), Together("test")
    await asyncio.to_thread(database.open)
    asked = []
    for number in range(100):
        steps = step if kind == "appends" else no_step
        work = database.run(lambda db: None) if kind == "database" else appends.run_steps(steps)
        asked.append(asyncio.ensure_future(work))
        if number % 2:
            await asyncio.sleep(0.003)
    await asyncio.gather(*asked)
    await database.close()
    await asyncio.to_thread(appends.join)
    assert sum(turns) == 100
    assert len(turns) < 40


def step() -> Steps[None]:
    """Work of one step."""
    yield lambda: None


def no_step() -> Steps[None]:
    """Work that is done at once, as an append is that need not be on the disk yet."""
    yield from ()
