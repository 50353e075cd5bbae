"""The conversation files on a real disk: appends, damage, people's edits, reading from the end, several writers."""

import asyncio
import errno
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from memory import appending, conversation_file, folder, tail
from memory.conversation import ConversationId, Role, ToolCall, Turn
from memory.ending import as_bytes
from memory.errors import StoreBusy, StoreFull, StoreUnavailable
from memory.store import ConversationStore
from memory.tail import REPEAT_WITHIN, Backwards, whole
from memory.yamlform import split, write_item
from tests.memory.pool import AT, CONVERSATION, NASTY, OTHER, TURNS, answer, examples, reset, turn, user


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ConversationStore]:
    store = ConversationStore(tmp_path)
    yield store
    await store.close()


def path_in(workspace: Path, conversation: ConversationId = CONVERSATION) -> Path:
    return workspace / "conversations" / conversation.lane.user / conversation.file_name


def put(workspace: Path, raw: bytes) -> Path:
    """Writes the file as someone else would."""
    path = path_in(workspace)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def numbered(turns: list[Turn]) -> list[Turn]:
    epoch, found = 0, []
    for n, plain in enumerate(turns):
        epoch += plain.role is Role.RESET
        found.append(replace(plain, n=n, epoch=epoch))
    return found


def kept(workspace: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((workspace / "quarantine").rglob("*")) if path.is_file()]


def items(path: Path) -> list[dict[str, object]]:
    """A full parse as anyone would do it, after checking that every item is whole and numbered."""
    raw = path.read_bytes()
    found: list[dict[str, object]] = yaml.load(raw.decode(), yaml.CSafeLoader)
    turns = [piece.turn for offset, item in split(raw) if (piece := tail._piece(offset, item)).ours]
    assert len(turns) == len(found)
    assert numbered([turn for turn in turns if turn]) == turns
    return found


def backwards(raw: bytes, *, limited: bool = True) -> tuple[list[Turn], bool]:
    """What a reader from the end gives, in the file's order, and whether it met its limits."""
    fd = os.memfd_create("conversation")
    os.write(fd, raw)
    with Backwards(fd, limited=limited) as turns:
        found = list(turns)
        return found[::-1], turns.capped


# ---- appending


async def test_appended_turns_are_numbered_and_stored(store: ConversationStore, tmp_path: Path) -> None:
    given = [user("q1", "你好"), answer("a1", "q1"), reset("r"), user("q2", "a\n\n")]
    first = await store.append(CONVERSATION, given[:2])
    rest = await store.append(CONVERSATION, given[2:])
    assert first + rest == numbered(given) == store.full(CONVERSATION)
    assert [turn.epoch for turn in rest] == [1, 1]
    assert path_in(tmp_path).read_bytes() == as_bytes(first + rest)
    assert items(path_in(tmp_path))[0]["user"] == "你好"


async def test_folders_and_files_are_private(store: ConversationStore, tmp_path: Path) -> None:
    await store.append(CONVERSATION, [user("q")])
    path = path_in(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(above.stat().st_mode) for above in (path.parent, path.parent.parent)} == {0o700}


async def test_known_ids_are_not_appended_again(store: ConversationStore, tmp_path: Path) -> None:
    given = [user("q1", ids=("q1", "q0")), answer("a1", "q1"), reset("r1")]
    await store.append(CONVERSATION, given)
    assert await store.append(CONVERSATION, given) == []
    assert await store.append(CONVERSATION, [user("q0", "merged before"), user("q2"), user("q2")]) == [
        replace(user("q2"), n=3, epoch=1)
    ]
    again = ConversationStore(tmp_path)
    assert await again.append(CONVERSATION, [*given, user("q0"), user("q2")]) == []
    await again.close()
    assert len(items(path_in(tmp_path))) == 4


