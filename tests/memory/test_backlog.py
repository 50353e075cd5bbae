"""Files that cannot be written or read: what is said meanwhile is seen at once, and written later, in order and once."""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.storage.database import Database
from gateway.storage.owed_turns import SCHEMA, OwedTurns
from memory import appending, backlog, conversation_file, folder, tail
from memory.backlog import Backlog, NoShelter, ShelterFailed
from memory.conversation import ConversationId, Role, Turn
from memory.errors import StoreBusy, StoreClosed, StoreError, StoreFull, StoreUnavailable
from memory.generations import Forgotten, Generations
from memory.memory import Memory
from memory.redis_link import RedisSettings
from memory.window import WindowSettings
from tests.platforms.redis_server import RedisServer
from tests.scenarios.conversation_files import checked, said
from tests.waiting import until

AT = "2026-01-05T10:00:00.000+08:00"
ONE = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
OTHER = ConversationId.parse("ueyvbddhftr73:feishu:b759cea3338c:0:general-agent")
SHARED = ConversationId.parse("gu3r7qbo6l6i3:feishu:b759cea3338c:1:general-agent")
SETTINGS = WindowSettings()


def question(n: int, **more: str) -> Turn:
    return Turn(role=Role.USER, text=f"第 {n} 个问题", id=f"q{n}", at=AT, **more)


def answer(n: int, **more: str) -> Turn:
    return Turn(role=Role.ASSISTANT, text=f"第 {n} 个回答", id=f"q{n}/a", to=f"q{n}", at=AT, **more)


def path_in(workspace: Path, conversation: ConversationId = ONE) -> Path:
    return workspace / "conversations" / conversation.lane.user / conversation.file_name


async def seen(memory: Memory, conversation: ConversationId = ONE) -> list[str]:
    window = await memory.window(conversation, SETTINGS, question=None, room=8000)
    return [message.content for message in window.messages]


async def talk(memory: Memory, *numbers: int, conversation: ConversationId = ONE) -> None:
    for n in numbers:
        await memory.remember(conversation, [question(n)])
        await memory.remember(conversation, [answer(n)])


def words(*numbers: int) -> list[str]:
    return [turn(n).text for n in numbers for turn in (question, answer)]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    memory = Memory(tmp_path)
    yield memory
    await memory.close()


