"""B53: Redis goes down, comes back, hangs, fills up; nobody who writes to the bot notices.

Two gateways get the same messages, one with Redis and one without: in each phase every answer comes in time, and the
model sees the same windows.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memory.memory import Memory
from tests.platforms.model_server import ModelServer
from tests.platforms.redis_server import BadRedis, RedisServer, impatient, link_of, rested
from tests.scenarios.gateway import Inside, asked

FLAP, FLAP_FOR = float(os.environ.get("FLAP", "0.5")), float(os.environ.get("FLAP_FOR", "3.2"))
SLOWER = 10.0
"""Seconds that an answer may take beyond the model's own: far below the time-out."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


class Twins:
    """A gateway with Redis and one without, and what people say to both."""

    def __init__(self, root: Path, url: str, models: tuple[ModelServer, ModelServer], keys: Mapping[str, str]) -> None:
        self.models = models
        over = {"memory": {"redis": {"url": url, "cooldown": "1h", "timeout": "20s", **keys}}}
        self.gateway = Inside(root / "with", models[0], over)
        self.plain = Inside(root / "without", models[1])
        self.said = 0
        self.conversation = ""

    async def says(self, count: int = 5, user: str = "u") -> None:
        """So many messages, each answered in time, in the same window."""
        for _ in range(count):
            self.said += 1
            text = f"第{self.said}句话" if self.said > 1 else "我叫钱七"
            begun = time.monotonic()
            answer = await self.gateway.chat(user, text)
            assert time.monotonic() - begun < SLOWER, text
            assert answer.text == f"答复：{text}"
            self.conversation = answer.conversation or ""
            await self.plain.chat(user, text)
            assert asked(self.models[0])[-1] == asked(self.models[1])[-1]

    async def redis(self) -> dict[str, Any]:
        """What the status tells of Redis."""
        status, body = await self.gateway.get("/api/status")
        assert status == 200
        return dict(body["redis"])

    @property
    def memory(self) -> Memory:
        """The memory of the gateway with Redis."""
        return self.gateway.app._memory

    def rests(self) -> None:
        """The pause after a failure is over."""
        rested(self.memory)


@contextlib.asynccontextmanager
async def twins(root: Path, url: str, **keys: str) -> AsyncIterator[Twins]:
    async with ModelServer() as one, ModelServer() as other:
        both = Twins(root, url, (one, other), keys)
        async with both.gateway, both.plain:
            yield both


def kept(server: RedisServer, both: Twins) -> list[str]:
    """The users' messages that Redis holds, in order."""
    turns = [json.loads(element) for element in server.turns(both.conversation)]
    return [turn["text"] for turn in turns if turn["role"] == "user"]


