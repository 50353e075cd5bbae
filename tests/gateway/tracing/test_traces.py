"""Traces: gathered, written in batches, bounded, asked for, forgotten; whatever the disk does, nothing is raised."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.model import ChatMessage, ModelRequest, ToolSpec
from channels.message import InboundMessage
from gateway.config.sections import TraceSettings
from gateway.tracing import store
from gateway.tracing import traces as recording
from gateway.tracing.frames import Asked
from gateway.tracing.trace import Kind, Outcome, TraceQuery, id_of, outcome_after, trace_id
from gateway.tracing.traces import Traces
from memory.conversation import LaneKey, Role, session_id, user_id
from memory.summary import Summary
from memory.window import Drop, Window, WindowMessage

DAY = 86400.0


def message(number: int = 1, user: str = "ou_1", text: str = "你好", chat: str = "oc_1") -> InboundMessage:
    person = user_id("feishu", "cli", user)
    lane = LaneKey(person, "feishu", session_id("feishu", "cli", chat), False)
    return InboundMessage(
        entry="feishu", account="cli", id=f"om_{number}", lane=lane, user=person, platform_user=user, text=text
    )


class Bench:
    """Traces in a folder, with a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.settings = TraceSettings()
        self.file = folder / "trace.db"
        self.mask: Callable[[str], str] = lambda text: text.replace("13812345678", "138****5678")
        self.traces = self.made()

    def made(self) -> Traces:
        return Traces(
            self.file,
            settings=lambda: self.settings,
            mask=lambda text: self.mask(text),  # noqa: PLW0108 - it changes
            clock=lambda: self.now,
        )

    async def again(self) -> None:
        """As after a restart."""
        await self.traces.close()
        self.traces = self.made()
        await self.traces.open()

    async def found(self, **query: str) -> list[str]:
        return [each.message for each in (await self.traces.find(TraceQuery(**query))).traces]  # type: ignore[arg-type]

    async def count(self) -> int:
        return len((await self.traces.find(TraceQuery(), None, 10**6)).traces)

    def raw(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.file.parent.glob("trace.db*"))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    await made.traces.open()
    yield made
    await made.traces.close()


def asked(system: str = "你是助手", question: str = "q", text: str = "你好", tools: tuple[ToolSpec, ...] = ()) -> Asked:
    kept = WindowMessage(role=Role.USER, content=text, ids=("om_0",), tokens=12)
    drop = Drop("om_9", Role.USER, "acknowledgement", "确认词“收到”", 3)
    window = Window(messages=(kept,), dropped=(drop,), tokens=12, question_tokens=5, first=0)
    sent = ModelRequest(messages=(ChatMessage("system", system), ChatMessage(Role.USER, text)))
    return Asked(window, sent, question, 2000, system, "messages", tools)


# ---------------------------------------------------------------- ids, outcomes


def test_the_id_follows_from_what_is_de_duplicated_by() -> None:
    assert trace_id("feishu", "cli", "om_1") == id_of(message()) == "theimq6xruzis"
    assert (
        len({trace_id("a", "b", "c"), trace_id("a", "bc", ""), trace_id("ab", "", "c"), trace_id("a", "b", "C")}) == 4
    )


@given(st.lists(st.sampled_from(list(Kind)), max_size=8))
def test_the_last_part_delivers_only_what_was_to_be_delivered(kinds: list[Kind]) -> None:
    outcome: Outcome | None = None
    for kind in kinds:
        before, outcome = outcome, outcome_after(outcome, kind, {"part": 2, "parts": 2})
        if kind is Kind.SENT and before in (Outcome.REFUSED, Outcome.FAILED, Outcome.COMMAND, Outcome.EXPIRED):
            assert outcome is before
        if kind is Kind.DUPLICATE and before is not None:
            assert outcome is before
    assert outcome_after(outcome, Kind.SENT, {"part": 1, "parts": 2}) is outcome


# ---------------------------------------------------------------- written and asked for


async def test_steps_of_several_batches_and_of_two_lives_are_one_trace(bench: Bench) -> None:
    one = message(text="我的电话 13812345678")
    conversation = str(one.lane.with_agent("general-agent"))
    bench.traces.note(one, Kind.RECEIVED, chars=5)
    await bench.traces.flush()
    bench.now += 1
    bench.traces.note(one, Kind.ROUTED, agent="general-agent", reason="默认", conversation=conversation)
    await bench.again()
    bench.traces.note(one, Kind.FAILED, text="busy", error="ModelUnavailable", reason="main: 503")
    bench.traces.note(one, Kind.SENT, part=1, parts=1)
    bench.traces.note(one, Kind.DUPLICATE, state="failed")
    found = await bench.traces.get(id_of(one))
    assert found is not None
    assert [step.kind for step in found.steps] == ["received", "routed", "failed", "sent", "duplicate"]
    assert (found.at, found.last) == (1_000_000.0, 1_000_001.0)
    assert (found.outcome, found.reason, found.text) == ("failed", "main: 503", "我的电话 138****5678")
    assert (found.conversation, found.platform_user, found.entry) == (conversation, "ou_1", "feishu")
    assert found.steps[1].facts == {"agent": "general-agent", "reason": "默认"}


