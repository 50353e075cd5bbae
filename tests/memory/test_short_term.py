"""Redis beside the files: what it holds, that it never changes a window, and what happens while it is not well."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import given
from pydantic import ValidationError

from memory import redis_deletions, redis_list
from memory.appending import Appender
from memory.conversation import ConversationId, ToolCall, Turn
from memory.errors import StoreFull, StoreUnavailable
from memory.memory import Memory
from memory.redis_link import CONNECTIONS, RedisLink, RedisSettings, RedisStatus
from memory.redis_list import Kept, State, chained
from memory.short_term import LONGEST
from memory.tail import NotKept, without_repeats
from memory.window import Window, WindowSettings
from tests.memory.pool import AT, CONVERSATION, OTHER, TURNS, answer, examples, reset, user
from tests.platforms.redis_server import BadRedis, RedisServer, impatient, link_of, rested
from tests.waiting import until

SETTINGS = WindowSettings()
ROOM = 100_000


@pytest.fixture(autouse=True)
def _patient_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_deletions, "SEARCH", 60.0)


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    """One server for all tests that leave it running."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    """The same, empty."""
    shared.client.flushall()
    return shared


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server of the test's own, to be broken."""
    with RedisServer() as server:
        yield server


def settings(url: str, **more: Any) -> RedisSettings:
    return RedisSettings.model_validate({"url": url, "cooldown": "1h", "timeout": "20s", **more})


@contextlib.asynccontextmanager
async def remembering(workspace: Path, url: str, **more: Any) -> AsyncIterator[Memory]:
    """A memory with this Redis, opened."""
    memory = Memory(workspace, redis=settings(url, **more))
    await memory.open()
    try:
        yield memory
    finally:
        await memory.close()


async def seen(
    memory: Memory, conversation: ConversationId = CONVERSATION, config: WindowSettings = SETTINGS
) -> Window:
    return await memory.window(conversation, config, question=None, room=ROOM)


async def seen_without(workspace: Path, config: WindowSettings = SETTINGS) -> Window:
    """The window of a memory that has no Redis."""
    memory = Memory(workspace)
    try:
        return await seen(memory, config=config)
    finally:
        await memory.close()


def talk(first: int, count: int) -> list[Turn]:
    rounds = range(first, first + count)
    return [t for i in rounds for t in (user(f"q{i}", f"第{i}个问题"), answer(f"a{i}", f"q{i}", f"第{i}个回答"))]


def ids(elements: Sequence[bytes]) -> list[str]:
    return [json.loads(element)["id"] for element in elements]


