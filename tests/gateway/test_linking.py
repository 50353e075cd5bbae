"""Linking, piece by piece: codes, what is said to whom, and linking beside forgetting."""

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.commands import Command, parse
from gateway.config.texts import DEFAULTS, Texts
from gateway.linking import Linking
from gateway.removed import Removed
from gateway.storage import conversation_index
from gateway.storage.database import Database
from gateway.storage.inbox import SCHEMA
from gateway.storage.link_codes import SECONDS, LinkCodes
from gateway.storage.stored_message import Stored
from memory.conversation import Role, Turn
from memory.errors import StoreError
from memory.person import Links
from tests.gateway.messages import message
from tests.gateway.test_forgetting import AT, Bench
from tests.waiting import until

TEXTS = Texts()
_seqs = itertools.count(1)


def stored(text: str, user: str = "ou_1", *, group: bool = False) -> Stored:
    return Stored(next(_seqs), 100.0, message(text, user=user, group=group))


def user_of(name: str) -> str:
    return message(user=name).user


A, B, C = (user_of(name) for name in ("ou_1", "ou_2", "ou_3"))


# ---- what is a command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/link", Command("link")),
        ("关联账号。", Command("link")),
        ("/link ABCDE-FGHJK", Command("link", "ABCDE-FGHJK")),
        ("／Link abcde fghjk", Command("link", "abcde fghjk")),
        ("绑定账号 abcde-fghjk", Command("link", "abcde-fghjk")),
        ("/unlink", Command("unlink")),
        ("取消关联", Command("unlink")),
        ("关联账号 怎么弄", None),
        ("绑定账号 失败", None),
        ("关联账号是什么", None),
    ],
)
def test_commands(text: str, command: Command | None) -> None:
    assert parse(text) == command
    assert command is None or not command.overtakes, "it keeps its place, as all that changes something"


# ---- codes


@pytest.fixture
async def codes(tmp_path: Path) -> AsyncIterator[LinkCodes]:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    yield LinkCodes(database)
    await database.close()


async def test_a_code_works_once_for_ten_minutes_and_for_the_same_message_again(codes: LinkCodes) -> None:
    code = await codes.make(A, 100.0)
    assert await codes.owner(code, 7, 100.0 + SECONDS - 1) == A
    assert await codes.owner(code, 7, 100.0 + SECONDS) is None
    await codes.use(code, 7)
    assert await codes.owner(code, 7, 101.0) == A, "run again after a crash"
    assert await codes.owner(code, 8, 101.0) is None
    code = await codes.make(B, 100.0)
    await codes.revoke(code)
    assert await codes.owner(code, 9, 101.0) is None


async def test_a_new_code_takes_the_place_of_the_old_one(codes: LinkCodes) -> None:
    old, other = await codes.make(A, 100.0), await codes.make(B, 100.0)
    new = await codes.make(A, 101.0)
    assert [await codes.owner(code, 1, 102.0) for code in (old, other, new)] == [None, B, A]


async def test_codes_are_long_never_twice_the_same_and_easy_to_read(codes: LinkCodes) -> None:
    made = {await codes.make(A, 100.0) for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"[2-9A-HJKMNP-TV-Z]{5}-[2-9A-HJKMNP-TV-Z]{5}", code) for code in made)


async def test_how_people_write_a_code_does_not_matter(codes: LinkCodes) -> None:
    code = await codes.make(A, 100.0)
    wide = "".join(chr(ord(each) + 0xFEE0) for each in code)
    for written in (code.lower(), code.replace("-", ""), f"「{code}」。", " ".join(code), wide):
        assert await codes.owner(written, 1, 101.0) == A, written
    for written in (code[:-1], code + "A", "", "-" * 12, "张三李四王五赵六钱七", "\ud800" * 10, "x" * 100_000):
        assert await codes.owner(written, 1, 101.0) is None, written