class Disk:
    """Lets system calls on one conversation's file fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def fails(self, call: str, number: int) -> None:
        """The call raises this error in everything that writes."""

        def fail(*args: object, **more: object) -> int:
            raise OSError(number, os.strerror(number))

        for module in (appending.os, folder.os):
            self._patch.setattr(module, call, fail)

    def opens_only(self, flags: int, number: int) -> None:
        """Files can be opened with these flags alone, else there is this error: a read-only or foreign file."""
        real = os.open

        def opened(path: object, wanted: int, *args: object, **more: object) -> int:
            if wanted & (os.O_RDWR | os.O_WRONLY | os.O_CREAT) or flags < 0:
                raise OSError(number, os.strerror(number))
            return real(path, wanted, *args, **more)  # type: ignore[arg-type]

        self._patch.setattr(folder.os, "open", opened)

    def short(self) -> None:
        """A write takes half of what it is given, as the first sign of a full disk."""
        real = os.write
        self._patch.setattr(appending.os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))

    def well(self) -> None:
        self._patch.undo()


Break = Callable[[Disk], None]
BREAKS: dict[str, Break] = {
    "short write": Disk.short,
    "no space": lambda disk: disk.fails("write", errno.ENOSPC),
    "quota": lambda disk: disk.fails("write", errno.EDQUOT),
    "input/output error": lambda disk: disk.fails("fdatasync", errno.EIO),
    "read-only": lambda disk: disk.opens_only(os.O_RDONLY, errno.EROFS),
    "no right to write": lambda disk: disk.opens_only(os.O_RDONLY, errno.EACCES),
}


@pytest.mark.parametrize("how", BREAKS)
async def test_a_disk_that_takes_nothing(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.WARNING, "sanqiao.memory")
    await talk(memory, 1)
    before = path_in(tmp_path).read_bytes()
    disk = Disk(monkeypatch)
    BREAKS[how](disk)
    await talk(memory, 2, 3)
    assert await seen(memory) == words(1, 2, 3)
    status = memory.files()
    assert (status.state, status.waiting, status.conversations, status.lost) == ("failing", 4, 1, 0)
    assert status.remedy
    assert path_in(tmp_path).read_bytes() == before
    disk.well()
    await talk(memory, 4)
    assert [text for _, text in said(path_in(tmp_path))] == words(1, 2, 3, 4)
    checked(path_in(tmp_path))
    assert memory.files().state == "ok"
    assert await seen(memory) == words(1, 2, 3, 4)
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert events == ["file_failing", "shelter_failing", "file_well"], "one line for each change"


def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch).opens_only(-1, errno.EACCES)


async def test_a_file_that_cannot_be_read_either(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(memory, 1)
    unreadable(monkeypatch)
    await talk(memory, 2)
    assert await seen(memory) == words(1, 2), "what was read before is known"
    memory._store.recent.clear()
    assert await seen(memory) == words(2), "the window of what can be read"
    assert await memory.answer_to(ONE, "q2") == [answer(2)]
    assert await memory.answer_to(ONE, "q1") == []
    assert [turn.text for turn in await memory.history(ONE, None, 10)] == words(2)
    info = await memory.info(ONE)
    assert info is not None
    assert (info.turns, info.last) == (2, AT)
    monkeypatch.undo()
    await talk(memory, 3)
    assert [text for _, text in said(path_in(tmp_path))] == words(1, 2, 3)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    target = path.parent.parent.parent / "elsewhere"
    target.write_text("- user: 别人的\n", encoding="utf-8")
    path.symlink_to(target)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


@pytest.mark.parametrize("kind", [a_folder, a_pipe, a_link, a_link_to_nothing])
async def test_something_that_is_no_file(memory: Memory, tmp_path: Path, kind: Callable[[Path], None]) -> None:
    """Nobody else notices, and once it is taken away all is written."""
    path = path_in(tmp_path)
    path.parent.mkdir(parents=True)
    kind(path)
    async with asyncio.timeout(30):
        await talk(memory, 1, 2)
        await talk(memory, 1, conversation=OTHER)
        assert await seen(memory) == words(1, 2)
        await memory.scan()
    assert [text for _, text in said(path_in(tmp_path, OTHER))] == words(1)
    assert memory.files().conversations == 1
    with contextlib.suppress(FileNotFoundError):
        assert "问题" not in (tmp_path / "elsewhere").read_text(encoding="utf-8")
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    await memory._backlog.retry()
    assert [text for _, text in said(path)] == words(1, 2)
    assert memory.files() == backlog.FilesStatus()


@pytest.mark.parametrize("what", ["a file in the folder's place", "a link in the folder's place"])
async def test_a_folder_that_is_none(memory: Memory, tmp_path: Path, what: str) -> None:
    place = path_in(tmp_path).parent
    place.parent.mkdir()
    if what.startswith("a file"):
        place.write_text("x")
    else:
        place.symlink_to(tmp_path)
    await talk(memory, 1)
    await talk(memory, 1, conversation=OTHER)
    assert await seen(memory) == words(1)
    assert [info.id for info in await memory.scan()] == [OTHER]
    place.unlink()
    await memory._backlog.retry()
    assert [text for _, text in said(path_in(tmp_path))] == words(1)


async def test_a_folder_that_vanished(memory: Memory, tmp_path: Path) -> None:
    await talk(memory, 1)
    path_in(tmp_path).unlink()
    path_in(tmp_path).parent.rmdir()
    assert await seen(memory) == []
    await talk(memory, 2)
    assert [text for _, text in said(path_in(tmp_path))] == words(2)


async def test_another_process_that_holds_the_file(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer waits for it; the next ones do not, and it is tried again in the background."""
    await talk(memory, 1)
    monkeypatch.setattr(conversation_file, "LOCK_WAIT", 0.2)
    with path_in(tmp_path).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await talk(memory, 2)
        monkeypatch.setattr(conversation_file, "LOCK_WAIT", 30.0)
        start = asyncio.get_running_loop().time()
        await talk(memory, 3, 4)
        assert asyncio.get_running_loop().time() - start < 15
        assert await seen(memory) == words(1, 2, 3, 4)
    trying = asyncio.create_task(memory.keep_trying(lambda: 0.01))
    await until(lambda: not memory.files().waiting)
    trying.cancel()
    assert [text for _, text in said(path_in(tmp_path))] == words(1, 2, 3, 4)