def blind(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a window that needs the file fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read from the file")

    monkeypatch.setattr(memory._store, "backwards", refuse)


# ---- what Redis holds


async def test_turns_stand_beside_the_files_state(tmp_path: Path, server: RedisServer) -> None:
    async with remembering(tmp_path, server.url, prefix="p:") as memory:
        await memory.remember(CONVERSATION, [user("q", "我叫钱七", name="钱")])
        await memory.remember(CONVERSATION, [answer("a", "q", "你好")])
        list_key, state_key = f"p:memory:{CONVERSATION}", f"p:state:{CONVERSATION}"
        assert set(server.client.keys("*")) == {list_key.encode(), state_key.encode()}
        first, second = (json.loads(each) for each in server.turns(CONVERSATION, "p:"))
        assert (first["role"], first["text"], first["name"], first["n"]) == ("user", "我叫钱七", "钱", 0)
        assert (second["role"], second["text"], second["to"], second["n"]) == ("assistant", "你好", "q", 1)
        found = (tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name).stat()
        state = json.loads(server.client.get(state_key) or b"")
        assert (state["size"], state["mtime_ns"]) == (found.st_size, found.st_mtime_ns)


async def test_each_write_begins_the_ttl_anew(tmp_path: Path, server: RedisServer) -> None:
    async with remembering(tmp_path, server.url, ttl="24h") as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        keys = server.client.keys("gateway:*")
        for key in keys:
            server.client.pexpire(key, 5000)
        await memory.remember(CONVERSATION, talk(1, 1))
        assert len(keys) == 2
        assert all(86_000_000 < server.client.pttl(key) <= 86_400_000 for key in keys)


async def test_windows_come_from_redis(tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(tmp_path, server.url) as memory:
        for i in range(20):
            await memory.remember(CONVERSATION, talk(i, 1))
        (question,) = await memory.remember(CONVERSATION, [user("q", "现在的问题")])
        expected = await seen_without(tmp_path)
        blind(memory, monkeypatch)
        assert await seen(memory) == expected
        window = await memory.window(CONVERSATION, SETTINGS, question=question, room=ROOM)
        assert window.messages[-1].content == "第19个回答"


async def test_a_reset_reaches_redis(tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        await memory.reset(CONVERSATION, "r", AT)
        blind(memory, monkeypatch)
        assert (await seen(memory)).messages == ()


async def test_the_list_is_bounded_and_longer_windows_are_read_from_the_file(
    tmp_path: Path, server: RedisServer
) -> None:
    wide = WindowSettings(max_messages=2 * LONGEST, max_tokens=ROOM)
    async with remembering(tmp_path, server.url) as memory:
        for i in range(LONGEST):
            await memory.remember(CONVERSATION, talk(i, 1))
        assert ids(server.turns(CONVERSATION)) == [turn.id for turn in talk(LONGEST // 2, LONGEST // 2)]
        assert await seen(memory, config=wide) == await seen_without(tmp_path, wide)
        assert len((await seen(memory, config=wide)).messages) == 2 * LONGEST - 2
        server.client.delete(f"gateway:state:{CONVERSATION}")
        await memory.remember(CONVERSATION, talk(LONGEST, 1))
        assert len(server.turns(CONVERSATION)) == LONGEST, "written whole"
        assert await seen(memory, config=wide) == await seen_without(tmp_path, wide)


async def test_a_full_list_that_is_damaged_is_written_anew(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is only too short for a window is left as it is."""
    wide = WindowSettings(max_messages=2 * LONGEST, max_tokens=ROOM)
    turns = f"gateway:memory:{CONVERSATION}"
    async with remembering(tmp_path, server.url) as memory:
        for i in range(LONGEST // 2 + 1):
            await memory.remember(CONVERSATION, talk(i, 1))
        whole = server.turns(CONVERSATION)
        assert len(whole) == LONGEST
        server.client.expire(turns, 100)
        await seen(memory, config=wide)
        assert server.client.ttl(turns) <= 100, "too short, not damaged"
        server.client.lset(turns, -3, b"\xff")
        expected = await seen_without(tmp_path)
        assert await seen(memory) == expected
        assert ids(server.turns(CONVERSATION)) == ids(whole), "written anew"
        blind(memory, monkeypatch)
        assert await seen(memory) == expected


async def test_what_lies_too_far_back_in_the_file_is_not_taken_from_redis(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of the file gives up after some bytes; a list that reaches further is not used."""
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 3))
        blind(memory, monkeypatch)
        await seen(memory)
        monkeypatch.setattr(redis_list, "MAX_BYTES", 500)
        with pytest.raises(AssertionError, match="read from the file"):
            await seen(memory)


# ---- never another window


Damage = Callable[[redis.Redis, str, str], Any]


def _replaced(client: redis.Redis, turns: str, index: int, **fields: Any) -> None:
    element = json.loads(client.lindex(turns, index) or b"")
    client.lset(turns, index, json.dumps({**element, **fields}))


DAMAGE: dict[str, Damage] = {
    "nothing": lambda client, turns, state: None,
    "flushed": lambda client, turns, state: client.flushall(),
    "no list": lambda client, turns, state: client.delete(turns),
    "no state": lambda client, turns, state: client.delete(state),
    "list is a text": lambda client, turns, state: (client.delete(turns), client.set(turns, "x")),
    "state is a list": lambda client, turns, state: (client.delete(state), client.rpush(state, "x")),
    "state is not JSON": lambda client, turns, state: client.set(state, b"\xff{"),
    "state is another JSON": lambda client, turns, state: client.set(state, '{"size": 1}'),
    "state of numbers as texts": lambda client, turns, state: client.set(
        state, json.dumps({key: str(value) for key, value in json.loads(client.get(state) or b"").items()})
    ),
    "an older state": lambda client, turns, state: client.set(
        state, json.dumps(json.loads(client.get(state) or b"") | {"mtime_ns": 1})
    ),
    "newest gone": lambda client, turns, state: client.rpop(turns),
    "oldest gone": lambda client, turns, state: client.lpop(turns),
    "another added": lambda client, turns, state: client.rpush(turns, client.lindex(turns, 0) or b""),
    "newest changed": lambda client, turns, state: _replaced(client, turns, -1, text="从未说过"),
    "third changed": lambda client, turns, state: _replaced(client, turns, -3, text="从未说过"),
    "one is not JSON": lambda client, turns, state: client.lset(turns, -2, b"\xff"),
    "one is another JSON": lambda client, turns, state: client.lset(turns, -2, b"[]"),
    "another role": lambda client, turns, state: _replaced(client, turns, -1, role="system"),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_noticed_and_mended(tmp_path: Path, server: RedisServer, name: str) -> None:
    keys = (f"gateway:memory:{CONVERSATION}", f"gateway:state:{CONVERSATION}")
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 4))
        expected, whole = await seen_without(tmp_path), server.turns(CONVERSATION)
        DAMAGE[name](server.client, *keys)
        assert await seen(memory) == expected
        assert server.turns(CONVERSATION) == whole, "written back"
        DAMAGE[name](server.client, *keys)
        await memory.remember(CONVERSATION, talk(4, 1))
        assert await seen(memory) == await seen_without(tmp_path)
        assert ids(server.turns(CONVERSATION)) == [turn.id for turn in talk(0, 5)]
        assert memory.redis().state == "ok"


def test_an_element_is_the_turn() -> None:
    odd = [user("q\ud800", "\0\x85\u2028 \ud83d", name="", ids=("a", "b"), user="u"), reset("r")]
    elements, crc = chained(odd, None)
    assert list(Kept(elements, crc)) == odd[::-1]


@examples(100)
@given(TURNS, st.data())
def test_a_damaged_list_gives_the_truth_or_nothing(turns: list[Turn], data: st.DataObject) -> None:
    """However a list is cut, mixed or changed, what is read from it is a beginning of the true turns."""
    elements, crc = chained(turns, None)
    true = list(without_repeats(iter(turns[::-1])))
    assert list(Kept(elements, crc)) == true
    damaged = data.draw(st.lists(st.sampled_from(elements) | st.binary(max_size=5), max_size=len(elements) + 2))
    read: list[Turn] = []
    try:
        read.extend(Kept(damaged, crc))
    except NotKept:
        return
    assert read == true


class _Story:
    """What happens to one conversation, with Redis; `same` compares its window with that of the files."""

    def __init__(self, workspace: Path, server: RedisServer, data: st.DataObject) -> None:
        self._workspace, self._server, self._data = workspace, server, data
        self._path = workspace / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
        self._saved: tuple[list[bytes], bytes | None] = ([], None)
        self._keys = (f"gateway:memory:{CONVERSATION}", f"gateway:state:{CONVERSATION}")

    async def run(self) -> None:
        self._server.client.flushall()
        async with remembering(self._workspace, self._server.url) as memory:
            self._memory = memory
            for _ in range(self._data.draw(st.integers(1, 6))):
                await self._data.draw(
                    st.sampled_from([self._say, self._say, self._elsewhere, self._harm, self._edit])
                )()
                await self._same()
            assert memory.redis().state == "ok"

    async def _say(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._memory.remember(CONVERSATION, self._data.draw(TURNS))

    async def _elsewhere(self) -> None:
        """Another process, without Redis, writes."""
        other = Memory(self._workspace)
        await other.remember(CONVERSATION, self._data.draw(TURNS))
        await other.close()

    async def _harm(self) -> None:
        client, (turns, state) = self._server.client, self._keys
        names = ["save", "restore", *(DAMAGE if client.llen(turns) > 2 else ["nothing", "flushed", "no list"])]
        name = self._data.draw(st.sampled_from(names))
        if name == "save":
            self._saved = self._server.turns(CONVERSATION), client.get(state)  # type: ignore[assignment]
        elif name == "restore":
            elements, beside = self._saved
            client.delete(turns, state)
            if elements and beside is not None:
                client.rpush(turns, *elements)
                client.set(state, beside)
        else:
            DAMAGE[name](client, turns, state)
            if client.type(turns) not in (b"list", b"none"):
                await self._same()

    async def _edit(self) -> None:
        """A person or a crash was at the file."""
        raw = self._path.read_bytes() if self._path.exists() else b""
        place = self._data.draw(st.integers(0, len(raw)))
        ways = [
            raw[:place],
            raw + b"- user: |\n    hand\n",
            raw + b"- user: |-\n    torn",
            raw[:place] + b"#" + raw[place:],
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(self._data.draw(st.sampled_from(ways)))

    async def _same(self) -> None:
        config = WindowSettings(max_messages=self._data.draw(st.sampled_from([2, 6, 20])))
        expected = await seen_without(self._workspace, config)
        assert await seen(self._memory, config=config) == expected
        assert await seen(self._memory, config=config) == expected, "after it was written back"


@examples(40)
@given(data=st.data())
def test_the_window_is_that_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, shared: RedisServer, data: st.DataObject
) -> None:
    asyncio.run(_Story(tmp_path_factory.mktemp("story"), shared, data).run())


@pytest.mark.parametrize("calls", [(), (ToolCall("c", "search_jobs", "{}"),)])
@pytest.mark.parametrize("to", ["", "q", "asked-before"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_follows_an_answer_to_the_same_question(
    tmp_path: Path, server: RedisServer, to: str, calls: tuple[ToolCall, ...], at_once: bool
) -> None:
    """A reader of the file passes over it, so nobody keeps it."""
    second = replace(answer("a2", to, "再答"), tool_calls=calls)
    turns = [answer("a1", to, "答"), user("q", "怎么办呢请告诉我"), second]
    async with remembering(tmp_path, server.url) as memory:
        for part in [turns] if at_once else [[turn] for turn in turns]:
            await memory.remember(CONVERSATION, part)
            await seen(memory)
        expected = await seen_without(tmp_path)
        assert await seen(memory) == expected
        server.client.flushall()
        assert await seen(memory) == expected


async def test_two_gateways_on_one_workspace_and_one_redis(tmp_path: Path, server: RedisServer) -> None:
    async with remembering(tmp_path, server.url) as one, remembering(tmp_path, server.url) as two:
        for i in range(10):
            await asyncio.gather(
                *(each.remember(CONVERSATION, talk(2 * i + k, 1)) for k, each in enumerate((one, two)))
            )
            assert await seen(one) == await seen(two) == await seen_without(tmp_path)


@pytest.mark.parametrize("later", [False, True])
async def test_another_writer_comes_between(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Between our append and the looks at the file before and behind it."""
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        append = memory._store.append
        other = Memory(tmp_path)

        async def append_with_another(*args: Any, **more: Any) -> list[Turn]:
            written = await append(*args, **more) if later else []
            await other.remember(CONVERSATION, talk(7, 1))
            return written or await append(*args, **more)

        monkeypatch.setattr(memory._store, "append", append_with_another)
        await memory.remember(CONVERSATION, talk(1, 1))
        assert len(server.turns(CONVERSATION)) == 6
        assert await seen(memory) == await seen_without(tmp_path)
        await other.close()


async def test_a_file_put_in_the_place_of_another(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person changed a word for one as long: the file is adopted, and is as long as it was."""
    path = tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 2))
        path.write_bytes(path.read_bytes().replace("第1个回答".encode(), "第9个回答".encode()))
        assert (await seen(memory)).messages[-1].content == "第9个回答"
        await memory.remember(CONVERSATION, talk(2, 1))
        blind(memory, monkeypatch)
        assert [message.content for message in (await seen(memory)).messages][3:5] == ["第9个回答", "第2个问题"]


# ---- while Redis is not well


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines about Redis, by their event."""
    return [record.getMessage().split()[0] for record in caplog.records if "redis" in record.getMessage()]


async def talked(memory: Memory, workspace: Path, first: int, count: int = 5) -> None:
    """Rounds whose window is right; all of them together meet a Redis that fails no more than once."""
    link = link_of(memory)
    with mock.patch.object(link, "_failed", wraps=link._failed) as failed:
        for i in range(first, first + count):
            await memory.remember(CONVERSATION, talk(i, 1))
            assert await seen(memory) == await seen_without(workspace)
    assert failed.call_count <= 1


async def test_refused_and_back(tmp_path: Path, own: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with remembering(tmp_path, own.url) as memory:
        await talked(memory, tmp_path, 0)
        await memory.remember(OTHER, talk(0, 1))
        own.kill()
        await talked(memory, tmp_path, 5)
        await memory.remember(OTHER, talk(1, 1))
        status = memory.redis()
        assert status.state == "down"
        assert 3000 < status.cooldown_left <= 3600
        assert "memory.redis.url" in status.remedy
        own.start()
        rested(memory)
        await talked(memory, tmp_path, 10)
        assert ids(own.turns(CONVERSATION)) == [turn.id for turn in talk(0, 15)], "what was said meanwhile, in order"
        assert 86_000 < own.client.ttl(f"gateway:memory:{CONVERSATION}") <= 86_400
        assert own.turns(OTHER) == []
        await seen(memory, OTHER)
        assert ids(own.turns(OTHER)) == [turn.id for turn in talk(0, 2)], "written before it is read"
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"]
        assert memory.redis() == RedisStatus("ok")


async def test_a_restart_between_two_messages_goes_unnoticed(
    tmp_path: Path, own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The idle connections are dead then; that is no failure of the server."""
    caplog.set_level(logging.INFO, "sanqiao")
    async with remembering(tmp_path, own.url) as memory:
        await talked(memory, tmp_path, 0, 1)
        own.kill()
        own.start()
        await talked(memory, tmp_path, 1, 1)
        assert len(own.turns(CONVERSATION)) == 4
        assert changes(caplog) == ["redis_up"]


async def test_frozen_and_thawed(tmp_path: Path, own: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with remembering(tmp_path, own.url) as memory:
        await talked(memory, tmp_path, 0)
        own.freeze()
        begun = time.monotonic()
        with impatient(memory, 0.3):
            await memory.remember(CONVERSATION, talk(5, 1))
        assert 0.3 <= time.monotonic() - begun < 15
        assert memory.redis().state == "down"
        await talked(memory, tmp_path, 6, 4)
        assert "没有按时回应" in memory.redis().remedy
        own.thaw()  # what was sent before it froze is carried out now, late
        rested(memory)
        await talked(memory, tmp_path, 10)
        assert ids(own.turns(CONVERSATION)) == [turn.id for turn in talk(0, 15)]
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"]


async def test_a_full_redis(tmp_path: Path, own: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with remembering(tmp_path, own.url) as memory:
        await talked(memory, tmp_path, 0)
        own.client.config_set("maxmemory", 1)
        await talked(memory, tmp_path, 5)
        rested(memory)
        await talked(memory, tmp_path, 10)
        assert "maxmemory" in memory.redis().remedy
        own.client.config_set("maxmemory", 0)
        rested(memory)
        await talked(memory, tmp_path, 15)
        assert len(own.turns(CONVERSATION)) == 40
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"]
    assert "第" not in caplog.text, "no text"
    assert str(CONVERSATION) not in caplog.text, "no key"


async def test_a_read_only_replica(tmp_path: Path, own: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with remembering(tmp_path, own.url) as memory:
        await talked(memory, tmp_path, 0)
        own.client.replicaof("127.0.0.1", str(own.port))
        await talked(memory, tmp_path, 5)
        rested(memory)
        await talked(memory, tmp_path, 10)
        assert "只读" in memory.redis().remedy
        own.client.replicaof("NO", "ONE")
        rested(memory)
        await talked(memory, tmp_path, 15)
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"], "reads that succeed are no recovery"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "black hole": ({}, "没有按时回应"),
    "hangs up": ({"close": True}, "连不上"),
    "loading": ({"answer": b"-LOADING Redis is loading the dataset in memory\r\n"}, "正在加载"),
    "wants a password": ({"answer": b"-NOAUTH Authentication required.\r\n"}, "密码"),
    "no right": ({"answer": b"-NOPERM this user has no permissions\r\n"}, "权限"),
    "too many clients": ({"answer": b"-ERR max number of clients reached\r\n"}, "maxclients"),
    "no Redis": ({"answer": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "指向的是 Redis"),
    "rubbish": ({"answer": b"*2\r\n:x\r\n$zz\r\n"}, "Redis"),
    "other errors": ({"answer": b"-ERR no such thing\r\n"}, "日志"),
}


@pytest.mark.parametrize("name", BAD)
async def test_one_attempt_per_pause(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    kind, remedy = BAD[name]
    conversations = [CONVERSATION.lane.with_agent(f"agent-{i}") for i in range(10)]
    async with BadRedis(**kind) as bad, remembering(tmp_path, bad.url, timeout="100ms") as memory:
        for number in range(6):
            if number % 2:
                rested(memory)
            await asyncio.gather(*(memory.remember(each, talk(number, 1)) for each in conversations))
            windows = await asyncio.gather(*(seen(memory, each) for each in conversations))
            assert all(window.messages[-1].content == f"第{number}个回答" for window in windows)
            assert bad.connections == 1 + (number + 1) // 2
        assert remedy in memory.redis().remedy
        assert changes(caplog) == ["redis_down"]


async def test_many_at_once_meet_a_frozen_redis(tmp_path: Path, own: RedisServer) -> None:
    """Those that wait for a connection try nothing once the first has failed."""
    conversations = [CONVERSATION.lane.with_agent(f"agent-{i}") for i in range(40)]
    async with remembering(tmp_path, own.url) as memory:
        await asyncio.gather(*(memory.remember(each, talk(0, 1)) for each in conversations))
        own.freeze()
        link = link_of(memory)
        with impatient(memory), mock.patch.object(link, "_tried", wraps=link._tried) as tried:
            await asyncio.gather(*(memory.remember(each, talk(1, 1)) for each in conversations))
        assert 1 <= tried.call_count <= CONNECTIONS
        assert memory.redis().state == "down"
        own.thaw()
        assert own.client.info("stats")["total_connections_received"] <= 12


async def test_a_cancellation_is_never_lost(server: RedisServer) -> None:
    """Whenever it comes; redis-py loses one that comes when a command has just gone out."""
    link = RedisLink(settings(server.url))
    await link.attempt(lambda client: client.delete("x"))

    async def uses() -> None:
        while True:
            await link.use(lambda client: client.get("x"))

    for n in range(10):
        task = asyncio.create_task(uses())
        await asyncio.sleep(0.003 + n / 10_000)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=20)
        task.cancel()
        assert done, "cancelled once"
        assert link.usable
    await link.close()


async def test_a_cancelled_use_is_no_failure(tmp_path: Path, own: RedisServer) -> None:
    async with remembering(tmp_path, own.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        own.freeze()
        tasks = [asyncio.create_task(seen(memory)) for _ in range(3)]
        tasks.append(asyncio.create_task(memory.remember(CONVERSATION, talk(1, 1))))
        path = tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
        await until(lambda: b'"a1"' in path.read_bytes())
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*tasks, return_exceptions=True)
        )
        own.thaw()
        assert memory.redis().state == "ok"
        await talked(memory, tmp_path, 2)
        assert ids(own.turns(CONVERSATION)) == [turn.id for turn in talk(0, 7)]


async def test_a_cancelled_probe_does_not_stand_in_the_way(tmp_path: Path) -> None:
    now = 0.0
    async with BadRedis() as bad:
        link = RedisLink(settings(bad.url), clock=lambda: now)
        for expected in (1, 2):
            task = asyncio.create_task(link.attempt(lambda client: client.delete("x")))
            await until(lambda expected=expected: bad.connections == expected)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not link.due
            now += 3600
            assert link.due
        await link.close()


async def test_no_secret_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "sanqiao")
    with RedisServer("--requirepass", "right") as server:
        url = f"redis://:SECRETCANARY@127.0.0.1:{server.port}/0"
        async with remembering(tmp_path, url) as memory:
            await memory.remember(CONVERSATION, talk(0, 1))
            assert "密码" in memory.redis().remedy
            assert "SECRETCANARY" not in repr(memory.redis()) + repr(settings(url))
        assert "SECRETCANARY" not in caplog.text
        async with remembering(tmp_path, f"redis://:right@127.0.0.1:{server.port}/1") as memory:
            await memory.remember(CONVERSATION, talk(1, 1))
            assert memory.redis().state == "ok"


async def test_writing_after_the_store_is_closed_is_no_failure_of_redis(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path, redis=settings(server.url))
    await memory.open()
    append = memory._store.append

    async def append_and_close(*args: Any, **more: Any) -> list[Turn]:
        written = await append(*args, **more)
        await memory._store.close()
        return written

    monkeypatch.setattr(memory._store, "append", append_and_close)
    assert len(await memory.remember(CONVERSATION, talk(0, 1))) == 2
    assert memory.redis().state == "ok"
    await memory.close()


# ---- forgetting


async def test_forgetting(tmp_path: Path, own: RedisServer) -> None:
    async with remembering(tmp_path, own.url) as memory:
        store = memory._short_term
        assert store is not None
        await memory.remember(CONVERSATION, talk(0, 1))
        await memory.remember(OTHER, talk(0, 1))
        assert await store.forget(CONVERSATION)
        assert sorted(own.client.keys("*")) == [f"gateway:{kind}:{OTHER}".encode() for kind in ("memory", "state")]


async def test_forgetting_while_redis_is_away_is_made_up_for(tmp_path: Path, own: RedisServer) -> None:
    async with remembering(tmp_path, own.url) as memory:
        store = memory._short_term
        assert store is not None
        await memory.remember(CONVERSATION, talk(0, 1))
        own.freeze()
        with impatient(memory):
            assert not await store.forget(CONVERSATION)
        own.thaw()
        own.client.set(f"gateway:memory:{CONVERSATION}", "still there")
        rested(memory)
        await memory.remember(OTHER, talk(0, 1))
        assert sorted(own.client.keys("*")) == [f"gateway:{kind}:{OTHER}".encode() for kind in ("memory", "state")]


PERSON = CONVERSATION.lane.user
ELSE = ConversationId.parse("ueyvbddhftr73:feishu:b759cea3338c:0:general-agent")
GROUP = ConversationId.parse("gu3r7qbo6l6i3:feishu:b759cea3338c:1:general-agent")


def held(server: RedisServer) -> set[str]:
    return {key.decode() for key in server.client.keys("*")}


async def test_a_persons_keys_go_by_their_id_not_by_their_files(tmp_path: Path, server: RedisServer) -> None:
    prefix = "odd[*]?\\:"
    kept = {
        f"{prefix}memory:{ELSE}",
        f"{prefix}state:{ELSE}",
        f"{prefix}memory:{ELSE}:{PERSON}:x",
        f"{prefix}lane:{PERSON}:of-something-else",
        f"{prefix}memory:{PERSON}",
        f"odd*:memory:{CONVERSATION}",
        f"other:memory:{CONVERSATION}",
    }
    theirs = [f"{prefix}{kind}:{where}" for kind in ("memory", "state") for where in (CONVERSATION, OTHER)]
    async with remembering(tmp_path, server.url, prefix=prefix) as memory:
        for key in (*kept, *theirs):
            server.client.set(key, "x")
        _, gone = await memory.forget(PERSON)
        assert gone
        assert held(server) == kept


async def test_keys_are_found_among_many(tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_deletions, "SCANNED", 50)
    server.client.mset({f"foreign:{n}": "x" for n in range(2000)})
    async with remembering(tmp_path, server.url) as memory:
        server.client.mset({f"gateway:memory:{PERSON}:feishu:{n}": "x" for n in range(200)})
        _, gone = await memory.forget(PERSON)
        assert gone
        assert server.client.dbsize() == 2000


async def test_a_redis_with_too_many_keys_is_not_searched_without_end(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is known of the files is deleted all the same; the rest is left to its TTL, and that is said."""
    monkeypatch.setattr(redis_deletions, "SCANNED", 1)
    monkeypatch.setattr(redis_deletions, "SEARCH", 0.05)
    server.client.mset({f"foreign:{n}": "x" for n in range(20_000)})
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        _, gone = await memory.forget(PERSON)
        assert not gone
        assert server.client.dbsize() == 20_000
        assert [record.getMessage().split()[0] for record in caplog.records] == ["redis_keys_left"]
        assert memory.redis().state == "ok"


async def test_a_redis_that_may_not_be_searched(tmp_path: Path, own: RedisServer) -> None:
    own.client.execute_command("ACL", "SETUSER", "gateway", "on", ">right", "~gateway:*", "+@all", "-scan")
    async with remembering(tmp_path, f"redis://gateway:right@127.0.0.1:{own.port}/0") as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        await memory.remember(ELSE, talk(0, 1))
        _, gone = await memory.forget(PERSON)
        assert not gone
        assert held(own) == {f"gateway:{kind}:{ELSE}" for kind in ("memory", "state")}
        assert memory.redis().state == "ok"


async def test_a_group_that_cannot_be_changed_keeps_no_key_of_the_person(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path, server.url) as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        await memory.remember(GROUP, [user("g1", "群里说的", user=PERSON)])
        rewrite = Appender.rewrite

        def full(*_: object) -> None:
            raise StoreFull("磁盘已满")

        monkeypatch.setattr(Appender, "rewrite", full)
        with pytest.raises(StoreFull):
            await memory.forget(PERSON)
        assert held(server) == set()
        monkeypatch.setattr(Appender, "rewrite", rewrite)
        erased, gone = await memory.forget(PERSON)
        assert (erased.turns, gone) == (1, True)


async def test_what_redis_missed_is_deleted_when_it_is_back_though_nobody_writes(
    tmp_path: Path, own: RedisServer
) -> None:
    async with remembering(tmp_path, own.url, cooldown="200ms") as memory:
        await memory.remember(CONVERSATION, talk(0, 1))
        await memory.remember(ELSE, talk(0, 1))
        trying = asyncio.create_task(memory.keep_trying(lambda: 0.02))
        own.client.set(f"gateway:memory:{PERSON}:known-to-no-file", "x")
        own.freeze()
        with impatient(memory):
            _, gone = await memory.forget(PERSON)
        assert not gone
        own.thaw()
        theirs = {f"gateway:{kind}:{ELSE}" for kind in ("memory", "state")}
        await until(lambda: held(own) == theirs)
        assert memory.redis().state == "ok"
        trying.cancel()


# ---- settings


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://:p%40ss@h",
        "rediss://u:p@h:1/15?ssl_cert_reqs=none",
        "unix:///run/redis.sock?db=1",
    ],
)
def test_addresses(url: str) -> None:
    assert settings(url).url.get_secret_value() == url


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:6379", "http://CANARY@h", "redis://", "redis://h:CANARY", "redis://h/CANARY", "unix://", "redis://h:0"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValidationError, match="redis://127") as caught:
        settings(url)
    assert "CANARY" not in str(caught.value)


def test_without_an_address_redis_is_off_and_not_imported(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, pathlib; import gateway.app; from memory.memory import Memory;"
        "from memory.redis_link import RedisSettings as R; m = Memory(pathlib.Path(sys.argv[1]), redis=R(url=''));"
        "asyncio.run(m.open()); asyncio.run(m.close()); print(m.redis().state, 'redis' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False, text=True)
    assert done.stdout.split() == ["off", "False"], done.stderr


def test_a_state_is_numbers_or_nothing() -> None:
    good = '{"size": 1, "mtime_ns": 2, "start": 0, "crc": null}'
    assert State.read(good.encode()) == State(1, 2, 0, None)
    for bad in (
        "",
        "[]",
        "1",
        "{}",
        good.replace("2", "2.0"),
        good.replace("1", "true"),
        good.replace("}", ', "x": 1}'),
    ):
        assert State.read(bad.encode()) is None, bad