async def test_the_database_holds_no_code_and_forgets_whose_it_was(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", SCHEMA)
    await asyncio.to_thread(database.open)
    codes = LinkCodes(database)
    code = await codes.make(A, 100.0)
    raw = await asyncio.to_thread(lambda: b"".join(path.read_bytes() for path in tmp_path.glob("gateway.db*")))
    assert A.encode() in raw
    for written in (code, code.replace("-", ""), code[:5]):
        assert written.encode() not in raw
    await codes.make(B, 100.0 + SECONDS)
    (rows,) = await database.run(lambda db: [tuple(row) for row in db.execute("SELECT user FROM link_codes")])
    assert rows == (B,), "old ones are deleted"
    await database.close()


# ---- what is said


class LinkBench:
    """Linking over the files of a bench, for tests that say what people write."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.memory = bench.memory
        self.linking = Linking(bench.memory, bench.inbox.link_codes, bench.forgetting, lambda: bench.now)

    async def link(self, written: str, user: str, *, group: bool = False) -> str:
        return await self.linking.link(written, stored("/link", user, group=group), TEXTS)

    async def unlink(self, user: str, *, group: bool = False) -> str:
        return await self.linking.unlink(stored("/unlink", user, group=group), TEXTS)

    async def code(self, user: str = "ou_1") -> str:
        found = re.search(r"代码：(\S+)", await self.link("", user))
        assert found
        return found[1]

    async def links(self) -> Links:
        return await self.memory.read_links()


@pytest.fixture
async def linking(tmp_path: Path) -> AsyncIterator[LinkBench]:
    database = Database(tmp_path / "gateway.db", SCHEMA + conversation_index.SCHEMA)
    await asyncio.to_thread(database.open)
    async with asyncio.TaskGroup() as tasks:
        yield LinkBench(Bench(tmp_path, database, tasks))
    await database.close()


async def test_two_accounts_are_linked_and_unlinked(linking: LinkBench) -> None:
    code = await linking.code()
    assert await linking.link(code, "ou_2") == DEFAULTS["link-done"]
    assert await linking.links() == Links({B: A})
    assert await linking.link(code, "ou_3") == DEFAULTS["link-wrong"], "it was used"
    assert await linking.link(await linking.code("ou_2"), "ou_1") == DEFAULTS["link-already"]
    assert await linking.links() == Links({B: A})
    assert await linking.unlink("ou_1") == DEFAULTS["unlink-done"]
    assert await linking.unlink("ou_2") == DEFAULTS["unlink-nothing"]
    assert await linking.link(code, "ou_2") == DEFAULTS["link-wrong"], "used, also by oneself"
    assert await linking.links() == Links({})


async def test_what_can_go_wrong_is_told(linking: LinkBench) -> None:
    code = await linking.code()
    assert await linking.link(code, "ou_1") == DEFAULTS["link-self"]
    assert await linking.link("WRONG-WRONG", "ou_2") == DEFAULTS["link-wrong"]
    linking.bench.now += SECONDS
    assert await linking.link(code, "ou_2") == DEFAULTS["link-wrong"]
    assert await linking.links() == Links({})


async def test_a_code_that_was_sent_to_its_own_account_still_works(linking: LinkBench) -> None:
    code = await linking.code()
    await linking.link(code, "ou_1")
    assert await linking.link(code, "ou_2") == DEFAULTS["link-done"]


async def test_in_groups_nothing_is_given_or_taken_and_what_was_shown_there_is_void(linking: LinkBench) -> None:
    code = await linking.code()
    assert await linking.link("", "ou_1", group=True) == DEFAULTS["link-direct-only"]
    assert await linking.link(code, "ou_2", group=True) == DEFAULTS["link-direct-only"]
    assert await linking.link(code, "ou_2") == DEFAULTS["link-wrong"]
    await linking.link(await linking.code(), "ou_2")
    assert await linking.unlink("ou_2", group=True) == DEFAULTS["link-direct-only"]
    assert await linking.links() == Links({B: A})


async def test_guessing_is_slow_for_whoever_guesses_alone(linking: LinkBench) -> None:
    code = await linking.code()
    for number in range(5):
        assert await linking.link(f"GUESS-{number:05}", "ou_3") == DEFAULTS["link-wrong"]
    assert await linking.link(code, "ou_3") == DEFAULTS["link-too-often"], "the right one too"
    assert await linking.link(code, "ou_2") == DEFAULTS["link-done"], "others are not kept waiting"
    linking.bench.now += 61
    assert await linking.link("GUESS-AGAIN", "ou_3") == DEFAULTS["link-wrong"]


async def test_no_log_line_holds_a_code(linking: LinkBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        code = await linking.code()
        await linking.link(code, "ou_2", group=True)
        code2 = await linking.code()
        await linking.link(code2, "ou_2")
        for _ in range(6):
            await linking.link("WRONG-WRONG", "ou_3")
    assert any(each.startswith(f"linked user={B} other={A}") for each in caplog.messages)
    assert any("too many codes tried" in each for each in caplog.messages)
    for secret in (code, code2, code2.replace("-", ""), "WRONG"):
        assert secret not in caplog.text


# ---- at any moment


async def test_a_command_that_runs_again_after_a_crash_does_the_same_as_once(
    linking: LinkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the code and the file, and again between the file and the answer."""
    asks = stored("/link", "ou_2")
    code = await linking.code()

    def killed(*_: object) -> bool:
        raise asyncio.CancelledError

    monkeypatch.setattr(linking.memory.persons, "link", killed)
    with pytest.raises(asyncio.CancelledError):
        await linking.linking.link(code, asks, TEXTS)
    monkeypatch.undo()
    assert await linking.link(code, "ou_3") == DEFAULTS["link-wrong"], "it is nobody else's any more"
    assert await linking.linking.link(code, asks, TEXTS) == DEFAULTS["link-done"]
    assert await linking.linking.link(code, asks, TEXTS) == DEFAULTS["link-already"]
    assert await linking.linking.link(code, replace(asks, seq=next(_seqs)), TEXTS) == DEFAULTS["link-wrong"]
    assert await linking.links() == Links({B: A})


async def test_a_file_that_cannot_be_written_is_a_failure_and_links_nobody(linking: LinkBench) -> None:
    code = await linking.code()
    path = linking.bench.root / "users" / f"{B}.yaml"
    await asyncio.to_thread(lambda: (path.parent.mkdir(), path.write_text("- a\n")))
    with pytest.raises(StoreError, match=f"users/{B}.yaml"):
        await linking.link(code, "ou_2")
    assert await linking.links() == Links({})


async def test_both_at_once_with_each_others_code(linking: LinkBench) -> None:
    codes = {"ou_1": await linking.code("ou_2"), "ou_2": await linking.code("ou_1")}
    said = await asyncio.gather(*(linking.link(code, user) for user, code in codes.items()))
    assert sorted(said) == sorted([DEFAULTS["link-done"], DEFAULTS["link-already"]])
    assert len((await linking.links()).same_as) == 1


async def test_two_with_one_code(linking: LinkBench) -> None:
    code = await linking.code()
    said = await asyncio.gather(linking.link(code, "ou_2"), linking.link(code, "ou_3"))
    assert sorted(said) == sorted([DEFAULTS["link-done"], DEFAULTS["link-wrong"]])


# ---- beside forgetting


async def said_by(bench: Bench, *names: str) -> None:
    """Something of each of them in a file and in the inbox."""
    for name in names:
        inbound = message("独角兽", user=name)
        turn = Turn(role=Role.USER, text="独角兽", id=f"q-{name}", at=AT)
        await bench.memory.remember(inbound.lane.with_agent("general-agent"), [turn])
        await bench.inbox.accept(inbound, bench.now)


def left(root: Path, *users: str) -> list[str]:
    """The files that hold something of them. Blocking."""
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if any(user in str(path) or (path.is_file() and user.encode() in path.read_bytes()) for user in users)
    ]