def everything(both: Twins) -> list[str]:
    return ["我叫钱七", *(f"第{n}句话" for n in range(2, both.said + 1))]


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines about Redis, by their event."""
    return [record.getMessage().split()[0] for record in caplog.records if "redis" in record.getMessage()]


async def test_killed_and_back(tmp_path: Path, server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with twins(tmp_path, server.url) as both:
        assert await both.redis() == {"state": "ok", "cooldown_left": 0.0, "remedy": ""}
        await both.says()
        assert kept(server, both) == everything(both)
        server.kill()
        await both.says()
        status = await both.redis()
        assert status["state"] == "down"
        assert 3000 < status["cooldown_left"] <= 3600
        assert "memory.redis.url" in status["remedy"]
        assert (await both.gateway.health()) == (200, "degraded")
        server.start()
        both.rests()
        await both.says(1)
        assert kept(server, both) == everything(both), "what was said meanwhile"
        assert 86_000 < server.client.ttl(f"gateway:memory:{both.conversation}") <= 86_400
        await both.says()
        assert (await both.gateway.health()) == (200, "ok")
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"]
        assert await both.gateway.said() == await both.plain.said(), "the files are complete"


async def test_frozen_flushed_spoiled(tmp_path: Path, server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with twins(tmp_path, server.url) as both:
        await both.says()
        server.freeze()
        with impatient(both.memory):
            await both.says()
        assert (await both.redis())["state"] == "down"
        server.thaw()
        both.rests()
        await both.says()
        assert kept(server, both) == everything(both)
        for spoil in (
            server.client.flushall,
            lambda: server.client.set(f"gateway:memory:{both.conversation}", "no list"),
            lambda: server.client.delete(f"gateway:state:{both.conversation}"),
            lambda: server.client.ltrim(f"gateway:memory:{both.conversation}", 2, 5),
        ):
            spoil()
            await both.says(2)
            assert kept(server, both) == everything(both)
        assert (await both.redis())["state"] == "ok"
        assert all(key.startswith(b"gateway:") for key in server.client.keys("*"))
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up"]


async def test_full_and_read_only(tmp_path: Path, server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with twins(tmp_path, server.url) as both:
        await both.says()
        server.client.config_set("maxmemory", 1)
        await both.says()
        assert "maxmemory" in (await both.redis())["remedy"]
        server.client.config_set("maxmemory", 0)
        both.rests()
        await both.says()
        assert kept(server, both) == everything(both)
        server.client.replicaof("127.0.0.1", str(server.port))
        await both.says()
        both.rests()
        await both.says()
        assert "只读" in (await both.redis())["remedy"]
        server.client.replicaof("NO", "ONE")
        both.rests()
        await both.says()
        assert kept(server, both) == everything(both)
        assert changes(caplog) == ["redis_up", "redis_down", "redis_up", "redis_down", "redis_up"]
        assert "句话" not in "".join(record.getMessage() for record in caplog.records if "redis" in record.getMessage())


@pytest.mark.timeout(60 + FLAP_FOR)
async def test_it_comes_and_goes(tmp_path: Path, server: RedisServer) -> None:
    """Up for half a second, away for half a second, again and again; FLAP=5 FLAP_FOR=60 takes a minute of it."""

    async def flaps() -> None:
        while True:
            await asyncio.sleep(FLAP)
            server.kill()
            await asyncio.sleep(FLAP)
            server.start()

    async with twins(tmp_path, server.url, cooldown="400ms") as both:
        flapping = asyncio.create_task(flaps())
        begun = time.monotonic()
        while time.monotonic() - begun < FLAP_FOR:
            await both.says()
            await asyncio.sleep(0.05)
        flapping.cancel()
        await asyncio.gather(flapping, return_exceptions=True)
        server.kill()
        server.start()
        both.rests()
        await both.says(1)
        assert kept(server, both)[-10:] == everything(both)[-10:]
        assert await both.gateway.said() == await both.plain.said()


async def test_a_black_hole_is_asked_once_per_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao")
    async with BadRedis() as hole:
        async with twins(tmp_path, hole.url, timeout="200ms") as both:
            for number in range(3):
                await both.says()
                both.rests()
                await asyncio.gather(*(both.gateway.chat(f"u{n}", "你好") for n in range(8)))
                assert hole.connections == 2 + number
            assert (await both.redis())["state"] == "down"
        assert changes(caplog) == ["redis_down"]


async def test_a_gateway_starts_and_stops_without_its_redis(tmp_path: Path, server: RedisServer) -> None:
    server.kill()
    async with twins(tmp_path, server.url) as both:
        await both.says(2)
        server.start()
        both.rests()
        await both.says(1)
        assert kept(server, both) == everything(both)
        server.freeze()
        link_of(both.memory)._timeout = 0.2
        begun = time.monotonic()
    assert time.monotonic() - begun < SLOWER


async def test_a_second_start_finds_what_the_first_one_left(tmp_path: Path, server: RedisServer) -> None:
    async with twins(tmp_path, server.url) as both:
        await both.says(3)
    async with twins(tmp_path, server.url) as again:
        again.said = 3
        again.conversation = both.conversation
        before = server.turns(both.conversation)
        await again.says(1)
        assert server.turns(both.conversation)[: len(before)] == before
        assert kept(server, again) == everything(again)


async def test_masked_before_redis(tmp_path: Path, server: RedisServer) -> None:
    async with twins(tmp_path, server.url) as both:
        both.conversation = (await both.gateway.chat("u", "我的电话是 13812345678")).conversation or ""
        (text,) = kept(server, both)
        assert "13812345678" not in text


async def test_it_is_off_without_an_address(gateway: Inside) -> None:
    _, body = await gateway.get("/api/status")
    assert body["redis"] == {"state": "off", "cooldown_left": 0.0, "remedy": ""}