async def test_a_killed_process_loses_only_what_was_not_written_yet(bench: Bench, tmp_path: Path) -> None:
    bench.traces.note(message(1), Kind.RECEIVED)
    await bench.traces.flush()
    bench.traces.note(message(2), Kind.RECEIVED)
    left = tmp_path / "left"
    left.mkdir()
    for path in sorted(tmp_path.glob("trace.db*")):  # noqa: ASYNC240 - the files as a kill would leave them
        shutil.copy(path, left)
    other = Bench(left)
    await other.traces.open()
    assert await other.found() == ["om_1"]
    await other.traces.close()


async def test_pages_are_newest_first_without_gap_or_repeat(bench: Bench) -> None:
    for number in range(25):
        bench.traces.note(message(number, f"ou_{number % 2}"), Kind.RECEIVED)
    seen, before = [], None
    while True:
        page = await bench.traces.find(TraceQuery(user="ou_0"), before, 5)
        seen += [each.message for each in page.traces]
        bench.traces.note(message(100 + len(seen), "ou_0"), Kind.RECEIVED)  # what comes meanwhile moves nothing
        if (before := page.before) is None:
            break
    assert seen == [f"om_{number}" for number in range(24, -1, -2)]


def test_a_list_reads_no_steps() -> None:
    database, read = sqlite3.connect(":memory:"), set[str]()
    database.row_factory = sqlite3.Row
    database.executescript(store.SCHEMA)

    def authorise(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and table == "traces" and column:
            read.add(column)
        return sqlite3.SQLITE_OK

    database.set_authorizer(authorise)
    store.find(database, TraceQuery(), None, 50)
    database.close()
    assert "reason" in read
    assert "steps" not in read, "they are most of a row, and a list shows none"


async def test_a_duplicate_of_what_is_gone_is_a_trace_of_its_own(bench: Bench) -> None:
    bench.traces.note(message(), Kind.DUPLICATE, state="delivered")
    (found,) = (await bench.traces.find(TraceQuery())).traces
    assert found.outcome is Outcome.DUPLICATE


async def test_where_own_filters_have_yet_to_see_a_text_none_is_kept(bench: Bench) -> None:
    bench.mask = lambda text: ""
    bench.traces.note(message(text="绝密"), Kind.RECEIVED)
    assert await bench.found() == ["om_1"]
    assert "绝密".encode() not in bench.raw()


async def test_only_a_beginning_of_the_text_is_kept_and_no_number_is_torn(bench: Bench) -> None:
    for number in range(100, 121):
        bench.traces.note(message(number, text="字" * number + "13812345678"), Kind.RECEIVED)
    page = await bench.traces.find(TraceQuery())
    assert max(len(each.text) for each in page.traces) <= 120
    assert not any("13812" in each.text for each in page.traces)


async def test_hostile_values_are_data(bench: Bench) -> None:
    nasty = 'x\'; DROP TABLE traces; --\n{"kind":"sent"}\u2028\ud800\x00'
    bench.traces.note(replace(message(), id=nasty, text=nasty), Kind.REFUSED, reason=nasty)
    (found,) = (await bench.traces.find(TraceQuery())).traces
    whole = await bench.traces.get(found.id)
    assert whole is not None
    assert [step.kind for step in whole.steps] == ["refused"]
    assert await bench.found(q="' OR 1=1 --") == []


async def test_a_window_is_kept_by_its_ids_and_the_frame_once_per_person(bench: Bench) -> None:
    tools = (ToolSpec("search", "找", "{}"),)
    for number in range(3):
        bench.traces.note(message(number), Kind.WINDOW, asked(question=f"om_{number}", tools=tools), kept=1)
    bench.traces.note(message(7, "ou_2"), Kind.WINDOW, asked(tools=tools), kept=1)
    found = await bench.traces.get(id_of(message(1)))
    assert found is not None
    seen = found.steps[0].window
    assert seen is not None
    assert (seen.messages[0].role, seen.messages[0].ids, seen.question) == (Role.USER, ("om_0",), "om_1")
    assert seen.dropped == (Drop("om_9", Role.USER, "acknowledgement", "确认词“收到”", 3),)
    frame = await bench.traces.frame(seen.frame)
    assert frame is not None
    assert (frame.system, frame.tools) == ("你是助手", tools)
    assert "你好".encode() not in bench.raw(), "the window's texts stand in the conversation's file alone"
    with sqlite3.connect(bench.file) as db:
        assert db.execute("SELECT COUNT(*) FROM frames").fetchone() == (2,)
    db.close()


async def test_requests_turned_away_are_counted_by_minute(bench: Bench) -> None:
    for status in (401, 401, 413):
        bench.traces.reject("/feishu", status)
    await bench.traces.flush()
    bench.traces.reject("/feishu", 401)
    bench.now += 60
    bench.traces.reject("/feishu", 401)
    found = [(each.at, each.status, each.count) for each in await bench.traces.rejected()]
    minute = 1_000_000 // 60 * 60.0
    assert found == [(minute + 60, 401, 1), (minute, 401, 3), (minute, 413, 1)]


# ---------------------------------------------------------------- bounds


async def test_the_file_is_bounded_and_the_newest_stay(bench: Bench) -> None:
    bench.settings = TraceSettings(max_mb=4)
    filler = "很长的理由" * 400
    for start in range(0, 1500, 100):
        for number in range(start, start + 100):
            bench.traces.note(message(number), Kind.MODEL, reason=filler)
        await bench.traces.flush()
    left = await bench.count()
    assert 300 < left < 800
    assert await bench.found(message="om_1499")
    assert not await bench.found(message=f"om_{1490 - left}")
    assert bench.file.stat().st_size < 6 << 20


async def test_old_traces_go_with_their_frames(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FLUSH_SECONDS", 0.001)
    bench.settings = TraceSettings(keep_days=2)
    bench.traces.note(message(1), Kind.WINDOW, asked("旧的提示"))
    bench.traces.reject("/feishu", 401)
    await bench.traces.flush()
    bench.now += 3 * DAY
    bench.traces.note(message(2), Kind.WINDOW, asked("新的提示"))
    running = asyncio.create_task(bench.traces.run())
    async with asyncio.timeout(30):
        while await bench.found(message="om_1"):  # noqa: ASYNC110 - a task of its own clears
            await asyncio.sleep(0.005)
    running.cancel()
    assert await bench.found() == ["om_2"]
    assert await bench.traces.rejected() == ()
    with sqlite3.connect(bench.file) as db:
        assert db.execute("SELECT COUNT(*) FROM frames").fetchone() == (1,)
    db.close()


async def test_a_message_that_is_delivered_for_ever_does_not_fill_the_file(bench: Bench) -> None:
    for _ in range(40):
        bench.traces.note(message(), Kind.DUPLICATE, state="x" * 10_000)
        await bench.traces.flush()
    found = await bench.traces.get(id_of(message()))
    assert found is not None
    assert 20 < len(found.steps) < 30


async def test_a_flood_of_steps_is_bounded_in_memory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "MOST_STEPS", 10)
    for number in range(30):
        bench.traces.note(message(number), Kind.RECEIVED)
    await bench.traces.flush()
    assert "traces left out steps=20" in caplog.text
    assert len(await bench.found()) == 10
    bench.traces.note(message(99), Kind.RECEIVED)
    assert "om_99" in await bench.found()


# ---------------------------------------------------------------- trouble


async def test_a_disk_that_takes_nothing_costs_traces_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.traces.flush()
    with sqlite3.connect(bench.file) as db:
        db.execute("ALTER TABLE traces RENAME TO elsewhere")
    db.close()
    for number in range(3):
        bench.traces.note(message(number), Kind.RECEIVED)
        await bench.traces.flush()
    assert caplog.text.count("traces not written") == 1
    with sqlite3.connect(bench.file) as db:
        db.execute("ALTER TABLE elsewhere RENAME TO traces")
    db.close()
    bench.traces.note(message(4), Kind.RECEIVED)
    assert await bench.found() == ["om_4"]


async def test_without_a_file_nothing_is_kept_and_nothing_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "trace.db").mkdir()
    bench = Bench(tmp_path)
    await bench.traces.open()
    assert "no traces" in caplog.text
    bench.traces.note(message(), Kind.RECEIVED)
    bench.traces.reject("/feishu", 401)
    await bench.traces.flush()
    assert await bench.found() == []
    with pytest.raises(sqlite3.Error, match="没有删除"):
        await bench.traces.forget(message().user)
    await bench.traces.close()


