"""What is kept of a file is what a fresh reader sees, whatever was done to the file, by us or by others."""

import asyncio
import fcntl
import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import appending, conversation_file, recent
from memory.appending import Appender
from memory.conversation import ConversationId, Role, Turn
from memory.conversation_file import path_of
from memory.recent import Recent
from memory.steps import Steps
from memory.store import ConversationStore
from memory.tail import Backwards
from memory.yamlform import write_item

ONE = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
AT = "2026-11-30T08:00:00.000+08:00"


def question(n: int) -> Turn:
    return Turn(role=Role.USER, text=f"问{n}", id=f"q{n}", at=AT)


def answer(n: int, text: str = "答") -> Turn:
    return Turn(role=Role.ASSISTANT, text=f"{text}{n}", id=f"{text}{n}", to=f"q{n}", at=AT)


def fresh(workspace: Path) -> list[Turn]:
    """What one sees who reads the file itself."""
    try:
        fd = os.open(workspace / path_of(ONE), os.O_RDONLY)
    except FileNotFoundError:
        return []
    with Backwards(fd) as tail:
        return list(tail)


def kept(store: ConversationStore, most: int | None = None) -> list[Turn]:
    with store.backwards(ONE) as tail:
        return [turn for _, turn in zip(range(10**6 if most is None else most), tail, strict=False)]


STEPS = st.lists(
    st.sampled_from(["ask", "answer", "again", "reset", "some", "all", "other", "torn", "replaced", "gone", "by hand"]),
    max_size=25,
)


def touched_by_others(step: str, path: Path, number: int) -> None:
    data = path.read_bytes()
    if step == "torn":
        path.write_bytes(data[:-5])
    elif step == "replaced":
        path.with_suffix(".new").write_bytes(data + write_item(question(2000 + number)))
        path.with_suffix(".new").rename(path)
    elif step == "gone":
        path.unlink()
    else:
        path.write_bytes(data + "- user: 手写\n".encode())


