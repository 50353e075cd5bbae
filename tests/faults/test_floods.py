"""More than can be carried: everything is acknowledged soon, and answered or told that it is not; memory stays bounded.

`FLOOD` sets for how many seconds the flood of many persons lasts.
"""

import asyncio
import collections
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from channels.feishu import delivery
from gateway.config.texts import DEFAULTS
from tests.faults.hurried import Hurried
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Gateway, Inside, id_of, shown, texts
from tests.waiting import until

FLOOD = float(os.environ.get("FLOOD", "2"))
CARRIED = 10.0
"""Answers a second: what the model's places are good for."""
OVER = 5
ACK_P99 = 1.0
MOST_MIB = 120


@pytest.fixture(autouse=True)
def _quick_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the platform lets through in one chat is no part of this."""
    monkeypatch.setattr(delivery, "CHAT_RATE", 1000.0)
    monkeypatch.setattr(delivery, "APP_RATE", 1000.0)


class Flood:
    """Messages of people in Feishu, and how long each acknowledgement took.

    Beside it /healthz is asked, which does nothing, and a few bytes are put on the disk: what these wait is the
    machine's doing, and no fault.
    """

    def __init__(self, gateway: Gateway, feishu: FakeFeishu) -> None:
        self.gateway, self.feishu = gateway, feishu
        self.acks: list[float] = []
        self.asked: dict[str, str] = {}
        self.stood = 0.0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """How long the machine stands still meanwhile is noted."""
        watching = asyncio.create_task(self._watch())
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.gather(self.gateway.health(), asyncio.to_thread(self._sync))
            self.stood = max(self.stood, time.monotonic() - begun)
            await asyncio.sleep(0.05)

    def _sync(self) -> None:
        with (self.gateway.root / "a few bytes").open("wb") as file:
            file.write(b"x" * 100)
            file.flush()
            os.fdatasync(file.fileno())

    async def say(self, text: str, user: str) -> None:
        event = message_event(text, open_id=f"ou_{user}", chat_id=f"oc_{user}")
        begun = time.monotonic()
        assert await self.gateway.deliver(event)
        self.acks.append(time.monotonic() - begun)
        self.asked[id_of(event)] = text

    @property
    def p99(self) -> float:
        return sorted(self.acks)[int(len(self.acks) * 0.99)]

    def is_prompt(self, within: float = ACK_P99) -> None:
        """Acknowledgements wait for nothing that takes long."""
        assert self.p99 < within + 2 * self.stood, (self.p99, self.stood)

    async def settled(self, timeout: float = 60) -> None:
        """Nothing waits any more."""

        async def idle() -> None:
            while (await self.gateway.get("/api/status"))[1]["queue"] != {"waiting": 0, "unsent": 0, "lanes": 0}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

        async with asyncio.timeout(timeout):
            await idle()


def memory(gateway: Hurried) -> int:
    """MiB of its process."""
    return int(psutil.Process(gateway.pid).memory_info().rss >> 20)


def model_of(concurrency: int, total: str) -> dict[str, Any]:
    return {"models": {"main": {"max-concurrency": concurrency, "timeout": "10s", "total-timeout": total}}}


@pytest.mark.timeout(120 + 3 * FLOOD)
async def test_many_people_at_five_times_what_can_be_carried(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """Each of them gets the answer, or a friendly text within the model's total time; none waits without a word."""
    places = 4
    model.delay = lambda messages: places / CARRIED
    async with Hurried(tmp_path, model, model_of(places, "3s"), feishu=feishu) as gateway:
        flood, begun, before = Flood(gateway, feishu), time.monotonic(), memory(gateway)
        people = []
        async with flood.watched():
            for number in range(int(FLOOD * CARRIED * OVER)):
                people.append(asyncio.create_task(flood.say(f"第{number}人", f"p{number}")))
                await asyncio.sleep(begun + number / (CARRIED * OVER) - time.monotonic())
            await asyncio.gather(*people)
        await flood.settled()
        took, grown = time.monotonic() - begun, memory(gateway) - before
        answered = check_each_told_once(flood, {DEFAULTS["busy"], DEFAULTS["timeout"]})
        print(f"{len(people)} in {took:.1f} s, {answered} answered, acks p99 {flood.p99:.3f} s, {grown} MiB more")
        assert answered >= 0.6 * FLOOD * CARRIED, "a crowd keeps nobody busy in vain"
        flood.is_prompt()
        assert grown < MOST_MIB
        model.delay = lambda messages: 0.0
        said = await gateway.chat("web-user", "好了吗")
        assert said.text == "答复：好了吗", f"a model that is well, but asked too much, is not left alone: {said}"
        assert await gateway.stop() == 0


