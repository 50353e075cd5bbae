"""Forgetting on the disk: nothing of the person is left, late writers come too late, shared groups keep their shape."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from memory.appending import Appender
from memory.archive import SummaryArchive, write_summary
from memory.conversation import ConversationId, LaneKey, Role, ToolCall, Turn, session_id, shared_group_id, user_id
from memory.erasing import TOMBSTONE, Erased
from memory.errors import StoreFull
from memory.generations import Forgotten, Generations
from memory.memory import Memory
from memory.mended import Outcome
from memory.steps import Steps
from memory.summary import Summary
from tests.scenarios.conversation_files import checked

AT = "2026-11-30T18:10:05.123+08:00"
ZHANG, LI = user_id("web", "web", "zhang"), user_id("web", "web", "li")
GROUP = shared_group_id("web", "web", "g")


def conversation(user: str = ZHANG, *, group: bool = False, agent: str = "general-agent") -> ConversationId:
    return LaneKey(user, "web", session_id("web", "web", "g" if group else user), group).with_agent(agent)


def asked(number: int, text: str, user: str | None = None, **more: Any) -> Turn:
    return Turn(role=Role.USER, text=text, id=f"q{number}", at=AT, user=user, **more)


def answered(number: int, text: str, **more: Any) -> Turn:
    return Turn(role=Role.ASSISTANT, text=text, id=f"q{number}/a{len(text)}", to=f"q{number}", at=AT, **more)


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    opened = Memory(tmp_path)
    yield opened
    await opened.close()


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


async def test_every_file_of_a_person_goes_and_nobody_elses(memory: Memory, tmp_path: Path) -> None:
    for agent in ("general-agent", "job-agent"):
        await memory.remember(conversation(agent=agent), [asked(1, "秘密独角兽")])
    await memory.remember(conversation(group=True), [asked(2, "群里的秘密独角兽")])
    await memory.remember(conversation(LI), [asked(3, "凤凰")])
    summary = Summary(text="独角兽", id="s", epoch=0, through=0, at=AT)
    assert await memory.archive(conversation(), summary, after=None)
    name = conversation().file_name
    for path in (
        f"users/{ZHANG}.yaml",
        f"users/.{ZHANG}.yaml.new",
        f"quarantine/{ZHANG}/{name}.torn-1",
        f"conversations/{ZHANG}/.{name}.new",
        f"conversations/{ZHANG}/{name}~",
        f"users/{LI}.yaml",
    ):
        await asyncio.to_thread(put, tmp_path / path, "凤凰" if LI in path else "独角兽")
    erased, gone = await memory.forget(ZHANG)
    assert (erased.conversations, erased.summaries, erased.originals, erased.profile) == (3, 1, 1, True)
    assert gone
    left = await asyncio.to_thread(everything, tmp_path)
    assert "独角兽".encode() not in left
    assert left.count("凤凰".encode()) == 2
    paths = await asyncio.to_thread(lambda: [str(path) for path in tmp_path.rglob("*") if ZHANG in str(path)])
    assert paths == []
    again, _ = await memory.forget(ZHANG)
    assert (again.conversations, again.turns, again.touched) == (0, 0, ())


async def test_a_link_is_removed_and_not_followed(memory: Memory, tmp_path: Path) -> None:
    def make() -> None:
        put(tmp_path / "elsewhere" / "kept.txt", "kept")
        put(tmp_path / "conversations" / ZHANG / "inner" / "x", "x")
        (tmp_path / "conversations" / ZHANG / "link").symlink_to(tmp_path / "elsewhere")

    await asyncio.to_thread(make)
    await memory.forget(ZHANG)
    assert await asyncio.to_thread((tmp_path / "elsewhere" / "kept.txt").read_text) == "kept"
    assert not await asyncio.to_thread((tmp_path / "conversations" / ZHANG).exists)


async def test_who_comes_back_begins_anew(memory: Memory, tmp_path: Path) -> None:
    await memory.remember(conversation(), [asked(1, "独角兽"), answered(1, "好")])
    await memory.forget(ZHANG)
    written = await memory.remember(conversation(), [asked(2, "我回来了")])
    assert [(turn.n, turn.epoch) for turn in written] == [(0, 0)]
    assert [turn.text for turn in await memory.history(conversation(), None, 9)] == ["我回来了"]


async def test_a_cancelled_append_in_its_thread_leaves_nothing(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer was cancelled, its thread was not; it writes before the erasing or never."""
    append, reached, go_on = memory._store.appender.appending, threading.Event(), threading.Event()

    def slow(where: ConversationId, turns: Sequence[Turn], *, wait: bool) -> Steps[list[Turn]]:
        reached.set()
        assert go_on.wait(30)
        return (yield from append(where, turns, wait=wait))

    monkeypatch.setattr(memory._store.appender, "appending", slow)
    writing = asyncio.create_task(memory.remember(conversation(), [asked(1, "独角兽")]))
    assert await asyncio.to_thread(reached.wait, 30)
    waiting = asyncio.create_task(memory.remember(conversation(agent="job-agent"), [asked(2, "独角兽")]))
    await asyncio.sleep(0.05)
    writing.cancel()
    forgetting = asyncio.create_task(memory.forget(ZHANG))
    await asyncio.sleep(0.05)
    assert not forgetting.done(), "what is being written is waited for"
    go_on.set()
    await forgetting
    with pytest.raises(Forgotten):
        await waiting
    assert "独角兽".encode() not in await asyncio.to_thread(everything, tmp_path)