async def test_a_file_of_a_newer_version_is_kept_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    with contextlib.closing(sqlite3.connect(bench.file)) as newer:
        newer.execute("CREATE TABLE new (x)")
        newer.execute("PRAGMA user_version = 9")
    raw = bench.file.read_bytes()
    await bench.traces.open()
    assert "由更新的版本写成（9）；请用那个版本运行" in caplog.text
    assert "begun anew" not in caplog.text
    assert bench.file.read_bytes() == raw
    bench.file.write_bytes(b"no database " * 1000)
    caplog.clear()
    await bench.again()
    assert "traces begun anew" in caplog.text
    assert "请从备份恢复" not in caplog.text, "it is gone already"
    bench.traces.note(message(), Kind.RECEIVED)
    assert await bench.found() == ["om_1"]
    await bench.traces.close()


# ---------------------------------------------------------------- forgotten


async def test_nothing_stays_of_whom_is_forgotten_nor_comes_back(bench: Bench) -> None:
    theirs, others = message(1, "ou_gone", "独角兽"), message(2, "ou_stays", "麒麟")
    for each in (theirs, others):
        bench.traces.note(each, Kind.RECEIVED)
        bench.traces.note(each, Kind.WINDOW, asked(f"系统 {each.platform_user}"))
    await bench.traces.flush()
    bench.traces.note(message(3, "ou_gone"), Kind.RECEIVED)
    assert await bench.traces.forget(theirs.user) == 1
    bench.traces.note(theirs, Kind.ANSWERED)
    bench.traces.note(message(3, "ou_gone"), Kind.SENT, part=1, parts=1)
    assert await bench.found() == ["om_2"]
    for word in ("独角兽", "ou_gone", theirs.user):
        assert word.encode() not in bench.raw(), word
    fresh = message(4, "ou_gone")
    bench.traces.note(fresh, Kind.RECEIVED)
    bench.traces.note(fresh, Kind.REFUSED, reason="rate-limited")
    bench.traces.note(theirs, Kind.SENT, part=1, parts=1)
    assert await bench.found() == ["om_4", "om_2"]
    kept = await bench.traces.get(id_of(others))
    assert kept is not None
    assert kept.steps[1].window is not None
    assert await bench.traces.frame(kept.steps[1].window.frame) is not None