def check_each_told_once(flood: Flood, instead: set[str]) -> int:
    """Every message has one reply, its answer or one of `instead`; how many were answered."""
    replies: dict[str, list[str]] = collections.defaultdict(list)
    for each in shown(flood.feishu):
        replies[each.asked].append(each.text)
    odd = {text: replies[number] for number, text in flood.asked.items() if len(replies[number]) != 1}
    assert odd == {}
    found = [(text, *replies[number]) for number, text in flood.asked.items()]
    assert [each for each in found if each[1] not in (f"答复：{each[0]}", *instead)] == []
    return sum(reply == f"答复：{text}" for text, reply in found)


async def test_one_person_who_does_not_stop(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """Twenty a minute are answered, the others told once that it is too fast; nobody else notices."""
    limits = {"limits": {"messages-per-minute": 20}}
    model.delay = lambda messages: 0.05
    async with Inside(tmp_path, model, limits, feishu=feishu) as gateway:
        flood = Flood(gateway, feishu)
        async with flood.watched():
            flooding = asyncio.gather(*(flood.say(f"第{n:03d}句", "zhang") for n in range(150)))
            assert await gateway.feishu_says("我也在", "ou_li") == "答复：我也在"
            await flooding
        await flood.settled()
        said = texts(feishu)
        assert said.count(DEFAULTS["rate-limited"]) == 1
        lines = [line for text in said if text.startswith("答复：第") for line in lines_of(text)]
        assert len(lines) == 20
        flood.is_prompt(ACK_P99 + 1.0)  # all at once, the client's own part of it included


async def test_one_person_without_a_limit(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """What waits beyond fifty messages waits on the disk, is answered in turn, and costs the others nothing."""
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        model.delay = lambda messages: 1.0 if len(model.requests) == 1 else 0.0
        flood = Flood(gateway, feishu)
        await flood.say("第000句", "zhang")
        for n in range(1, 120):
            await flood.say(f"第{n:03d}句", "zhang")
        lane = next(iter(gateway.app._pipeline.lanes._lanes.values()))
        assert len(lane.waiting) <= 50
        await flood.settled()
        assert [line for text in texts(feishu) for line in lines_of(text)] == [f"第{n:03d}句" for n in range(120)]


def lines_of(answer: str) -> Sequence[str]:
    """The messages that an answer repeats."""
    return [line for line in answer.removeprefix("答复：").split("\n") if line]


async def test_a_model_that_hangs_touches_no_conversation_of_another(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """All places of one model are taken for good; who is answered by another waits for nobody."""
    async with ModelServer() as other:
        entry = {"base-url": other.base_url, "api-key": "k", "model": "fake-other", "provider": "openai"}
        over = {"models": {"main": {"max-concurrency": 2, "total-timeout": "100s", "timeout": "100s"}, "other": entry}}
        agents = {"job-recommend-agent": {"model": "other"}}
        model.delay = lambda messages: 60.0
        async with Inside(tmp_path, model, {**over, "server": {"drain": "0s"}}, agents, feishu=feishu) as gateway:
            flood = Flood(gateway, feishu)
            async with flood.watched():
                for n in range(8):
                    await flood.say(f"挂住{n}", f"p{n}")
            await until(lambda: model.running == 2)
            assert await gateway.feishu_says("推荐岗位", "ou_li") == "答复：推荐岗位"
            assert model.running == 2, "they hang still"
            flood.is_prompt()


async def test_a_platform_that_hangs_touches_no_other(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """Forty answers hang at one platform; the web chat is answered, and so is the next question there."""
    async with Inside(tmp_path, model, {"server": {"drain": "0s"}}, feishu=feishu) as gateway:
        assert await gateway.feishu_says("先来一句", "ou_li") == "答复：先来一句"
        feishu.api_delay = 60.0
        flood = Flood(gateway, feishu)
        async with flood.watched():
            for n in range(40):
                await flood.say(f"第{n}人", f"p{n}")
        await until(lambda: len(model.requests) == 41)
        assert (await gateway.chat("web-user", "网页还在吗")).text == "答复：网页还在吗"
        await flood.say("再问一句", "p0")
        await until(lambda: model.asked("再问一句"), what="a lane goes on while its answer is being sent")
        flood.is_prompt()
        feishu.api_delay = 0.0


async def test_a_file_that_hangs_touches_no_other(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One conversation's file is not put on the disk for long; the others are answered meanwhile."""
    sync, slow, go_on = os.fsync, set[str](), threading.Event()

    def fsync(fd: int) -> None:
        if any(name in os.readlink(f"/proc/self/fd/{fd}") for name in slow):
            assert go_on.wait(60)
        sync(fd)

    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        assert await gateway.feishu_says("先来一句", "ou_zhang") == "答复：先来一句"
        (path,) = await asyncio.to_thread(gateway.files)
        slow.add(path.name)
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "fdatasync", fsync)
        number = await gateway.feishu_event("慢的这句", "ou_zhang")
        for n in range(2):
            assert await gateway.feishu_says(f"第{n}句", f"ou_li{n}") == f"答复：第{n}句"
        assert texts(feishu, number) == [], "the others were answered meanwhile"
        go_on.set()
        await until(lambda: texts(feishu, number) == ["答复：慢的这句"])