async def test_half_characters_are_replaced(store: ConversationStore, tmp_path: Path) -> None:
    call = ToolCall("c\ud83d", "f", '"\ud83d"')
    (written, *_) = await store.append(
        CONVERSATION, [user("q\ud83d", "简历\ud83d怎么改", name="\udc00"), answer("a", "q\ud83d", tool_calls=(call,))]
    )
    assert (written.text, written.id, written.name) == ("简历\ufffd怎么改", "q\ufffd", "\ufffd")
    assert await store.append(CONVERSATION, [user("q\ud83d")]) == []
    assert store.full(CONVERSATION)[1].tool_calls == (ToolCall("c\ufffd", "f", '"\ufffd"'),)
    assert len(items(path_in(tmp_path))) == 2


async def test_an_append_reads_nothing_until_someone_else_writes(
    store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = appending.inspect
    monkeypatch.setattr(appending, "inspect", lambda fd, size: reads.append(size) or real(fd, size))
    for i in range(5):
        await store.append(CONVERSATION, [user(f"q{i}")])
    assert reads == []
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes() + write_item(user("other", n=5, epoch=0)))
    (turn,) = await store.append(CONVERSATION, [user("q6")])
    assert (turn.n, len(reads)) == (6, 1)
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    (turn,) = await store.append(CONVERSATION, [user("q7")])
    assert (turn.n, len(reads)) == (7, 2), "an editor replaced the file"
    assert len(items(path)) == 8


def test_remembered_ends_are_bounded(tmp_path: Path) -> None:
    appender = appending.Appender(tmp_path, sync=False, remembered=2)
    for agent in "abcd":
        appender.append(CONVERSATION.lane.with_agent(agent), [user("q")])
    assert [conversation.agent for conversation in appender._states] == ["c", "d"]
    assert appender.append(CONVERSATION.lane.with_agent("a"), [user("q"), user("r")])[0].n == 1