@pytest.mark.parametrize("known", [True, False], ids=["a file", "no file yet"])
async def test_what_is_being_written_to_a_group_is_waited_for(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """It was let in before the forgetting, and is not on the disk yet when the group is looked at."""
    append, reached, go_on = memory._store.appender.appending, threading.Event(), threading.Event()

    def slow(where: ConversationId, turns: Sequence[Turn], *, wait: bool) -> Steps[list[Turn]]:
        reached.set()
        assert go_on.wait(30)
        return (yield from append(where, turns, wait=wait))

    where = conversation(GROUP, group=True)
    if known:
        await memory.remember(where, [asked(1, "凤凰", LI)])
    monkeypatch.setattr(memory._store.appender, "appending", slow)
    writing = asyncio.create_task(memory.remember(where, [asked(2, "独角兽", ZHANG)]))
    assert await asyncio.to_thread(reached.wait, 30)
    forgetting = asyncio.create_task(memory.forget(ZHANG))
    await asyncio.sleep(0.05)
    assert not forgetting.done()
    go_on.set()
    await writing
    erased, _ = await forgetting
    assert erased.turns == 1
    left = await asyncio.to_thread(everything, tmp_path)
    assert "独角兽".encode() not in left
    assert ("凤凰".encode() in left) is known


@pytest.mark.parametrize("seed", range(8))
async def test_however_writing_and_forgetting_meet(memory: Memory, tmp_path: Path, seed: int) -> None:
    """Many writers, some cancelled, in all orders: what was asked for before is nowhere, what comes after is there."""
    chance = random.Random(seed)
    where = [conversation(agent=f"agent-{number}") for number in range(4)] + [conversation(GROUP, group=True)]

    asked_for: set[int] = set()

    async def writes(number: int, text: str) -> None:
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))
        place = where[number % len(where)]
        person = ZHANG if place.lane.is_shared else None
        asked_for.add(number)
        await memory.remember(place, [asked(number, text, person), answered(number, text, user=person)])

    before = [asyncio.create_task(writes(number, "独角兽")) for number in range(40)]
    await asyncio.sleep(0.005)
    for number, task in enumerate(before):
        if number not in asked_for or chance.random() < 0.4:
            task.cancel()
    await memory.forget(ZHANG)
    await asyncio.gather(*before, return_exceptions=True)
    await asyncio.gather(*(writes(number, "凤凰") for number in range(100, 110)))
    left = await asyncio.to_thread(everything, tmp_path)
    assert "独角兽".encode() not in left
    assert left.count("凤凰".encode()) == 20