@given(STEPS)
def test_kept_is_what_a_fresh_reader_sees(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        store = ConversationStore(workspace, durability="none")
        path = workspace / path_of(ONE)
        n = 0
        for number, step in enumerate(steps):
            if step == "ask":
                n += 1
                store.appender.append(ONE, [question(n)])
            elif step == "answer":
                store.appender.append(ONE, [answer(n)])
            elif step == "again":
                store.appender.append(ONE, [answer(n, "另答")])
            elif step == "reset":
                store.appender.append(ONE, [Turn(role=Role.RESET, text="new", id=f"r{number}", at=AT)])
            elif step == "some":
                assert kept(store, 3) == fresh(workspace)[:3]
            elif step == "all":
                assert kept(store) == fresh(workspace)
            elif step == "other":
                Appender(workspace, sync=False).append(ONE, [question(1000 + number)])
            elif path.exists():
                touched_by_others(step, path, number)
        assert kept(store) == fresh(workspace)
        assert kept(store) == fresh(workspace)


def test_a_file_nobody_touched_is_not_read_again(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path, durability="none")
    for n in range(5):
        store.appender.append(ONE, [question(n), answer(n)])
    whole = kept(store)
    store._open = lambda _: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert kept(store) == whole
    assert len(whole) == 10


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    """Neither to read nor to write: the elsewhere stays as it is."""
    store = ConversationStore(tmp_path / "workspace", durability="none")
    store.appender.append(ONE, [question(1)])
    kept(store)
    folder = (tmp_path / "workspace" / path_of(ONE)).parent
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    other = elsewhere / ONE.file_name
    content = other.read_bytes()
    other.with_suffix(".copy").write_bytes(content)
    other.with_suffix(".copy").rename(other)  # another inode behind the linked folder
    folder.symlink_to(elsewhere)
    for work in (lambda: store.appender.append(ONE, [question(2)]), lambda: kept(store)):
        try:
            work()
        except Exception as error:
            assert "chat-feishu" in str(error)  # noqa: PT017
        else:
            raise AssertionError("followed")
    assert other.read_bytes() == content


def test_the_bounds(tmp_path: Path) -> None:
    some = Recent()
    turns = [question(n) for n in range(recent.MOST_TURNS + 10)]
    some.put(ONE, (1, 1, 1, 1), turns, whole=True)
    found = some.get(ONE)
    assert found is not None
    assert (len(found.turns), found.whole) == (recent.MOST_TURNS, False)
    for n in range(recent.MOST_CONVERSATIONS + 5):
        some.put(ONE.lane.with_agent(f"agent-{n}"), (1, 1, 1, 1), turns[:1], whole=True)
    assert len(some._kept) == recent.MOST_CONVERSATIONS
    large = [Turn(role=Role.USER, text="大" * (recent.MOST_CHARACTERS // 2), id="x", at=AT)]
    for n in range(3):
        some.put(ONE.lane.with_agent(f"large-{n}"), (1, 1, 1, 1), large, whole=True)
    assert some._characters == sum(each.characters for each in some._kept.values()) <= recent.MOST_CHARACTERS
    some.clear()
    assert (some._characters, some.get(ONE)) == (0, None)


def test_what_somebody_wrote_at_the_same_moment_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor takes no lock: the stamp after our write is not that of what we know."""
    store = ConversationStore(tmp_path, durability="none")
    path, real = tmp_path / path_of(ONE), conversation_file.write_once

    def crossed(fd: int, data: bytes, size: int, *, sync: bool) -> Steps[None]:
        yield from real(fd, data, size, sync=sync)
        with path.open("ab") as file:
            file.write("- user: 手写\n".encode())

    for n in range(3):
        if n:
            for module in (appending, conversation_file):
                monkeypatch.setattr(module, "write_once", crossed)
        store.appender.append(ONE, [question(n)])
        monkeypatch.undo()
        assert kept(store) == fresh(tmp_path)
    store.appender.append(ONE, [question(9)])
    turns = store.full(ONE)
    assert [turn.n for turn in turns] == list(range(len(turns))), "what was written by hand was adopted"


async def test_a_file_or_folder_that_is_held_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Whatever is locked by another process, or being rewritten, waits in threads of its own; its own order stays."""
    store = ConversationStore(tmp_path, durability="none")
    others = [ConversationId.parse(f"uabcdefghijk{n}:web:b759cea3338c:0:general-agent") for n in (2, 3, 4)]
    for each in (ONE, *others):
        await store.append(each, [question(1)])
    with (tmp_path / path_of(ONE)).open("rb") as file, store.generations.alone(others[0].lane.user):
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = [asyncio.create_task(store.append(each, [question(n)])) for each in (ONE, others[0]) for n in (2, 3)]
        await asyncio.sleep(0.05)
        for n in range(2, 5):
            await asyncio.wait_for(store.append(others[1], [question(n)]), 30)
            await asyncio.wait_for(store.append(others[2], [question(n)]), 30)
        assert not any(task.done() for task in waiting)
        fcntl.flock(file, fcntl.LOCK_UN)
    await asyncio.gather(*waiting)
    for each in (ONE, others[0]):
        assert [turn.id for turn in await asyncio.to_thread(store.full, each)] == ["q1", "q2", "q3"]
    await store.close()


async def test_who_gives_up_lets_nobody_overtake_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go_on, real = ConversationStore(tmp_path, durability="none"), threading.Event(), conversation_file.write_once

    def slow(fd: int, data: bytes, size: int, *, sync: bool) -> Steps[None]:
        assert go_on.wait(30)
        yield from real(fd, data, size, sync=sync)

    await store.append(ONE, [question(1)])
    monkeypatch.setattr(appending, "write_once", slow)
    first = asyncio.create_task(store.append(ONE, [question(2)]))
    await asyncio.sleep(0.02)
    first.cancel()
    second = asyncio.create_task(store.append(ONE, [question(3)]))
    await asyncio.sleep(0.02)
    go_on.set()
    await second
    assert [turn.id for turn in await asyncio.to_thread(store.full, ONE)] == ["q1", "q2", "q3"]
    await store.close()


def test_what_is_kept_weighs_what_its_turns_weigh(tmp_path: Path) -> None:
    some = Recent()
    some.put(ONE, (1, 1, 1, 1), [question(n) for n in range(recent.MOST_TURNS - 3)], whole=True)
    for n in range(8):
        some.appended(ONE, (1, 1 + n, 1, 1), (1, 2 + n, 1, 1), [replace(question(1000 + n), text="新" * n)])
        found = some.get(ONE)
        assert found is not None
        assert found.characters == sum(map(recent._weight, found.turns)) == some._characters
    assert (len(found.turns), found.whole) == (recent.MOST_TURNS, False)


@pytest.mark.parametrize("known", [True, False])
async def test_a_file_that_is_replaced_while_it_is_put_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """An editor saves, by renaming, between our write and its end."""
    store = ConversationStore(tmp_path)
    await store.append(ONE, [question(1)])
    if not known:
        await store.close()
        store = ConversationStore(tmp_path)
    path, real = tmp_path / path_of(ONE), os.fdatasync
    saved = path.read_bytes()

    def replaced(fd: int) -> None:
        monkeypatch.undo()
        path.with_suffix(".tmp").write_bytes(saved)
        path.with_suffix(".tmp").rename(path)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", replaced)
    assert [turn.id for turn in await store.append(ONE, [question(2)])] == ["q2"]
    assert [turn.id for turn in await asyncio.to_thread(store.full, ONE)] == ["q1", "q2"]
    await store.close()