@pytest.mark.parametrize("durability", ["sync", "batch", "none"])
async def test_durability(tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(appending.os, "fdatasync", synced.append)
    store = ConversationStore(tmp_path, durability=durability)
    await store.append(CONVERSATION, [user("q1")])
    at_once = len(synced)
    await store.append(CONVERSATION, [user("q2")])
    await store.append(OTHER, [user("q3")])
    await store.close()
    assert (at_once, len(synced)) == {"sync": (1, 3), "batch": (0, 2), "none": (0, 0)}[durability]


async def test_batches_reach_the_disk_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(appending.os, "fdatasync", lambda fd: loop.call_soon_threadsafe(done.set))
    store = ConversationStore(tmp_path, durability="batch")
    await store.append(CONVERSATION, [user("q1")])
    await asyncio.wait_for(done.wait(), 30)
    await store.close()


def test_unknown_durability(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="durability"):
        ConversationStore(tmp_path, durability="maybe")


async def test_closed(store: ConversationStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="已关闭"):
        await store.append(CONVERSATION, [user("q")])


async def test_a_cancelled_append_is_whole_or_absent(store: ConversationStore, tmp_path: Path) -> None:
    tasks = [asyncio.create_task(store.append(CONVERSATION, [user(f"q{i}", "长" * 2000)])) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.append(CONVERSATION, [user("last")])
    found = [item["meta"]["id"] for item in items(path_in(tmp_path))]  # type: ignore[index]
    assert {f"q{i}" for i in range(1, 20, 2)} <= set(found)
    assert found[-1] == "last"


# ---- a disk that fails


async def test_a_full_disk_leaves_the_file_as_it_was(
    store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append(CONVERSATION, [user("q1")])
    before = path_in(tmp_path).read_bytes()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(appending.os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        for conversation in (CONVERSATION, OTHER):
            with pytest.raises(StoreFull, match=r"磁盘.*chat-feishu.*清理"):
                await store.append(conversation, [user("q2", "长" * 100)])
    assert path_in(tmp_path).read_bytes() == before
    assert not path_in(tmp_path, OTHER).exists(), "no empty file stays"
    assert [turn.n for turn in await store.append(CONVERSATION, [user("q2")])] == [1]
    assert len(items(path_in(tmp_path))) == 2


@pytest.mark.parametrize("fault", [(errno.ENOSPC, StoreFull), (errno.EIO, StoreUnavailable)], ids=["full", "broken"])
@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_a_failing_disk(
    store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: tuple[int, type]
) -> None:
    number, kind = fault
    await store.append(CONVERSATION, [user("q1")])
    before = path_in(tmp_path).read_bytes()

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(appending.os, call, fail)
        with pytest.raises(kind):
            await store.append(CONVERSATION, [user("q2")])
    assert path_in(tmp_path).read_bytes() == before


@pytest.mark.parametrize("raw", [b"- user: hi\n", b"\0" * 99, write_item(user("q", n=0, epoch=0)) + b"- us"])
async def test_nothing_is_mended_that_cannot_be_kept(
    store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    path = put(tmp_path, raw)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(folder.os, "write", full)
        with pytest.raises(StoreFull):
            await store.append(CONVERSATION, [user("new")])
    assert path.read_bytes() == raw
    assert kept(tmp_path) == []
    await store.append(CONVERSATION, [user("new")])
    assert len(kept(tmp_path)) == 1


async def test_links_are_refused(store: ConversationStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    path = put(tmp_path, b"")
    path.unlink()
    path.symlink_to(outside)
    for work in (
        store.append(CONVERSATION, [user("q")]),
        store.history(CONVERSATION, None, 5),
        store.info(CONVERSATION),
    ):
        with pytest.raises(StoreUnavailable):
            await work
    assert outside.read_text() == "secret"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreUnavailable):
        await store.append(CONVERSATION, [user("q")])


async def test_a_linked_folder_is_refused(store: ConversationStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "conversations").mkdir()
    (tmp_path / "conversations" / CONVERSATION.lane.user).symlink_to(elsewhere)
    with pytest.raises(StoreUnavailable):
        await store.append(CONVERSATION, [user("q")])
    assert list(elsewhere.iterdir()) == []
    assert await store.scan() == []


async def test_nothing_leaves_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    store = ConversationStore(workspace)
    await store.append(CONVERSATION, [user(text) for text in NASTY if text])
    put(workspace, b"\0" * 100)
    await store.append(CONVERSATION, [user("../../x")])
    await store.close()
    assert os.listdir(tmp_path) == ["workspace"]
    assert set(os.listdir(workspace)) == {"conversations", "quarantine"}


# ---- damage


@pytest.mark.parametrize("raw", [b"\0" * 4096, b"just: a mapping\n", b"- null\n", b"[]\n", b"- us", b"\xff\xfe\0"])
async def test_no_conversation_goes_aside(
    store: ConversationStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    path = put(tmp_path, raw)
    assert await store.history(CONVERSATION, None, 10) == []
    with caplog.at_level(logging.WARNING, "sanqiao.memory"):
        (turn,) = await store.append(CONVERSATION, [user("q")])
    assert turn.n == 0
    assert len(items(path)) == 1
    assert kept(tmp_path) == [raw]
    assert [path.name in record.getMessage() for record in caplog.records] == [True]


async def test_an_empty_file_is_taken_over(
    store: ConversationStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path, b"")
    with caplog.at_level(logging.WARNING, "sanqiao.memory"):
        await store.append(CONVERSATION, [user("q")])
    assert len(items(path)) == 1
    assert [path.name in record.getMessage() for record in caplog.records] == [True]


@examples(300)
@given(TURNS, st.data())
def test_cut_anywhere_only_the_torn_item_is_missing(
    tmp_path_factory: pytest.TempPathFactory, turns: list[Turn], data: st.DataObject
) -> None:
    workspace = tmp_path_factory.mktemp("cut")
    turns = numbered(turns)
    answering = (Role.ASSISTANT, Role.TOOL)
    turns = [replace(t, id=f"{t.n}-{t.id}", to=f"q{t.n}" if t.role in answering else None, ids=()) for t in turns]
    parts = [write_item(turn) for turn in turns]
    cut = data.draw(st.integers(1, sum(map(len, parts))))
    raw = b"".join(parts)[:cut]
    left, end = 0, 0
    while left < len(parts) and end + len(parts[left]) - 1 <= cut:  # only a line feed may be missing
        end += len(parts[left])
        left += 1
    rest = raw[end:]
    filled = data.draw(st.sampled_from([0, 0, 7, 4096, 40_000]))
    if not filled and rest.startswith(b"- user: |\n") and rest.endswith(b"\n"):
        return  # a person may have written it (see yamlform.torn)
    put(workspace, raw + b"\0" * filled)
    assert whole(raw + b"\0" * filled) == turns[:left]
    assert backwards(raw + b"\0" * filled) == (turns[:left], False)
    appender = appending.Appender(workspace, sync=False)
    (new,) = appender.append(CONVERSATION, [user("new")])
    assert new.n == left
    assert path_in(workspace).read_bytes() == b"".join([*parts[:left], write_item(new)])
    if rest:
        assert any(rest in raw for raw in kept(workspace)), "what was cut off is kept"


async def test_a_torn_tail_is_logged_with_its_file(
    store: ConversationStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store.append(CONVERSATION, [user("q1"), answer("a1", "q1", "秘密")])
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING, "sanqiao.memory"):
        await store.append(CONVERSATION, [answer("a1", "q1", "秘密")])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("file_torn path=conversations/")
    assert "秘密" not in line
    assert [item["meta"]["id"] for item in items(path)] == ["q1", "a1"]  # type: ignore[index]


async def test_damage_in_the_middle_costs_no_neighbour(store: ConversationStore, tmp_path: Path) -> None:
    parts = [write_item(turn) for turn in numbered([user(f"q{i}") for i in range(5)])]
    damaged = b"- user: |-\n    a\0\0\0\nfoo: [\n"
    path = put(tmp_path, b"".join([*parts[:2], damaged, *parts[2:4], b"\x07garbage\n", parts[4]]))
    ids = [f"q{i}" for i in range(5)]
    assert [turn.id for turn in await store.history(CONVERSATION, None, 10)] == ids
    assert [turn.id for turn in store.full(CONVERSATION)] == ids
    await store.append(CONVERSATION, [user("new")])
    assert [item["meta"]["id"] for item in items(path)] == [*ids, "new"]  # type: ignore[index]
    assert damaged in kept(tmp_path)[0]


async def test_one_bad_file_harms_no_other(store: ConversationStore, tmp_path: Path) -> None:
    await store.append(OTHER, [user("q")])
    put(tmp_path, b"\0" * 9)
    assert [info.turns for info in await store.scan()] == [1, 0]


# ---- people's edits

HAND = (
    "\ufeff# 我改的\r\n- user: |\r\n    我叫手工\r\n- assistant: 你好\r\n- user: off\r\n- reset: new\r\n- user: 0123\r\n"
    "- user: !!python/object/apply:os.system ['touch pwned']\r\n- assistant: 尾\r\n"
)
SAID = ["我叫手工", "你好", "off", "new", "0123", "!!python/object/apply:os.system ['touch pwned']", "尾"]


async def test_a_hand_written_file_is_read_then_adopted(store: ConversationStore, tmp_path: Path) -> None:
    path = put(tmp_path, HAND.encode())
    assert [turn.text for turn in store.full(CONVERSATION)] == SAID
    assert [turn.text for turn in await store.history(CONVERSATION, None, 3)] == SAID[-3:]
    assert [turn.text for turn in await store.history(CONVERSATION, 2, 9)] == SAID[:2]
    info = await store.info(CONVERSATION)
    assert info is not None
    assert info.turns == len(SAID) - 1, "the mark of a reset is no turn"
    assert path.read_bytes() == HAND.encode(), "reading changes nothing"
    ids = [turn.id for turn in store.full(CONVERSATION)]
    (turn,) = await store.append(CONVERSATION, [user("q")])
    assert (turn.n, turn.epoch) == (len(SAID), 1)
    found = items(path)
    assert [next(iter(item.values())) for item in found] == [*SAID, "问"]
    assert [item["meta"]["id"] for item in found] == [*ids, "q"]  # type: ignore[index]
    assert found[1]["meta"]["to"] == ids[0]  # type: ignore[index]
    assert all(item["meta"]["at"] for item in found)  # type: ignore[index]
    assert kept(tmp_path) == [HAND.encode()]
    assert "pwned" not in os.listdir()
    assert os.listdir(path.parent) == [path.name], "no temporary file stays"


async def test_an_edit_while_running_is_adopted(store: ConversationStore, tmp_path: Path) -> None:
    await store.append(CONVERSATION, [user("q1", "旧"), answer("a1", "q1")])
    path = path_in(tmp_path)
    edited = path.read_bytes().replace("旧".encode(), "新".encode()) + b"- user: |\n  \n\n"
    path.write_bytes(edited)
    await store.append(CONVERSATION, [user("q2"), answer("a1", "q1")])
    assert [next(iter(item.values())) for item in items(path)] == ["新", "答", "", "问"]
    assert kept(tmp_path) == [edited]


@pytest.mark.parametrize("more", [b"\n", b"# remark\n", b"  # remark", b"\n\n"])
async def test_blank_lines_and_remarks_are_no_damage(store: ConversationStore, tmp_path: Path, more: bytes) -> None:
    await store.append(CONVERSATION, [user("q1")])
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes() + more)
    await store.append(CONVERSATION, [user("q2")])
    assert len(items(path)) == 2


async def test_a_lost_line_feed_costs_nothing(store: ConversationStore, tmp_path: Path) -> None:
    await store.append(CONVERSATION, [user("q1")])
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert [turn.id for turn in store.full(CONVERSATION)] == ["q1"]
    await store.append(CONVERSATION, [user("q2")])
    assert len(items(path)) == 2


@examples(200)
@given(
    TURNS, st.lists(st.sampled_from([b"- user: hi\n", b"\n", b"- null\n", b"\0\0", b"foo\n", b"- reset: |\n    x\n"]))
)
def test_an_adopted_file_needs_no_adopting(
    tmp_path_factory: pytest.TempPathFactory, turns: list[Turn], insertions: list[bytes]
) -> None:
    workspace = tmp_path_factory.mktemp("adopt")
    parts = [write_item(replace(turn, id=f"{turn.n}-{turn.id}")) for turn in numbered(turns)]
    for place, insertion in enumerate(insertions):
        parts.insert(min(2 * place, len(parts)), insertion)
    put(workspace, b"".join(parts))
    appending.Appender(workspace, sync=False).append(CONVERSATION, [user("new-1")])
    adopted_once = len(kept(workspace))
    appending.Appender(workspace, sync=False).append(CONVERSATION, [user("new-2")])
    assert len(kept(workspace)) == adopted_once
    assert [item["meta"]["id"] for item in items(path_in(workspace))][-2:] == ["new-1", "new-2"]  # type: ignore[index]


# ---- reading from the end


@examples(300)
@given(st.lists(turn(), max_size=12), st.data())
def test_backwards_is_forwards_the_other_way_round(turns: list[Turn], data: st.DataObject) -> None:
    few = st.sampled_from(["q1", "q2", "q3"])
    turns = [
        replace(
            turn,
            id=data.draw(few | st.just(turn.id)),
            to=data.draw(few) if turn.role in (Role.ASSISTANT, Role.TOOL) else None,
        )
        for turn in numbered(turns)
    ]
    raw = b"".join(map(write_item, turns))
    noise = data.draw(st.sampled_from([b"", b"- null\n", b"- assistant: hi\n", b"- us", b"\0\0\0", b"\n"]))
    assert backwards(raw + noise) == (whole(raw + noise), False)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_any_block_size_gives_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(tail, "BLOCK", block)
    monkeypatch.setattr(tail, "LARGEST_BLOCK", 2 * block)
    turns = numbered([user(f"q{i}", text[:50]) for i, text in enumerate(NASTY)])
    assert backwards(as_bytes(turns)) == (turns, False)
    assert backwards(as_bytes(turns) + b"\0" * 9) == (turns, False)


def test_repeats_count_once() -> None:
    turns = numbered([user("q1"), answer("a1", "q1", "first"), user("q1", "again"), answer("a2", "q1", "second")])
    assert [turn.text for turn in whole(as_bytes(turns))] == ["问", "first"]
    assert backwards(as_bytes(turns))[0] == turns[:2]


def test_a_tool_round_is_no_repeat() -> None:
    call = ToolCall("c", "f", "{}")
    result = Turn(role=Role.TOOL, text="r", id="t1", at=AT, to="q1", call="c")
    turns = numbered([user("q1"), answer("a1", "q1", tool_calls=(call,)), result, answer("a2", "q1")])
    assert whole(as_bytes(turns)) == turns == backwards(as_bytes(turns))[0]


def test_a_repeat_far_behind_counts_from_either_end() -> None:
    far = numbered([user("q1"), *(user(f"x{i}") for i in range(REPEAT_WITHIN)), user("q1")])
    near = numbered([user("q1"), *(user(f"x{i}") for i in range(REPEAT_WITHIN - 1)), user("q1")])
    assert whole(as_bytes(far)) == far == backwards(as_bytes(far))[0]
    assert whole(as_bytes(near)) == near[:-1] == backwards(as_bytes(near))[0]


def test_the_reader_knows_that_it_met_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = numbered([user(f"q{i}") for i in range(tail.MAX_ITEMS + 1)])
    assert backwards(as_bytes(turns)) == (turns[1:], True)
    assert backwards(as_bytes(turns[:-1])) == (turns[:-1], False)
    assert backwards(as_bytes(turns), limited=False) == (turns, False)
    monkeypatch.setattr(tail, "MAX_BYTES", 1000)
    found, capped = backwards(as_bytes(turns))
    assert capped
    assert found == turns[-len(found) :]
    assert len(as_bytes(found)) <= 1000


async def test_history_turns_pages(store: ConversationStore) -> None:
    await store.append(CONVERSATION, [user(f"q{i}") for i in range(25)])
    pages, before = [], None
    while page := await store.history(CONVERSATION, before, 10):
        pages.append([turn.n for turn in page])
        before = page[0].n
    assert pages == [list(range(15, 25)), list(range(5, 15)), list(range(5))]
    assert await store.history(OTHER, None, 10) == []
    assert await store.history(CONVERSATION, None, 0) == []


async def test_answers_are_found_by_their_question(store: ConversationStore) -> None:
    call = ToolCall("c", "f", "{}")
    tool = Turn(role=Role.TOOL, text="r", id="t", at=AT, to="q1", call="c")
    round_ = [answer("a1", "q1", tool_calls=(call,)), tool, answer("a2", "q1")]
    await store.append(CONVERSATION, [user("q1", ids=("q0", "q1")), *round_, user("q2")])
    assert [turn.id for turn in await store.answer_to(CONVERSATION, "q1")] == ["a1", "t", "a2"]
    assert await store.answer_to(CONVERSATION, "q2") == []
    assert await store.answer_to(CONVERSATION, "q0") == []
    assert await store.answer_to(OTHER, "q1") == []


async def test_listing(store: ConversationStore, tmp_path: Path) -> None:
    assert await store.scan() == []
    assert await store.files_of(CONVERSATION.lane) == []
    assert await store.info(CONVERSATION) is None
    await store.append(CONVERSATION, [user("q1"), answer("a1", "q1")])
    await store.append(OTHER, [user("q1")])
    group = replace(CONVERSATION.lane, group=True).with_agent("a")
    await store.append(group, [user("q1")])
    path = path_in(tmp_path)
    (path.parent / (path.name + "~")).write_text("backup")
    (tmp_path / "conversations" / "notes.txt").write_text("x")
    assert set(await store.files_of(CONVERSATION.lane)) == {CONVERSATION, OTHER}
    assert {info.id: info.turns for info in await store.scan()} == {CONVERSATION: 2, OTHER: 1, group: 1}
    info = await store.info(CONVERSATION)
    assert info is not None
    assert (info.turns, info.last, info.bytes) == (2, AT, path.stat().st_size)


# ---- cost, and several writers


def _fastest(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(30))


def test_a_long_past_costs_nothing(tmp_path: Path) -> None:
    text = "帮我看看这份简历，重点看项目经历，谢谢"
    short, long = ([write_item(user(f"q{i}", text, n=i, epoch=0)) for i in range(count)] for count in (100, 100_000))
    store = ConversationStore(tmp_path)
    (tmp_path / "conversations" / OTHER.lane.user).mkdir(parents=True)
    path_in(tmp_path, OTHER).write_bytes(b"".join(short))
    path_in(tmp_path).write_bytes(b"".join(long))

    def newest(conversation: ConversationId) -> list[Turn]:
        with store.backwards(conversation) as turns:
            return [next(turns) for _ in range(20)]

    assert newest(CONVERSATION)[0].n == 99_999
    assert _fastest(lambda: newest(CONVERSATION)) < 5 * _fastest(lambda: newest(OTHER))


async def test_many_appends_at_once(store: ConversationStore, tmp_path: Path) -> None:
    async def one(i: int) -> None:
        await store.append(CONVERSATION, [user(f"q{i}", f"题{i}")])
        await store.append(CONVERSATION, [answer(f"a{i}", f"q{i}", f"答{i}")])

    others = [CONVERSATION.lane.with_agent(f"agent-{i}") for i in range(20)]
    await asyncio.gather(*map(one, range(20)), *(store.append(other, [user("q")]) for other in others))
    found = [item["meta"]["id"] for item in items(path_in(tmp_path))]  # type: ignore[index]
    assert sorted(found) == sorted([f"q{i}" for i in range(20)] + [f"a{i}" for i in range(20)])
    assert all(len(items(path_in(tmp_path, other))) == 1 for other in others)


WRITER = """
import sys
from pathlib import Path
from memory.appending import Appender
from tests.memory.pool import CONVERSATION, user
workspace, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
appender = Appender(workspace, sync=False)
for i in range(count):
    appender.append(CONVERSATION, [user(f"{name}-{i}", "长" * (i % 7) * 1000), user(f"both-{i}", "同")])
"""


def test_two_processes_append(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name, "60"], cwd=Path(__file__).parents[2])
        for name in ("one", "two")
    ]
    assert [writer.wait(40) for writer in writers] == [0, 0]
    found = [item["meta"]["id"] for item in items(path_in(tmp_path))]  # type: ignore[index]
    expected = [f"{name}-{i}" for name in ("one", "two", "both") for i in range(60)]
    assert sorted(found) == sorted(expected), "each once, also what both wrote"
    assert all(
        found.index(f"{name}-{i}") < found.index(f"{name}-{i + 1}") for name in ("one", "two") for i in range(59)
    )


async def test_a_held_lock_is_not_waited_for_forever(
    store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_file, "LOCK_WAIT", 0.05)
    path = put(tmp_path, b"")
    with path.open("rb") as held:
        await asyncio.to_thread(appending.fcntl.flock, held, appending.fcntl.LOCK_EX)
        with pytest.raises(StoreBusy, match="另一个进程"):
            await store.append(CONVERSATION, [user("q")])
        ok = await store.append(OTHER, [user("q")])
    assert len(ok) == 1


@pytest.mark.parametrize("full", [False, True], ids=["at once", "at the second try"])
async def test_a_new_folder_is_on_the_disk_before_what_is_in_it_is_told_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Also where the one that made it could not write: whoever comes then finds it there."""
    synced, sync, write, broken = list[str](), os.fsync, os.write, [full]

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def short(fd: int, data: bytes) -> int:
        if broken.pop() if broken else False:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data)

    store = ConversationStore(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "write", short)
    if full:
        with pytest.raises(StoreFull):
            await store.append(CONVERSATION, [user("q1")])
    await store.append(CONVERSATION, [user("q1")])
    folder = tmp_path / "conversations" / CONVERSATION.lane.user
    assert {str(tmp_path), str(folder.parent), str(folder)} <= set(synced)
    await store.close()