async def test_a_summary_of_what_was_forgotten_comes_too_late(memory: Memory, tmp_path: Path) -> None:
    generation = memory.generations.now()
    await memory.remember(conversation(), [asked(1, "独角兽")])
    await memory.forget(ZHANG)
    await memory.remember(conversation(), [asked(2, "新的")])
    late = Summary(text="独角兽", id="s", epoch=0, through=0, at=AT)
    with pytest.raises(Forgotten):
        await memory.archive(conversation(), late, after=None, generation=generation)
    assert "独角兽".encode() not in await asyncio.to_thread(everything, tmp_path)


async def shared_group(memory: Memory) -> ConversationId:
    where = conversation(GROUP, group=True)
    call = ToolCall("c1", "look", '{"secret": "独角兽"}')
    await memory.remember(
        where,
        [
            asked(1, "大家好", LI, name="李四"),
            answered(1, "你好"),
            asked(2, "我的秘密是独角兽", ZHANG, name="张三", ids=("q2", "q2b")),
            answered(2, "", tool_calls=(call,)),
            Turn(role=Role.TOOL, text="独角兽", id="t", at=AT, to="q2", call="c1"),
            answered(2, "你的秘密是独角兽"),
            Turn(role=Role.RESET, text="new", id="r", at=AT),
            asked(3, "凤凰", LI, name="李四"),
            answered(3, "凤凰好"),
        ],
    )
    return where


async def test_a_speakers_turns_and_their_answers_become_tombstones(memory: Memory, tmp_path: Path) -> None:
    where = await shared_group(memory)
    path = tmp_path / "conversations" / GROUP / where.file_name
    before = await asyncio.to_thread(checked, path)
    archive = SummaryArchive(tmp_path, sync=True)
    versions = [Summary(text=f"到{n}", id=f"s{n}", epoch=int(n > 6), through=n, at=AT) for n in (1, 5, 8)]
    await asyncio.to_thread(put, tmp_path / "archives" / GROUP / where.file_name, "")
    raw = b"".join(map(write_summary, versions)).decode()
    await asyncio.to_thread(put, tmp_path / "archives" / GROUP / where.file_name, raw)
    await asyncio.to_thread(put, tmp_path / "quarantine" / GROUP / f"{where.file_name}.torn-1", "独角兽")
    erased, _ = await memory.forget(ZHANG)
    assert (erased.turns, erased.summaries, erased.originals, erased.touched) == (4, 2, 1, (where,))
    after = await asyncio.to_thread(checked, path)
    keys = ("id", "n", "epoch", "to", "ids", "at")
    assert [[i.meta.get(k) for k in keys] for i in before] == [[i.meta.get(k) for k in keys] for i in after]
    assert [item.text for item in after if item.meta["n"] in (2, 3, 4, 5)] == [TOMBSTONE] * 4
    assert [(i.role, i.text) for i in after if i.meta["n"] not in (2, 3, 4, 5)] == [
        (i.role, i.text) for i in before if i.meta["n"] not in (2, 3, 4, 5)
    ]
    left = await asyncio.to_thread(everything, tmp_path)
    for secret in ("独角兽", "张三", ZHANG):
        assert secret.encode() not in left, secret
    assert await asyncio.to_thread(archive.last_id, where) == "s1"
    written = await memory.remember(where, [asked(4, "接着说", LI)])
    assert written[0].n == 9
    again, _ = await memory.forget(ZHANG)
    assert again.turns == 0


async def test_in_a_shared_group_only_the_speakers_own_late_writes_are_refused(memory: Memory) -> None:
    where = await shared_group(memory)
    generation = memory.generations.now()
    await memory.forget(ZHANG)
    with pytest.raises(Forgotten), memory.generations.writing(generation, GROUP, ZHANG):
        raise AssertionError("not reached")
    with memory.generations.writing(generation, GROUP, LI):
        pass
    late = Summary(text="独角兽", id="s", epoch=1, through=8, at=AT)
    with pytest.raises(Forgotten):
        await memory.archive(where, late, after=None, generation=generation)


