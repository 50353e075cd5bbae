"""Forgetting one question on the disk: it and its answer become tombstones, what tells of them goes, all else stays."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from memory.archive import SummaryArchive, write_summary
from memory.conversation import ConversationId, Role, ToolCall, Turn
from memory.erasing import REMOVED, Struck
from memory.errors import StoreFull
from memory.generations import Forgotten
from memory.memory import Memory
from memory.steps import Steps
from memory.summary import Summary, SummarySettings
from memory.window import WindowSettings
from tests.memory.test_erasing import AT, ZHANG, answered, asked, conversation, everything, put
from tests.scenarios.conversation_files import checked

WHERE = conversation()
SETTINGS = WindowSettings()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    opened = Memory(tmp_path)
    yield opened
    await opened.close()


def file_of(root: Path, below: str = "conversations") -> Path:
    return root / below / ZHANG / WHERE.file_name


async def talk(memory: Memory, where: ConversationId = WHERE) -> None:
    """Ordinals 0–1, 2–5 (with a tool, the secret one), 6–7."""
    call = ToolCall("c1", "look", '{"secret": "独角兽"}')
    await memory.remember(
        where,
        [
            asked(1, "大家好呀，我来了"),
            answered(1, "你好"),
            asked(2, "我的秘密是独角兽", name="独角兽张三", ids=("q2", "q2b")),
            answered(2, "查独角兽", tool_calls=(call,), model="m"),
            Turn(role=Role.TOOL, text="独角兽", id="t", at=AT, to="q2", call="c1"),
            answered(2, "你的秘密是独角兽呢", model="m"),
            asked(3, "说说凤凰吧"),
            answered(3, "凤凰好"),
        ],
    )


async def left(root: Path) -> bytes:
    return await asyncio.to_thread(everything, root)


async def seen(memory: Memory) -> list[str]:
    window = await memory.window(WHERE, SETTINGS, question=None, room=8000)
    return [message.content for message in window.messages]


async def test_a_question_with_all_that_answers_it_becomes_tombstones(memory: Memory, tmp_path: Path) -> None:
    await talk(memory)
    before = await asyncio.to_thread(checked, file_of(tmp_path))
    struck, gone = await memory.forget_turn(WHERE, "q2")
    assert (struck, gone) == (Struck(turns=4), True)
    after = await asyncio.to_thread(checked, file_of(tmp_path))
    keys = ("id", "n", "epoch", "to", "ids", "at")
    assert [[i.meta.get(k) for k in keys] for i in before] == [[i.meta.get(k) for k in keys] for i in after]
    assert [(i.role, i.text) for i in after if not i.meta.get("removed")] == [
        (i.role, i.text) for i in before if i.meta["n"] not in (2, 3, 4, 5)
    ]
    assert [i.text for i in after if i.meta.get("removed")] == [REMOVED] * 4
    assert "独角兽".encode() not in await left(tmp_path)
    history = await memory.history(WHERE, None, 9)
    assert [(turn.n, turn.removed) for turn in history] == [(n, 2 <= n <= 5) for n in range(8)]
    window = await memory.window(WHERE, SETTINGS, question=None, room=8000)
    assert [message.content for message in window.messages] == ["大家好呀，我来了", "你好", "说说凤凰吧", "凤凰好"]
    assert [(drop.n, drop.stage, drop.reason) for drop in window.dropped] == [
        (n, "order", "已删除") for n in (5, 4, 3, 2)
    ]
    assert window.gap == 0


async def test_asking_again_finds_nothing_and_touches_nothing(memory: Memory, tmp_path: Path) -> None:
    await talk(memory)
    await memory.forget_turn(WHERE, "q2")

    def stamp() -> tuple[int, int, int]:
        found = file_of(tmp_path).stat()  # not when it was read last, which the system notes now and then
        return found.st_ino, found.st_size, found.st_mtime_ns

    before = await asyncio.to_thread(stamp)
    for question in ("q2", "q9", "t"):
        assert await memory.forget_turn(WHERE, question) == (Struck(), True)
    assert await asyncio.to_thread(stamp) == before
    assert await memory.forget_turn(conversation(agent="job-agent"), "q2") == (Struck(), True)
    assert not await asyncio.to_thread(file_of(tmp_path).with_name("chat-x").exists)


async def test_a_file_rewritten_twice_keeps_its_ordinals(memory: Memory, tmp_path: Path) -> None:
    """The tombstone of a round of calls must not be taken for the answer: what follows would be taken for a repeat."""
    await talk(memory)
    for question in ("q2", "q3", "q1"):
        await memory.forget_turn(WHERE, question)
    items = await asyncio.to_thread(checked, file_of(tmp_path))
    assert [item.text for item in items] == [REMOVED] * 8
    assert await seen(memory) == []
    (written,) = await memory.remember(WHERE, [asked(4, "接着说")])
    assert written.n == 8


async def test_the_summaries_that_may_tell_of_it_go_and_the_others_stay(memory: Memory, tmp_path: Path) -> None:
    await talk(memory)
    versions = [
        Summary(text=f"独角兽到{n}" if n > 1 else "打过招呼", id=f"s{n}", epoch=0, through=n, at=AT) for n in (1, 5, 7)
    ]
    raw = b"".join(map(write_summary, versions)).decode()
    await asyncio.to_thread(put, file_of(tmp_path, "archives"), raw)
    await asyncio.to_thread(put, file_of(tmp_path, "archives").with_name(f"{WHERE.file_name}~"), "独角兽")
    for kind in ("torn-1", "edited-1", "archive-damaged-1"):
        await asyncio.to_thread(put, tmp_path / "quarantine" / ZHANG / f"{WHERE.file_name}.{kind}", "独角兽")
    other = tmp_path / "quarantine" / ZHANG / f"{conversation(agent='job-agent').file_name}.torn-1"
    await asyncio.to_thread(put, other, "别处")
    assert await memory.summarised([WHERE, conversation(agent="job-agent")]) == {WHERE}
    struck, _ = await memory.forget_turn(WHERE, "q2")
    assert struck == Struck(turns=4, summaries=2, originals=4)
    assert "独角兽".encode() not in await left(tmp_path)
    assert await asyncio.to_thread(other.read_text) == "别处"
    window = await memory.window(WHERE, SETTINGS, question=None, room=8000, weigh=len)
    assert window.summary is not None
    assert window.summary.text == "打过招呼"


async def test_a_summary_made_of_it_comes_too_late_and_the_next_one_does_without(
    memory: Memory, tmp_path: Path
) -> None:
    await talk(memory)
    small, often = (
        WindowSettings(max_messages=2, keep_recent=1),
        SummarySettings(after_turns=1, every_messages=2, keep=1),
    )
    draft = await memory.draft(WHERE, small, often, room=8000, weigh=len)
    assert draft is not None
    await memory.forget_turn(WHERE, "q2")
    late = Summary(text="独角兽", id="s", epoch=0, through=6, at=AT)
    with pytest.raises(Forgotten):
        await memory.archive(WHERE, late, after=None, generation=draft.generation)
    assert "独角兽".encode() not in await left(tmp_path)
    draft = await memory.draft(WHERE, small, often, room=8000, weigh=len)
    assert draft is not None
    assert [turn.text for turn in draft.turns if not turn.removed] == [
        "大家好呀，我来了",
        "你好",
        "说说凤凰吧",
        "凤凰好",
    ]


@pytest.mark.parametrize(
    "late",
    [
        answered(2, "独角兽！"),
        asked(2, "独角兽？"),
        Turn(role=Role.TOOL, text="独角兽", id="x", at=AT, to="q2", call="c"),
    ],
)
async def test_what_answers_it_later_is_refused_and_what_waits_beside_it_is_not(
    memory: Memory, tmp_path: Path, late: Turn
) -> None:
    await memory.remember(WHERE, [asked(2, "独角兽"), answered(1, "好")])
    await memory.forget_turn(WHERE, "q2")
    with pytest.raises(Forgotten):
        await memory.remember(WHERE, [late])
    await memory.remember(conversation(agent="job-agent"), [asked(2, "凤凰")])
    assert [turn.text for turn in await memory.history(WHERE, None, 9)] == [REMOVED, "好"]
    assert "独角兽".encode() not in await left(tmp_path)


async def test_an_answer_that_waits_in_its_thread_leaves_nothing(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, reached, go_on = memory._store.appender.appending, threading.Event(), threading.Event()

    def slow(where: ConversationId, turns: Sequence[Turn], *, wait: bool) -> Steps[list[Turn]]:
        reached.set()
        assert go_on.wait(30)
        return (yield from append(where, turns, wait=wait))

    await memory.remember(WHERE, [asked(2, "独角兽")])
    monkeypatch.setattr(memory._store.appender, "appending", slow)
    writing = asyncio.create_task(memory.remember(WHERE, [answered(2, "独角兽！")]))
    assert await asyncio.to_thread(reached.wait, 30)
    forgetting = asyncio.create_task(memory.forget_turn(WHERE, "q2"))
    await asyncio.sleep(0.02)
    assert not forgetting.done(), "what is being written is waited for"
    go_on.set()
    await writing
    struck, _ = await forgetting
    assert struck.turns == 2
    assert "独角兽".encode() not in await left(tmp_path)


@pytest.mark.parametrize("seed", range(4))
async def test_however_talking_and_forgetting_meet(memory: Memory, tmp_path: Path, seed: int) -> None:
    chance, there = random.Random(seed), [asyncio.Event() for _ in range(12)]

    async def turn(number: int) -> None:
        secret = number % 3 == 0
        text = f"{'独角兽' if secret else '凤凰'}{number}"
        await memory.remember(WHERE, [asked(number, text)])
        there[number].set()
        await asyncio.sleep(chance.choice((0, 0.001, 0.003)))
        try:
            await memory.remember(WHERE, [answered(number, text)])
        except Forgotten:
            assert secret

    async def forgets(number: int) -> None:
        await there[number].wait()
        await asyncio.sleep(chance.choice((0, 0.001, 0.003)))
        await memory.forget_turn(WHERE, f"q{number}")

    await asyncio.gather(*map(turn, range(12)), *map(forgets, range(0, 12, 3)))
    raw = await left(tmp_path)
    assert "独角兽".encode() not in raw
    assert raw.count("凤凰".encode()) == 16
    await asyncio.to_thread(checked, file_of(tmp_path))


async def test_what_waits_for_its_file_is_dropped(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.remember(WHERE, [asked(1, "凤凰")])
    append = memory._store.appender.appending

    def full(*_: object, wait: bool) -> list[Turn]:
        raise StoreFull("磁盘已满")

    monkeypatch.setattr(memory._store.appender, "appending", full)
    await memory.remember(WHERE, [answered(1, "凤凰好"), asked(2, "独角兽"), answered(2, "独角兽！")])
    assert await memory.question(WHERE, "q2") is not None
    assert await memory.forget_turn(WHERE, "q2") == (Struck(), True)
    assert [turn.text for turn in await memory.history(WHERE, None, 9)] == ["凤凰", "凤凰好"]
    monkeypatch.setattr(memory._store.appender, "appending", append)
    await memory.remember(WHERE, [asked(3, "接着说")])
    assert [turn.text for turn in await memory.history(WHERE, None, 9)] == ["凤凰", "凤凰好", "接着说"]
    assert memory.files_well()


async def test_what_a_person_wrote_by_hand_is_forgotten_too(memory: Memory, tmp_path: Path) -> None:
    await talk(memory)

    def write() -> None:
        with file_of(tmp_path).open("a", encoding="utf-8") as file:
            file.write("- user: |\n    手写的独角兽\n- assistant: |\n    手写的回答，独角兽\n")

    await asyncio.to_thread(write)
    written = (await memory.history(WHERE, None, 2))[0]
    struck, _ = await memory.forget_turn(WHERE, written.id)
    assert struck.turns == 2
    await memory.forget_turn(WHERE, "q2")
    assert "独角兽".encode() not in await left(tmp_path)
    items = await asyncio.to_thread(checked, file_of(tmp_path))
    assert [item.text for item in items][-4:] == ["说说凤凰吧", "凤凰好", REMOVED, REMOVED]


async def test_broken_off_it_is_still_there_and_asking_again_removes_the_rest(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(memory)
    await memory.archive(WHERE, Summary(text="独角兽", id="s", epoch=0, through=5, at=AT), after=None)

    def full(*_: object) -> int:
        raise StoreFull("磁盘已满")

    with monkeypatch.context() as patch:
        patch.setattr("memory.restoring.replaced", full)
        with pytest.raises(StoreFull):
            await memory.forget_turn(WHERE, "q2")
    assert [turn.removed for turn in await memory.history(WHERE, None, 9)] == [False] * 8
    with monkeypatch.context() as patch:
        patch.setattr(SummaryArchive, "drop", full)
        with pytest.raises(StoreFull):
            await memory.forget_turn(WHERE, "q2")
    assert (await memory.forget_turn(WHERE, "q2"))[0].turns == 4
    assert "独角兽".encode() not in await left(tmp_path)


async def test_a_question_is_found_wherever_it_stands(memory: Memory) -> None:
    await talk(memory)
    found = await memory.question(WHERE, "q2")
    assert found is not None
    assert (found.n, found.ids) == (2, ("q2", "q2b"))
    for id in ("t", "q2b", "q9", ""):
        assert await memory.question(WHERE, id) is None
    assert await memory.question(conversation(agent="job-agent"), "q2") is None
