"""The measurements measure: one tiny round over all four channels, product and floor; what is reckoned from it."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import psutil
import pytest

from tests.bench import __main__ as bench
from tests.bench import endurance
from tests.bench.cold_start import ColdStart
from tests.bench.deliveries import CHANNELS, Manners, WeChatPassive
from tests.bench.endurance import Idle, Turns
from tests.bench.load import Said, Stage, figures, load
from tests.bench.machine import Machine
from tests.bench.meter import Meter, Used
from tests.bench.model import Told
from tests.bench.platform import Platform
from tests.bench.results import Cell, Results, Rounds, markdown
from tests.bench.subject import FLOOR, PRODUCT, Places, Subject, SubjectFailed, child, model_process, running
from tests.bench.wire import Client, Messages, serving
from tests.waiting import until

# Python 3.12 warns of a fork beside threads, whatever is done in it; here it is one call.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

USED = Used(cpu=0.008, rss_start=40.0, rss_peak=50.0, driver=0.25, others=0.125)
FIGURES = figures([], Told(0, 0, {}), {}, USED, began=0.0)


@pytest.mark.parametrize("kind", [FLOOR, PRODUCT])
async def test_all_that_is_said_is_answered_on_every_channel(kind: str, tmp_path: Path) -> None:
    async with model_process() as address, Platform() as platform:
        places = Places(address, platform.base, {each.name: each.entry(platform.base) for each in CHANNELS})
        async with (
            running(kind, places, tmp_path / kind) as subject,
            Client(subject.port) as client,
            Client(int(address.rsplit(":", 1)[1])) as model,
        ):
            for channel in CHANNELS:
                stage = Stage(subject, channel, platform, client, model)
                found = await load(stage, people=3, seconds=0.1, model_seconds=0.02, settle=0.02)
                assert found.sent >= 1  # a tenth of a second may be over before the other two begin
                assert (found.lost, found.doubled, found.unacked, found.requests) == (0, 0, 0, 1), channel.name
                assert found.overhead_p50 > 0
                assert found.rss_peak >= found.rss_start > 0
                assert 0 < found.driver < 2
            assert subject.cpu() > 0


async def test_every_turn_and_every_conversation_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endurance, "BLOCK", 4)
    monkeypatch.setattr(endurance, "REPEATS", 1)
    wechat = WeChatPassive()
    async with model_process() as address, Platform() as platform:
        places = Places(address, platform.base, {"wechat": {}})
        async with (
            running(FLOOR, places, tmp_path / "floor") as subject,
            Client(subject.port) as client,
            Client(int(address.rsplit(":", 1)[1])) as model,
        ):
            stage = Stage(subject, wechat, platform, client, model)
            found = await endurance.turns(stage, (1, 10))
            assert [(each.place, each.requests) for each in found] == [(1, 1), (10, 1)]
            assert len(platform.replies) == 1 + 4 + 10 + 4
            rest = await endurance.idle(stage, 7, few=2, at_once=2, rest=0)
            assert len(platform.replies) == 1 + 4 + 10 + 4 + 1 + 7
            assert rest.after_all >= rest.start > 0
            await subject.stop()
            monkeypatch.setattr("tests.bench.load.REPLY_SECONDS", 0.1)
            monkeypatch.setattr(Stage, "warm", AsyncMock())
            monkeypatch.setattr(subject, "rss", lambda: 50.0)
            with pytest.raises(SubjectFailed, match="no reply to idle"):
                await endurance.idle(stage, 2, few=1, at_once=1, rest=0)


async def test_a_subject_that_does_not_start_says_why(tmp_path: Path) -> None:
    places = Places("http://127.0.0.1:1", "http://127.0.0.1:1", {"feishu-long": {}})
    with pytest.raises(SubjectFailed, match="ClientConnectorError"):
        async with running(FLOOR, places, tmp_path / "floor"):
            pass


async def test_what_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    pids: list[int] = []
    begun, before = asyncio.Event(), set(psutil.Process().children())

    async def measuring() -> None:
        async with (
            model_process() as address,
            Platform() as platform,
            running(FLOOR, Places(address, platform.base, {"feishu": {}}), tmp_path / "floor"),
        ):
            pids.extend(each.pid for each in psutil.Process().children() if each not in before)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(measuring())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) >= 2
    assert not any(map(_runs, pids))


async def test_a_killed_driver_leaves_no_process() -> None:
    program = (
        "import asyncio; from tests.bench.subject import child\n"
        "async def main():\n"
        "    async with child('-c', 'import time; time.sleep(60)') as process:\n"
        "        print(process.pid, flush=True)\n"
        "        await process.wait()\n"
        "asyncio.run(main())"
    )
    async with child("-c", program, stdout=asyncio.subprocess.PIPE) as driver:
        assert driver.stdout is not None
        grandchild = int(await driver.stdout.readline())
        driver.kill()
        await driver.wait()
        await until(lambda: not _runs(grandchild))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_figures_of_what_was_said() -> None:
    said = [
        Said("qa", sent=10.0, acked=10.002, replied=11.010),
        Said("qb", sent=10.0, acked=10.004, replied=11.030),
        Said("qc", sent=10.0, acked=None, replied=None),
    ]
    told = Told(requests=4, most_running=2, answered={"qa": (10.005, 11.005), "qb": (10.01, 11.01)})
    found = figures(said, told, {"qa": 2, "qb": 1}, USED, began=10.0)
    assert (found.sent, found.lost, found.doubled, found.unacked) == (3, 1, 1, 1)
    assert found.rate == pytest.approx(2 / 1.03)
    assert found.cpu == pytest.approx(4.0)
    assert (found.ack_p50, found.ack_p99) == (pytest.approx(3.0), pytest.approx(4.0))
    assert (found.overhead_p50, found.overhead_p99) == (pytest.approx(20.0), pytest.approx(30.0))
    assert (found.requests, found.most_at_model) == (2.0, 2)


async def test_a_meter_tells_whose_work_it_was(tmp_path: Path) -> None:
    spin = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(flush=True); time.sleep(9)"
    async with child("-c", spin, stdout=asyncio.subprocess.PIPE) as process:
        assert process.stdout is not None
        async with Meter(Subject(process, 0, tmp_path / "log")) as meter:
            await process.stdout.readline()
            used = meter.used
    assert 0.1 < used.cpu < 1
    assert used.driver < 0.5
    assert 0 <= used.others <= (os.cpu_count() or 1) + 0.5


def test_the_ratio_is_that_of_each_round() -> None:
    rounds = Rounds(
        [replace(FIGURES, cpu=cpu) for cpu in (2.0, 9.0, 4.0)], [replace(FIGURES, cpu=cpu) for cpu in (1.0, 3.0, 4.0)]
    )
    assert rounds.medians(lambda each: each.cpu) == (4.0, 3.0, 2.0)


def test_persons_take_turns_and_are_replaced_before_a_platform_would_mute_them() -> None:
    manners = Manners(patience=3, again=15, cast=2, most=3)
    assert [manners.person(7, number) for number in (0, 1, 2, 5, 6)] == [
        "u7g0c0",
        "u7g0c1",
        "u7g0c0",
        "u7g0c1",
        "u7g1c0",
    ]
    assert {Manners(patience=3, again=15).person(7, number) for number in range(100)} == {"u7g0c0"}


def test_messages_come_whole_however_they_are_cut() -> None:
    data = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n"
    whole = [(b"POST /a HTTP/1.1\r\nContent-Length: 3", b"abc"), (b"HTTP/1.1 200 OK\r\ncontent-length:0", b"")]
    for size in (1, 7, len(data)):
        messages = Messages()
        assert [each for at in range(0, len(data), size) for each in messages.feed(data[at : at + size])] == whole


async def test_a_closed_connection_is_an_error_and_not_used_again() -> None:
    seen: list[bytes] = []

    def handle(head: bytes, body: bytes, write: object) -> None:
        seen.append(body)
        raise ConnectionAbortedError  # closes the connection

    async with serving(handle) as base, Client(int(base.rsplit(":", 1)[1])) as client:
        for body in (b"1", b"2"):
            with pytest.raises(ConnectionResetError):
                await client.post("/", body)
    assert seen == [b"1", b"2"]


@pytest.fixture
def results() -> Results:
    machine = Machine("CPU", 2, 24.0, "Linux", "ext4", 0.2, "3.11", "aiohttp 3", "abc", 0.5)
    lost = replace(FIGURES, sent=1234, lost=1)
    load = {Cell("飞书 webhook", 50, 0.0): Rounds([lost, FIGURES], [FIGURES, FIGURES])}
    cold: Mapping[str, ColdStart] = {PRODUCT: ColdStart(1.25, 70), FLOOR: ColdStart(0.5, 40)}
    return Results(
        command="make bench",
        at="2026-01-05 10:00+08:00",
        minutes=25,
        rounds=2,
        seconds=6,
        machine=machine,
        load=load,
        turns=[Turns(5000, 3.0, 10.0, 123.4, 1.2, 1.05)],
        idle=Idle(10_000, 80, 1000, 90, 99, 60),
        cold_start=cold,
        memory=" messages",
    )


def test_the_page_tells_all(results: Results) -> None:
    page = markdown(results)
    for line in (
        "| 命令 | `make bench` |",
        "| 开始时的负载 | 0.50 |",
        "| 5,000 | 3.00 | 1.05 | 10.0 | 123 | 1.20 |",
        "| 产品 | 1.25 | 70 |",
        "| 启动后多出 | 19 |",
    ):
        assert line in page
    assert "| 飞书 webhook | 50 | 0 秒 | 1,234 / 0 | 1 / 0 |" in page
    tables = [part.splitlines() for part in page.split("\n\n") if part.startswith("|")]
    assert len(tables) == 7
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)


def test_nothing_is_written_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (2.6, 0.0, 0.0))
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("measured"))
    assert bench.main([]) == 2
    assert "2.60" in capsys.readouterr().err


def test_the_page_is_written_when_all_was_measured(
    results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def measured(*_: object) -> Results:
        return results

    written = tmp_path / "RESULTS.md"
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setattr(bench, "measure", measured)
    monkeypatch.setattr(bench, "RESULTS", written)
    monkeypatch.setattr(bench, "settle", lambda: None)
    for arguments in (["--quick"], ["--only", "idle"], ["--rounds", "1"]):
        assert bench.main(arguments) == 0
        assert not written.exists()
    assert bench.main([]) == 0
    assert written.read_text(encoding="utf-8") == markdown(results)