async def test_a_groups_file_that_a_person_changed_is_silenced_too(memory: Memory, tmp_path: Path) -> None:
    where = await shared_group(memory)
    path = tmp_path / "conversations" / GROUP / where.file_name

    def edit() -> None:
        path.write_text(path.read_text(encoding="utf-8").replace("我的秘密是独角兽", "我的秘密是独角兽和龙"), "utf-8")

    await asyncio.to_thread(edit)
    await memory.forget(ZHANG)
    raw = await asyncio.to_thread(path.read_bytes)
    assert "独角兽".encode() not in raw
    assert len(yaml.safe_load(raw)) == 9
    await asyncio.to_thread(checked, path)


def test_what_was_asked_for_after_the_forgetting_is_in_time() -> None:
    generations = Generations()
    before = generations.now()
    generations.forget("u1")
    assert generations.passed(before, "u1")
    assert not generations.passed(before, "u2")
    assert not generations.passed(generations.now(), "u1")


async def test_what_was_broken_off_in_a_group_is_made_good_by_asking_again(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summaries go before the turns by which the next attempt finds the group."""
    where = await shared_group(memory)
    archived = tmp_path / "archives" / GROUP / where.file_name
    summary = Summary(text="张三说过独角兽", id="s1", epoch=0, through=5, at=AT)
    await asyncio.to_thread(put, archived, write_summary(summary).decode())
    await asyncio.to_thread(put, tmp_path / "quarantine" / GROUP / f"{where.file_name}.torn-1", "独角兽")
    drop = SummaryArchive.drop

    def full(*_: object) -> int:
        raise StoreFull("磁盘已满")

    monkeypatch.setattr(SummaryArchive, "drop", full)
    with pytest.raises(StoreFull):
        await memory.forget(ZHANG)
    monkeypatch.setattr(SummaryArchive, "drop", drop)
    erased, _ = await memory.forget(ZHANG)
    assert (erased.turns, erased.summaries) == (4, 1)
    assert "独角兽".encode() not in await asyncio.to_thread(everything, tmp_path)


async def spoiled_group(memory: Memory, root: Path) -> ConversationId:
    """A shared group whose file became unreadable and was put aside whole, with what a summary had told of it."""
    where = await shared_group(memory)
    path = root / "conversations" / GROUP / where.file_name

    def spoil() -> None:
        put(path, path.read_text(encoding="utf-8").replace("- ", "+ ").replace("  meta", "\tmeta"))

    await asyncio.to_thread(spoil)
    summary = Summary(text="张三说过独角兽", id="s1", epoch=0, through=5, at=AT)
    await asyncio.to_thread(put, root / "archives" / GROUP / where.file_name, write_summary(summary).decode())
    (mended,) = [each for each in await memory.repair([where]) if each.path.startswith("conversations/")]
    assert mended.outcome is Outcome.UNREADABLE
    return where


@pytest.mark.parametrize("goes_on", [True, False], ids=["a new file", "no file"])
async def test_a_groups_file_that_was_put_aside_whole_goes(memory: Memory, tmp_path: Path, goes_on: bool) -> None:
    where = await spoiled_group(memory, tmp_path)
    other = conversation(GROUP, group=True, agent="job-agent")
    kept = tmp_path / "quarantine" / GROUP / f"{other.file_name}.unreadable-1"
    await asyncio.to_thread(put, kept, LI)
    if goes_on:
        await memory.remember(where, [asked(9, "凤凰", LI)])
    erased, _ = await memory.forget(ZHANG)
    assert (erased.turns, erased.summaries, erased.originals, erased.touched) == (0, 1, 1, (where,))
    left = await asyncio.to_thread(everything, tmp_path)
    for secret in ("独角兽", "张三", ZHANG):
        assert secret.encode() not in left, secret
    assert await asyncio.to_thread(kept.read_text) == LI
    assert [turn.text for turn in await memory.history(where, None, 9)] == (["凤凰"] if goes_on else [])
    again, _ = await memory.forget(ZHANG)
    assert again == Erased()


async def test_what_was_put_aside_goes_after_the_summaries_of_it(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the mark by which the next attempt finds the group."""
    await spoiled_group(memory, tmp_path)
    drop = SummaryArchive.drop

    def full(*_: object) -> int:
        raise StoreFull("磁盘已满")

    monkeypatch.setattr(SummaryArchive, "drop", full)
    with pytest.raises(StoreFull):
        await memory.forget(ZHANG)
    monkeypatch.setattr(SummaryArchive, "drop", drop)
    erased, _ = await memory.forget(ZHANG)
    assert (erased.summaries, erased.originals) == (1, 1)
    assert "独角兽".encode() not in await asyncio.to_thread(everything, tmp_path)


async def test_copies_beside_a_groups_file_go(memory: Memory, tmp_path: Path) -> None:
    """What editors and kills leave; and what was put aside as no file, a folder with whatever is in it."""
    where = await shared_group(memory)
    name, beside = where.file_name, tmp_path / "conversations" / GROUP
    copies = [
        *(beside / each for each in (f".{name}.new", f"{name}~", f".{name}.swp", f"#{name}#")),
        tmp_path / "archives" / GROUP / f".{name}.new",
        tmp_path / "quarantine" / GROUP / f"{name}.no-file-1" / "inner" / "old.yaml",
    ]
    for path in copies:
        await asyncio.to_thread(put, path, f"独角兽 {ZHANG}")
    other = beside / conversation(GROUP, group=True, agent="job-agent").file_name
    await memory.remember(conversation(GROUP, group=True, agent="job-agent"), [asked(9, "凤凰", LI)])
    erased, _ = await memory.forget(ZHANG)
    assert (erased.turns, erased.originals) == (4, len(copies))
    assert "独角兽".encode() not in await asyncio.to_thread(everything, tmp_path)
    assert "凤凰" in await asyncio.to_thread(other.read_text)


async def test_one_group_that_cannot_be_changed_keeps_nothing_else_from_going(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = [conversation(shared_group_id("web", "web", f"g{n}"), group=True) for n in range(3)]
    for number, where in enumerate(groups):
        await memory.remember(where, [asked(number, "独角兽", ZHANG)])
    broken, rewrite = sorted(groups, key=str)[0], Appender.rewrite

    def full(appender: Appender, where: ConversationId, change: Callable[[list[Turn]], list[Turn]]) -> None:
        if where == broken:
            raise StoreFull("磁盘已满")
        rewrite(appender, where, change)

    monkeypatch.setattr(Appender, "rewrite", full)
    with pytest.raises(StoreFull):
        await memory.forget(ZHANG)
    assert (await asyncio.to_thread(everything, tmp_path)).count("独角兽".encode()) == 1
    assert [record.getMessage().split()[0] for record in caplog.records] == ["group_not_silenced"]
    monkeypatch.setattr(Appender, "rewrite", rewrite)
    erased, _ = await memory.forget(ZHANG)
    assert (erased.turns, erased.touched) == (1, (broken,))


@pytest.mark.parametrize("group", [False, True])
async def test_what_was_read_in_the_midst_is_of_before(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    """A window that was read while the files went must not be kept anywhere afterwards."""
    where = conversation(GROUP, group=True) if group else conversation()
    await memory.remember(where, [asked(1, "秘密独角兽", user=ZHANG if group else None)])
    amidst: list[int] = []
    name = "_silenced" if group else "_removed"
    real = getattr(memory._eraser, name)

    def noted(*arguments: Any) -> Any:
        amidst.append(memory.generations.now())
        return real(*arguments)

    monkeypatch.setattr(memory._eraser, name, noted)
    await memory.forget(ZHANG)
    assert amidst
    assert memory.generations.passed(amidst[0], str(where) if group else ZHANG)
