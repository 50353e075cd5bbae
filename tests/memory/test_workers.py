"""Blocking work in threads: each caller gets its own result, cancelled or not the work is done, and all ends with `join`."""

import asyncio
import threading
import time

import pytest

from memory import workers
from memory.steps import Steps, at_once
from memory.workers import Together, Workers


async def test_each_gets_its_own_result_and_error() -> None:
    workers = Workers(3, "test")

    def work(n: int) -> int:
        time.sleep(0.0005 * (n % 4))
        if n % 5 == 0:
            raise ValueError(n)
        return n

    found = await asyncio.gather(*(workers.run(lambda n=n: work(n)) for n in range(100)), return_exceptions=True)  # type: ignore[misc]
    for n, each in enumerate(found):
        assert (each.args == (n,)) if isinstance(each, ValueError) else (each == n)
        assert isinstance(each, ValueError) == (n % 5 == 0)
    await asyncio.to_thread(workers.join)


async def test_what_is_cancelled_is_done_all_the_same() -> None:
    workers, go, done = Workers(1, "test"), threading.Event(), []
    first = asyncio.create_task(workers.run(go.wait))
    second = asyncio.create_task(workers.run(lambda: done.append(2)))
    await asyncio.sleep(0.01)
    first.cancel()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    await asyncio.to_thread(workers.join)
    assert done == [2]


def test_a_loop_that_is_gone_waits_for_nothing() -> None:
    workers, go = Workers(1, "test"), threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(workers.run(go.wait))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(leave())
    go.set()
    workers.join()
    assert asyncio.run(Workers(1, "test").run(lambda: "another loop")) == "another loop"


class Disk:
    """What was written by whom, and what of it was on the disk when somebody's step was done."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.synced: dict[int, list[int]] = {}
        self.bad: set[int] = set()

    def sync(self, n: int) -> None:
        self.synced[n] = list(self.written)
        if n in self.bad:
            raise OSError(28, "full")

    def write(self, n: int) -> Steps[int]:
        if n % 10 == 9:
            raise ValueError(n)
        self.written.append(n)
        if n % 10 == 8:
            return n  # nothing to be synced
        try:
            yield lambda: self.sync(n)
            yield lambda: self.sync(n)
        except OSError:
            self.written.remove(n)
            raise
        return n


async def test_what_waits_together_is_synced_together() -> None:
    together, disk, go = Together("test"), Disk(), threading.Event()
    disk.bad = {5, 16}

    def hold() -> Steps[None]:
        assert go.wait(30)
        yield from ()

    held = asyncio.create_task(together.run_steps(hold))
    asked = [asyncio.create_task(together.run_steps(lambda n=n: disk.write(n))) for n in range(30)]  # type: ignore[misc]
    await asyncio.sleep(0.01)
    go.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    await held
    for n, each in enumerate(found):
        if n % 10 == 9:
            assert isinstance(each, ValueError)
        elif n in disk.bad:
            assert isinstance(each, OSError)
        else:
            assert each == n
    assert sorted(disk.written) == [n for n in range(30) if n % 10 != 9 and n not in disk.bad]
    assert set(disk.synced[1]) >= set(disk.written), "all had written"
    await asyncio.to_thread(together.join)


@pytest.mark.parametrize("bad", [False, True])
def test_steps_at_once(bad: bool) -> None:
    disk = Disk()
    disk.bad = {1} if bad else set()
    if bad:
        with pytest.raises(OSError, match="full"):
            at_once(disk.write(1))
    else:
        assert at_once(disk.write(1)) == 1
    assert disk.written == ([] if bad else [1])


@pytest.mark.parametrize("where", ["before its step", "in its step"])
async def test_who_hangs_holds_up_nobody(where: str) -> None:
    together, go, taken = Together("test"), threading.Event(), list[int]()

    def wait() -> None:
        assert go.wait(60)

    def hang(n: int) -> Steps[int]:
        if where == "before its step":
            wait()
        yield wait
        return n

    def write(n: int) -> Steps[int]:
        yield lambda: taken.append(n)
        return n

    hanging = [asyncio.create_task(together.run_steps(lambda n=n: hang(n))) for n in range(3)]  # type: ignore[misc]
    for n in range(20):
        assert await asyncio.wait_for(together.run_steps(lambda n=n: write(n)), 30) == n  # type: ignore[misc]
    assert sorted(taken) == list(range(20))
    assert not any(each.done() for each in hanging)
    go.set()
    assert await asyncio.gather(*hanging) == [0, 1, 2]
    assert await together.run_steps(lambda: write(20)) == 20
    await asyncio.to_thread(together.join)
    assert not any(thread.is_alive() for thread in together._threads)


async def test_a_system_without_threads_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be helped by more threads is done by the one there is."""
    together, disk, go, start = Together("test"), Disk(), threading.Event(), threading.Thread.start

    def hold() -> Steps[None]:
        assert go.wait(60)
        yield from ()

    def refused(thread: threading.Thread) -> None:
        if thread.name != "test-0":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    held = asyncio.create_task(together.run_steps(hold))
    asked = [asyncio.create_task(together.run_steps(lambda n=n: disk.write(n))) for n in range(8)]  # type: ignore[misc]
    await asyncio.sleep(3 * workers._HANGS)
    go.set()
    assert await asyncio.gather(*asked) == list(range(8))
    await held
    monkeypatch.undo()
    assert await together.run_steps(lambda: disk.write(20)) == 20
    await asyncio.to_thread(together.join)


async def test_what_was_begun_goes_on_where_the_next_one_hangs() -> None:
    together, disk, go, hanging = Together("test"), Disk(), threading.Event(), threading.Event()

    def hang() -> Steps[None]:
        hanging.set()
        assert go.wait(60)
        yield from ()

    def first() -> Steps[None]:
        assert go_on.wait(60)
        yield from ()

    go_on = threading.Event()
    held = asyncio.create_task(together.run_steps(first))
    begun = asyncio.create_task(together.run_steps(lambda: disk.write(1)))
    stuck = asyncio.create_task(together.run_steps(hang))
    await asyncio.sleep(0.01)
    go_on.set()
    await held
    assert await asyncio.wait_for(begun, 30) == 1
    assert hanging.is_set()
    assert not stuck.done()
    go.set()
    await stuck
    await asyncio.to_thread(together.join)
