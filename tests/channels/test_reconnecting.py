"""Long connections without a platform: pauses, stopping, what is under way, errors nobody thought of."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.dingtalk import long_connection as dingtalk
from channels.feishu import endpoint as feishu
from channels.health import Troubles
from channels.reconnecting import Backoff, Disconnected, Pauses, Reconnecting, Work
from channels.wecom import losses as wecom
from tests.waiting import until


class Quick(Disconnected):
    detail = "断开了，请检查网络"
    pauses = Pauses(0.01, 0.02)


class Slow(Disconnected):
    detail = "被拒绝了，请核对"
    pauses = Pauses(30.0, 60.0)


class Connection:
    """A connection whose life is written down: each `serve` does what `acts` says next, the last one for ever."""

    def __init__(self, *acts: Callable[["Connection"], Coroutine[None, None, None]]) -> None:
        self.acts = list(acts)
        self.served = 0
        self.ended = 0
        self.cancelled = 0
        self.troubles = Troubles("e", lambda: 0.0)
        self.life = Reconnecting(
            "test", "e", self.troubles, self.serve, self.end, hello="正在连接", lost=Quick, rng=lambda: 1.0
        )

    async def serve(self) -> None:
        self.served += 1
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        try:
            await act(self)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def end(self) -> None:
        self.ended += 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.life.run())
        try:
            yield task
        finally:
            await self.life.stop()
            await asyncio.wait_for(task, 30)


async def works(connection: Connection) -> None:
    connection.life.opened()
    await asyncio.Event().wait()


async def breaks(connection: Connection) -> None:
    raise Quick("broken")


async def closes(connection: Connection) -> None:
    """Ends without a word."""


async def refused(connection: Connection) -> None:
    raise Slow("refused")


async def surprises(connection: Connection) -> None:
    raise KeyError("ticket=secret-canary")


@pytest.mark.parametrize("lost", [breaks, closes, surprises])
async def test_it_is_back_after_a_loss_of_any_kind(lost: Callable[[Connection], Coroutine[None, None, None]]) -> None:
    connection = Connection(lost, lost, works)
    async with connection.running():
        await until(lambda: connection.served == 3 and connection.troubles.health().ok)


async def test_admins_read_what_is_wrong_from_before_the_first_connection() -> None:
    connection = Connection(refused)
    assert connection.troubles.health().ok, "one that is never run is not missed"
    connection.life.announce()
    assert connection.troubles.health().detail == "正在连接"
    async with connection.running():
        await until(lambda: "核对" in connection.troubles.health().detail)


async def test_a_loss_that_is_none_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    class Renewed(Disconnected):
        pauses = Pauses(30.0, 60.0, free=1)

    async def renews(connection: Connection) -> None:
        connection.life.opened()
        raise Renewed("old")

    caplog.set_level(logging.INFO, "sanqiao.channels.test")
    connection = Connection(renews, works)
    async with connection.running():
        await until(lambda: connection.served == 2)
        assert connection.troubles.health().ok
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("act", [works, refused])
async def test_it_stops_at_once_whatever_it_does(act: Callable[[Connection], Coroutine[None, None, None]]) -> None:
    connection = Connection(act)
    task = asyncio.create_task(connection.life.run())
    await until(lambda: connection.served)
    await connection.life.stop()
    await asyncio.wait_for(task, 30)
    assert connection.ended == 1
    assert connection.cancelled == (act is works)
    await connection.life.stop()


async def test_what_cannot_be_stopped_is_not_waited_for_long() -> None:
    released = asyncio.Event()

    async def stubborn(connection: Connection) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    connection = Connection(stubborn)
    task = asyncio.create_task(connection.life.run())
    await until(lambda: connection.served)
    async with asyncio.timeout(30):
        await connection.life.stop()
    assert not connection.ended
    released.set()
    await task
    assert connection.ended == 1


async def test_cancelling_ends_it() -> None:
    connection = Connection(works)
    task = asyncio.create_task(connection.life.run())
    await until(lambda: connection.served)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (connection.cancelled, connection.ended) == (1, 1)


# ---- pauses


def test_the_pauses_of_each_platform() -> None:
    def series(loss: Disconnected, count: int) -> list[float]:
        backoff = Backoff(lambda: 1.0)
        return [backoff.pause(loss, 0) for _ in range(count)]

    assert series(feishu.ConnectFailed("x"), 12)[:4] == [0.2, 0.4, 0.8, 1.6]
    assert series(feishu.ConnectRefused(514), 7) == [1, 2, 4, 8, 16, 32, 60]
    assert series(dingtalk.ConnectFailed("x"), 5) == [0.5, 1, 2, 4, 8]
    assert series(dingtalk.ConnectRefused("x", "c"), 5) == [5, 10, 20, 40, 60]
    assert series(dingtalk.Renewed("x"), 4) == [0, 1, 2, 4]
    assert series(wecom.Loss("x"), 7) == [1.25 * n for n in (1, 2, 4, 8, 16, 30, 30)]
    assert series(wecom.TakenOver("x"), 1) == [375]
    assert series(wecom.Refused(40001), 1) == [37.5]
    least = Backoff(lambda: 0.0)
    assert sum(least.pause(dingtalk.ConnectFailed("x"), 0) for _ in range(6)) > 10, "a few tries in 10 s at most"


def test_a_connection_that_lasted_begins_the_pauses_anew_kind_by_kind() -> None:
    backoff = Backoff(lambda: 0.0)
    for _ in range(3):
        backoff.pause(wecom.Loss("x"), 0)
        backoff.pause(wecom.TakenOver("x"), 0)
    assert backoff.pause(wecom.Loss("x"), 29) == 8
    assert backoff.pause(wecom.Loss("x"), 31) == 1
    assert backoff.pause(wecom.TakenOver("x"), 31) == 2400, "an hour of peace begins it anew"
    assert backoff.pause(wecom.TakenOver("x"), 3601) == 300


@given(
    st.floats(0.01, 100),
    st.floats(1, 100),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.tuples(st.floats(0.1, 1), st.floats(1, 2)),
)
def test_no_pause_is_out_of_bounds(
    first: float, factor: float, times: int, chance: float, spread: tuple[float, float]
) -> None:
    pauses = Pauses(first, first * factor, spread=spread)
    assert first * spread[0] * 0.999 <= pauses.after(times, chance) <= first * factor * spread[1] * 1.001
    assert pauses.after(times, chance) <= pauses.after(times + 1, chance)


# ---- what is under way


async def test_work_is_bounded_and_what_waits_is_begun_when_there_is_room() -> None:
    work, go, begun = Work("w", 2), asyncio.Event(), 0

    async def job() -> None:
        nonlocal begun
        begun += 1
        await go.wait()

    reading = asyncio.create_task(asyncio.wait_for(_each(work, job, 3), 30))
    await until(lambda: begun == 2)
    assert not reading.done(), "the reader waits"
    go.set()
    await reading
    await work.settle(1)
    assert begun == 3


async def _each(work: Work, job: Callable[[], Coroutine[None, None, None]], count: int) -> None:
    for _ in range(count):
        await work.begin(job)


async def test_settling_gives_a_moment_and_no_more() -> None:
    work, done = Work("w", 9), []

    async def job(seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(seconds)

    await work.begin(lambda: job(0.01))
    await work.begin(lambda: job(60))
    await work.settle(0.5)
    assert done == [0.01]
    await work.settle()