@pytest.mark.parametrize("asks", ["ou_1", "ou_2", "ou_3"])
async def test_all_accounts_are_forgotten_whichever_asks(linking: LinkBench, asks: str) -> None:
    bench = linking.bench
    await linking.link(await linking.code("ou_1"), "ou_2")
    await linking.link(await linking.code("ou_2"), "ou_3")
    await said_by(bench, "ou_1", "ou_2", "ou_3", "ou_4")
    code = await linking.code("ou_3")
    removed = await bench.forgetting.forget(user_of(asks))
    assert removed == Removed(conversations=3, messages=3, profiles=2)
    assert await asyncio.to_thread(left, bench.root, A, B, C) == []
    assert await asyncio.to_thread(left, bench.root, user_of("ou_4"))
    assert linking.memory.persons.links == Links({}), "known at once"
    assert await linking.link(code, "ou_4") == DEFAULTS["link-wrong"], "the code went too"


@pytest.mark.parametrize("asks", ["ou_1", "ou_2", "ou_3"])
@pytest.mark.parametrize("fails", [1, 2])
async def test_broken_off_and_asked_again_all_are_forgotten(
    linking: LinkBench, monkeypatch: pytest.MonkeyPatch, asks: str, fails: int
) -> None:
    bench = linking.bench
    await linking.link(await linking.code("ou_1"), "ou_2")
    await linking.link(await linking.code("ou_2"), "ou_3")
    await said_by(bench, "ou_1", "ou_2", "ou_3")
    forget, calls = bench.memory.forget, itertools.count()

    async def breaks(user: str) -> object:
        if next(calls) == fails:
            raise StoreError("conversations/…")
        return await forget(user)

    monkeypatch.setattr(bench.memory, "forget", breaks)
    with pytest.raises(StoreError):
        await bench.forgetting.forget(user_of(asks))
    monkeypatch.undo()
    await bench.forgetting.forget(user_of(asks))
    assert await asyncio.to_thread(left, bench.root, A, B, C) == []