async def test_of_a_turn_that_is_forgotten_nothing_stays_nor_of_summaries_that_told_of_it(bench: Bench) -> None:
    """The system messages of other requests stay, unless they had a summary that reaches it."""

    def request(number: int, through: int | None) -> Asked:
        made = asked(f"系统 {number} {'独角兽' if through and through >= 4 else '麒麟'}")
        told = None if through is None else Summary(text="", id="s", epoch=0, through=through, at="")
        return replace(made, window=replace(made.window, summary=told))

    theirs, under_way, elsewhere = message(1, text="独角兽"), message(9), message(11, chat="oc_2", text="麒麟")
    conversation = theirs.lane.with_agent("general-agent")
    for number, through in ((2, 3), (3, 4), (4, None), (5, 9)):
        bench.traces.note(message(number), Kind.RECEIVED)
        bench.traces.note(message(number), Kind.ROUTED, conversation=str(conversation))
        bench.traces.note(message(number), Kind.WINDOW, request(number, through))
    for each in (theirs, under_way, elsewhere):
        bench.traces.note(each, Kind.RECEIVED)
    await bench.traces.flush()
    bench.traces.note(message(8, text="独角兽"), Kind.RECEIVED)  # joined to it, and not written yet
    bench.traces.note(under_way, Kind.WINDOW, request(9, 9))
    assert await bench.traces.forget_turn(conversation, ("om_1", "om_8", "om_11"), 4) == 1
    bench.traces.note(theirs, Kind.ANSWERED, chars=3)
    bench.traces.note(under_way, Kind.WINDOW, request(9, 9))
    assert "独角兽".encode() not in bench.raw()
    assert await bench.found() == ["om_11", "om_9", "om_5", "om_4", "om_3", "om_2"]
    assert (await bench.traces.find(TraceQuery())).traces[0].lane == str(elsewhere.lane)
    kept = {}
    for number in (2, 3, 4, 5, 9):
        trace = await bench.traces.get(id_of(message(number)))
        assert trace is not None
        window = trace.steps[-1].window
        kept[number] = window is not None and await bench.traces.frame(window.frame) is not None
    assert kept == {2: True, 3: False, 4: True, 5: False, 9: False}
    fresh = message(10)
    bench.traces.note(fresh, Kind.RECEIVED)
    bench.traces.note(fresh, Kind.WINDOW, request(10, 3))
    trace = await bench.traces.get(id_of(fresh))
    assert trace is not None
    assert trace.steps[1].window is not None
    assert await bench.traces.forget_turn(conversation, ("om_1",), 4) == 0


async def test_nothing_that_goes_wrong_with_a_step_reaches_the_message(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    bench.mask = fail
    bench.traces.note(message(text="绝密"), Kind.RECEIVED)
    assert "step not noted" in caplog.text
    assert "绝密" not in "".join(record.getMessage() for record in caplog.records if record.levelname != "DEBUG")
