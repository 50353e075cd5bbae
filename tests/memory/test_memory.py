"""The one door: what the gateway gets of the past, over real files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from memory import tail
from memory.conversation import Turn
from memory.errors import StoreUnavailable
from memory.memory import Memory
from memory.window import Window, WindowSettings
from tests.memory.pool import AT, CONVERSATION, OTHER, answer, reset, user

SETTINGS = WindowSettings()
ROOM = 100_000


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    memory = Memory(tmp_path)
    yield memory
    await memory.close()


def talk(count: int, first: int = 0) -> list[Turn]:
    """`count` rounds about nothing in particular."""
    rounds = range(first, first + count)
    return [t for i in rounds for t in (user(f"q{i}", f"第{i}个问题"), answer(f"a{i}", f"q{i}", f"第{i}个回答"))]


def said(window: Window) -> list[str]:
    return [message.content for message in window.messages]


async def test_the_window_ends_before_the_question(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(2))
    (question,) = await memory.remember(CONVERSATION, [user("q", "现在的问题")])
    window = await memory.window(CONVERSATION, SETTINGS, question=question, room=ROOM)
    assert said(window) == ["第0个问题", "第0个回答", "第1个问题", "第1个回答"]
    assert window.question_tokens > 0
    assert window.not_read_before is None


async def test_a_question_asked_again_after_a_restart(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(1))
    await memory.remember(CONVERSATION, [user("q", "停机前的问题", ids=("p", "q"))])
    await memory.remember(CONVERSATION, talk(2, first=1))
    for id in ("q", "p"):
        question = user(id, "停机前的问题")
        window = await memory.window(CONVERSATION, SETTINGS, question=question, room=ROOM)
        assert said(window) == ["第0个问题", "第0个回答"]


async def test_a_question_that_is_not_in_the_file(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(1))
    for question in (user("q"), None):
        window = await memory.window(CONVERSATION, SETTINGS, question=question, room=ROOM)
        assert said(window) == ["第0个问题", "第0个回答"]


async def test_no_file_gives_an_empty_window(memory: Memory) -> None:
    window = await memory.window(CONVERSATION, SETTINGS, question=None, room=ROOM)
    assert (window.messages, window.dropped, window.not_read_before) == ((), (), None)


async def test_a_reset_ends_the_window(memory: Memory, tmp_path: Path) -> None:
    await memory.reset(CONVERSATION, "r0", AT)
    assert await memory.info(CONVERSATION) is None, "nothing to end"
    await memory.remember(CONVERSATION, talk(1))
    await memory.reset(CONVERSATION, "r1", AT)
    await memory.reset(CONVERSATION, "r2", AT)
    await memory.remember(CONVERSATION, talk(1, first=1))
    window = await memory.window(CONVERSATION, SETTINGS, question=None, room=ROOM)
    assert said(window) == ["第1个问题", "第1个回答"]
    assert window.not_read_before is None
    path = tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
    assert [item.get("reset") for item in yaml.safe_load(path.read_bytes())] == [None, None, "new", None, None]


async def test_limits_of_reading_are_told(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MAX_ITEMS", 9)
    await memory.remember(CONVERSATION, talk(10))
    memory._store.recent.clear()  # what is kept reaches further back
    window = await memory.window(CONVERSATION, SETTINGS, question=None, room=ROOM)
    assert said(window)[0] == "第6个问题"
    assert window.not_read_before == "a5"
    await memory.remember(CONVERSATION, [reset("r"), *talk(4, first=10)])
    window = await memory.window(CONVERSATION, SETTINGS, question=None, room=ROOM)
    assert (said(window)[0], window.not_read_before) == ("第10个问题", None), "the reset was the last one read"


async def test_a_full_window_stops_reading(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(100))
    window = await memory.window(CONVERSATION, SETTINGS, question=None, room=ROOM)
    assert len(window.messages) < SETTINGS.max_messages
    assert window.not_read_before is not None
    assert len(window.dropped) < 10


async def test_answers_and_pages(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(30))
    assert [turn.id for turn in await memory.answer_to(CONVERSATION, "q29")] == ["a29"]
    assert [turn.id for turn in await memory.history(CONVERSATION, None, 2)] == ["q29", "a29"]
    assert [turn.n for turn in await memory.history(CONVERSATION, 5, 2)] == [3, 4]


async def test_listing(memory: Memory) -> None:
    await memory.remember(CONVERSATION, talk(1))
    await memory.remember(OTHER, talk(2))
    assert set(await memory.files_of(CONVERSATION.lane)) == {CONVERSATION, OTHER}
    assert {info.id: info.turns for info in await memory.scan()} == {CONVERSATION: 2, OTHER: 4}
    await memory.reset(OTHER, "r1", AT)
    await memory.remember(OTHER, talk(3)[4:])
    assert {info.id: info.turns for info in await memory.scan()} == {CONVERSATION: 2, OTHER: 6}, "turns, not marks"


async def test_another_process_goes_on(tmp_path: Path) -> None:
    first = Memory(tmp_path)
    await first.remember(CONVERSATION, [user("q1", "我叫张三"), answer("a1", "q1")])
    await first.close()
    second = Memory(tmp_path, durability="batch")
    (turn,) = await second.remember(CONVERSATION, [user("q1", "我叫张三"), user("q2", "我叫什么？")])
    assert (turn.id, turn.n) == ("q2", 2)
    window = await second.window(CONVERSATION, SETTINGS, question=turn, room=ROOM)
    assert said(window)[0] == "我叫张三"
    await second.close()
    with pytest.raises(StoreUnavailable):
        await second.window(CONVERSATION, SETTINGS, question=turn, room=ROOM)


async def test_errors_of_files_are_typed(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
    path.mkdir(parents=True)
    for reading in (memory.history(CONVERSATION, None, 5), memory.info(CONVERSATION)):
        with pytest.raises(StoreUnavailable, match=CONVERSATION.file_name):
            await reading