async def test_messages_of_any_account_wait_until_all_are_forgotten(
    linking: LinkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = linking.bench
    await linking.link(await linking.code("ou_1"), "ou_2")
    forget, begun, go_on = bench.memory.forget, [], asyncio.Event()

    async def slow(user: str) -> object:
        begun.append(user)
        await go_on.wait()
        return await forget(user)

    monkeypatch.setattr(bench.memory, "forget", slow)
    forgetting = asyncio.create_task(bench.forgetting.forget(B))
    await until(lambda: begun)
    assert begun == [A], "the one that asks goes last"
    settled = [asyncio.create_task(bench.forgetting.settled(user)) for user in (A, B)]
    linked = [asyncio.create_task(each) for each in (linking.link("WRONG-WRONG", "ou_3"), linking.unlink("ou_2"))]
    await asyncio.sleep(0.02)
    waiting = (*settled, *linked, asyncio.create_task(bench.forgetting.forget(A)))
    await asyncio.sleep(0.02)
    assert not any(each.done() for each in waiting)
    await asyncio.wait_for(bench.forgetting.settled(C), 30)
    go_on.set()
    await forgetting
    await asyncio.gather(*waiting)


async def test_forgetting_waits_for_a_link_that_is_being_made_and_takes_it_with_it(
    linking: LinkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = linking.bench
    await said_by(bench, "ou_1", "ou_2")
    code, use, go_on = await linking.code("ou_1"), bench.inbox.link_codes.use, asyncio.Event()

    async def slow(written: str, seq: int) -> None:
        await go_on.wait()
        await use(written, seq)

    monkeypatch.setattr(bench.inbox.link_codes, "use", slow)
    making = asyncio.create_task(linking.link(code, "ou_2"))
    await asyncio.sleep(0.01)
    forgetting = asyncio.create_task(bench.forgetting.forget(A))
    await asyncio.sleep(0.01)
    assert not forgetting.done()
    go_on.set()
    assert await making == DEFAULTS["link-done"]
    assert (await forgetting).conversations == 2
    assert await asyncio.to_thread(left, bench.root, A, B) == []


async def test_an_unlinked_account_is_not_forgotten_with_the_others(linking: LinkBench) -> None:
    bench = linking.bench
    await linking.link(await linking.code("ou_1"), "ou_2")
    await linking.unlink("ou_2")
    await said_by(bench, "ou_1", "ou_2")
    await bench.forgetting.forget(A)
    assert await asyncio.to_thread(left, bench.root, A) == []
    assert await asyncio.to_thread(left, bench.root, B)