async def test_a_new_beginning_while_the_disk_fails(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(memory, 1)
    disk = Disk(monkeypatch)
    BREAKS["no space"](disk)
    await memory.reset(ONE, "r1", AT)
    await memory.reset(ONE, "r2", AT)  # nothing to end
    await talk(memory, 2)
    assert await seen(memory) == words(2)
    assert ONE in await memory.files_of(ONE.lane)
    disk.well()
    await talk(memory, 3)
    roles = [role for role, _ in said(path_in(tmp_path))]
    assert roles == ["user", "assistant", "reset", "user", "assistant", "user", "assistant"]
    assert await seen(memory) == words(2, 3)


async def test_what_waits_has_the_ordinals_it_will_have(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(memory, 1)
    disk = Disk(monkeypatch)
    BREAKS["no space"](disk)
    await talk(memory, 2, 3)
    page = await memory.history(ONE, None, 3)
    assert [(turn.n, turn.text) for turn in page] == list(zip((3, 4, 5), words(2, 3)[1:], strict=True))
    assert [turn.n for turn in await memory.history(ONE, 4, 3)] == [1, 2, 3]
    disk.well()
    await talk(memory, 4)
    assert [turn.n for turn in await memory.history(ONE, 4, 3)] == [1, 2, 3]


# ---- bounds


async def test_over_the_bound_the_oldest_is_given_up_and_said_to_be(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backlog, "MOST_IDS", 4)
    disk = Disk(monkeypatch)
    BREAKS["no space"](disk)
    await talk(memory, 1, 2, 3)
    status = memory.files()
    assert (status.waiting, status.lost) == (4, 2)
    assert sum("turn_lost" in record.getMessage() for record in caplog.records) == 2
    disk.well()
    await talk(memory, 4)
    assert [text for _, text in said(path_in(tmp_path))] == words(2, 3, 4)
    assert memory.files().lost == 2


async def test_what_waits_is_counted_by_its_ids(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn merged of many messages has the ids of all; one alone is kept, however many it has."""
    monkeypatch.setattr(backlog, "MOST_IDS", 6)
    BREAKS["no space"](Disk(monkeypatch))
    for n in (1, 2, 3):
        await memory.remember(ONE, [replace(question(n), ids=(f"q{n}", f"q{n}b"))])
    assert (memory.files().waiting, memory.files().lost) == (2, 1)
    await memory.remember(ONE, [replace(question(4), ids=tuple(f"q4-{n}" for n in range(9)))])
    assert (memory.files().waiting, memory.files().lost) == (1, 3)
    assert (await seen(memory))[0] == question(4).text


async def test_over_the_total_it_is_taken_from_whoever_owes_most(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "TOTAL_BYTES", 1000)
    BREAKS["no space"](Disk(monkeypatch))
    await talk(memory, 1, conversation=OTHER)
    await talk(memory, *range(5))
    assert await seen(memory, OTHER) == words(1)
    assert (await seen(memory))[-1] == answer(4).text
    assert memory.files().lost > 0


# ---- the shelter


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    yield database
    await database.close()


async def rows(database: Database) -> int:
    return int(await database.run(lambda db: db.execute("SELECT COUNT(*) FROM owed_turns").fetchone()[0]))


async def test_what_was_not_written_is_written_by_the_next_process(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Memory(tmp_path, shelter=OwedTurns(database))
    await talk(first, 1)
    disk = Disk(monkeypatch)
    BREAKS["read-only"](disk)
    await talk(first, 2, 3)
    assert (first.files().unsheltered, await rows(database)) == (0, 4)
    await first.close()
    second = Memory(tmp_path, shelter=OwedTurns(database))
    await second.open()
    assert await seen(second) == words(1, 2, 3), "the disk still fails"
    await second.remember(ONE, [question(3)])  # asked again after the restart
    disk.well()
    await talk(second, 4)
    assert [text for _, text in said(path_in(tmp_path))] == words(1, 2, 3, 4)
    checked(path_in(tmp_path))
    assert await rows(database) == 0
    await second.close()


async def test_a_process_that_was_killed_in_between_writes_nothing_twice(database: Database, tmp_path: Path) -> None:
    """The file holds them already, the database still does."""
    memory = Memory(tmp_path, shelter=OwedTurns(database))
    await talk(memory, 1)
    await OwedTurns(database).keep(ONE, [question(1), answer(1), question(2)])
    await memory.open()
    assert [text for _, text in said(path_in(tmp_path))] == [*words(1), question(2).text]
    assert await rows(database) == 0
    await memory.close()


class KilledShelter(NoShelter):
    """Removes nothing any more once the process is as good as killed."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[ConversationId, Turn]] = {}
        self.killed = False

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        self.kept.update((turn.id, (conversation, turn)) for turn in turns)

    async def remove(self, conversation: ConversationId, ids: Sequence[str]) -> None:
        for id in () if self.killed else ids:
            del self.kept[id]

    async def load(self) -> list[tuple[ConversationId, Turn]]:
        return list(self.kept.values())


async def test_however_many_ids_wait_a_kill_after_they_were_written_repeats_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelter = KilledShelter()
    memory = Memory(tmp_path, durability="none", shelter=shelter)
    disk = Disk(monkeypatch)
    BREAKS["no space"](disk)
    for n in range(150):
        await memory.remember(ONE, [replace(question(n), ids=tuple(f"q{n}-{part}" for part in range(3)))])
    assert (memory.files().waiting, memory.files().lost) == (100, 50)
    disk.well()
    shelter.killed = True
    await memory.remember(ONE, [question(150)])
    await memory.close()
    written = said(path_in(tmp_path))
    assert [text for _, text in written] == [question(n).text for n in range(50, 151)]
    again = Memory(tmp_path, durability="none", shelter=shelter)
    await again.open()
    await again.close()
    assert said(path_in(tmp_path)) == written


class FailingShelter(NoShelter):
    """Fails until told otherwise."""

    def __init__(self) -> None:
        self.kept: list[Turn] = []
        self.well = False

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        if not self.well:
            raise ShelterFailed("database or disk is full")
        self.kept.extend(turns)


async def test_neither_file_nor_database_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelter = FailingShelter()
    memory = Memory(tmp_path, shelter=shelter)
    BREAKS["no space"](Disk(monkeypatch))
    await talk(memory, 1)
    assert memory.files().unsheltered == 2
    assert [record.getMessage().split()[0] for record in caplog.records] == ["file_failing", "shelter_failing"]
    await memory.close()
    last = caplog.records[-1]
    assert last.levelno == logging.ERROR
    assert last.getMessage().startswith("turns_lost path=conversations/uu3r7qbo6l6i3/")
    assert "turns=2" in last.getMessage()


async def test_a_database_that_is_well_again_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelter = FailingShelter()
    memory = Memory(tmp_path, shelter=shelter)
    BREAKS["no space"](Disk(monkeypatch))
    await talk(memory, 1)
    shelter.well = True
    await memory.close()
    assert [turn.text for turn in shelter.kept] == words(1)


async def test_what_is_given_up_leaves_the_database_too(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MOST_IDS", 2)
    memory = Memory(tmp_path, shelter=OwedTurns(database))
    BREAKS["no space"](Disk(monkeypatch))
    await talk(memory, 1, 2)
    assert [turn.text for _, turn in await OwedTurns(database).load()] == words(2)
    await memory.close()


# ---- forgetting


async def test_forgetting_takes_what_waits(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(tmp_path, shelter=OwedTurns(database))
    disk = Disk(monkeypatch)
    BREAKS["no space"](disk)
    await talk(memory, 1)
    await talk(memory, 1, conversation=OTHER)
    user = ONE.lane.user
    await memory.remember(SHARED, [question(1, user=user)])
    await memory.remember(SHARED, [answer(1)])
    await memory.remember(SHARED, [question(2, user=OTHER.lane.user)])
    await memory.forget(user)
    assert {str(conversation) for conversation, _ in await OwedTurns(database).load()} == {str(OTHER), str(SHARED)}
    disk.well()
    await memory._backlog.retry()
    assert not path_in(tmp_path).exists()
    assert [text for _, text in said(path_in(tmp_path, SHARED))] == [question(2).text]
    assert [text for _, text in said(path_in(tmp_path, OTHER))] == words(1)
    await memory.close()


async def test_a_late_write_that_fails_is_not_kept(tmp_path: Path) -> None:
    """The person is forgotten while their write is failing."""
    generations = Generations()

    async def write(conversation: ConversationId, turns: Sequence[Turn], generation: int) -> list[Turn]:
        generations.forget(conversation.lane.user)
        raise StoreFull("full")

    waiting = Backlog(write, NoShelter(), generations)
    with pytest.raises(Forgotten):
        await waiting.append(ONE, [question(1)])
    assert waiting.turns(ONE) == ()


async def test_somebody_else_s_turns_that_are_forgotten_hold_nobody_up() -> None:
    generations = Generations()
    written: list[str] = []
    failing = True

    async def write(conversation: ConversationId, turns: Sequence[Turn], generation: int) -> list[Turn]:
        if failing:
            raise StoreUnavailable("broken")
        if any(turn.user == "u1" for turn in turns):
            generations.forget("u1")
            await waiting.forget("u1")
            raise Forgotten("gone")
        written.extend(turn.id for turn in turns)
        return list(turns)

    waiting = Backlog(write, NoShelter(), generations)
    await waiting.append(SHARED, [question(1, user="u1")])
    failing = False
    await waiting.append(SHARED, [question(2, user="u2")])
    assert written == ["q2"]


async def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    await memory.close()
    with pytest.raises(StoreClosed):
        await memory.remember(ONE, [question(1)])
    with pytest.raises(StoreClosed):
        await memory.window(ONE, SETTINGS, question=None, room=8000)


# ---- any order of events

STEPS = st.lists(st.sampled_from(["say", "full", "busy", "well", "retry", "restart"]), max_size=30)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_all_is_written_in_order_and_once(steps: list[str]) -> None:
    """A model of a file that takes turns or not, with a shelter that outlives the process."""
    asyncio.run(_any_order(steps))


async def _any_order(steps: list[str]) -> None:
    file: list[str] = []
    error: StoreError | None = None
    shelter = Remembering()

    async def write(conversation: ConversationId, turns: Sequence[Turn], generation: int) -> list[Turn]:
        if error is not None:
            raise error
        new = [turn for turn in turns if turn.id not in file]
        file.extend(turn.id for turn in new)
        return new

    asked: list[str] = []
    waiting = Backlog(write, shelter, Generations())
    for step in [*steps, "well", "retry"]:
        match step:
            case "say":
                asked.append(f"q{len(asked)}")
                await waiting.append(ONE, [question(len(asked) - 1)])
            case "full":
                error = StoreFull("full")
            case "busy":
                error = StoreBusy("busy")
            case "well":
                error = None
            case "retry":
                await waiting.retry()
            case "restart":
                waiting = Backlog(write, shelter, Generations())
                await waiting.load()
        assert file + [turn.id for turn in waiting.turns(ONE)] == asked
    assert file == asked
    assert shelter.kept == {}


class Remembering(NoShelter):
    def __init__(self) -> None:
        self.kept: dict[str, Turn] = {}

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        self.kept |= {turn.id: turn for turn in turns if turn.id not in self.kept}

    async def remove(self, conversation: ConversationId, ids: Sequence[str]) -> None:
        for each in ids:
            del self.kept[each]

    async def load(self) -> list[tuple[ConversationId, Turn]]:
        return [(ONE, turn) for turn in self.kept.values()]


def test_reading_fails_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before the bad block is used."""

    async def scenario() -> list[str]:
        memory = Memory(tmp_path)
        for n in range(30):
            await memory.remember(
                ONE, [question(n), Turn(role=Role.ASSISTANT, text="长" * 400, id=f"a{n}", to=f"q{n}", at=AT)]
            )
        real = tail.read_range

        def read(fd: int, length: int, offset: int) -> bytes:
            if offset < 10_000:
                raise OSError(errno.EIO, "Input/output error")
            return real(fd, length, offset)

        monkeypatch.setattr(tail, "read_range", read)
        memory._store.recent.clear()
        wide = WindowSettings(max_messages=100, max_tokens=100_000)
        window = await memory.window(ONE, wide, question=None, room=100_000)
        await memory.close()
        assert window.not_read_before
        return [message.content for message in window.messages if message.role == "user"]

    texts = asyncio.run(scenario())
    assert 3 < len(texts) < 30
    assert texts[-1] == question(29).text


async def test_a_real_short_write(memory: Memory, tmp_path: Path) -> None:
    """The system takes a part of a write, then none: what a quota or a full disk does."""
    await talk(memory, 1)
    path = path_in(tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        await talk(memory, 2)
        assert path.read_bytes() == before
        assert await seen(memory) == words(1, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await talk(memory, 3)
    assert [text for _, text in said(path)] == words(1, 2, 3)
    checked(path)


async def test_with_redis_the_window_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer() as server:
        memory = Memory(tmp_path, redis=RedisSettings(url=SecretStr(server.url)))
        await memory.open()
        await talk(memory, 1, 2)
        disk = Disk(monkeypatch)
        BREAKS["no space"](disk)
        await talk(memory, 3)
        assert await seen(memory) == words(1, 2, 3)
        disk.well()
        await talk(memory, 4)
        assert await seen(memory) == words(1, 2, 3, 4)
        await memory.close()
    alone = Memory(tmp_path)
    assert await seen(alone) == words(1, 2, 3, 4)
    await alone.close()
