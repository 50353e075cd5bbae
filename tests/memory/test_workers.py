"""Blocking work in threads: each caller gets its own result, cancelled or not the work is done, and all ends with `join`."""

import asyncio
import threading
import time

import pytest

from memory.workers import Workers


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
