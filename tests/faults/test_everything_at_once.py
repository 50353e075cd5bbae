"""Everything at once: people on every platform, a moody model, and a killer; then what was promised is checked.

`ROUNDS` sets how many times it is killed with -9, half as many other faults come on top; `SEED` repeats a run.
"""

import asyncio
import contextlib
import os
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.crowd import (
    OnDingTalk,
    OnFeishu,
    OnFeishuConnection,
    OnWeb,
    OnWeChat,
    OnWeCom,
    Person,
    SeeingDingTalk,
    look_at_dingtalk,
    look_at_feishu,
    look_at_wecom,
)
from tests.faults.hurried import Hurried
from tests.faults.killer import CODES, Disk, Killer
from tests.faults.moody_model import MoodyModel, key_of_a_life
from tests.faults.record import Record, text_of
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.redis_server import RedisServer
from tests.platforms.wechat_platform import AES_KEY, APP_ID, APP_SECRET, TOKEN, WeChatPlatform
from tests.platforms.wecom_bot import FakeWeComBot
from tests.scenarios.gateway import CANARY, feishu_entry
from tests.waiting import until, until_told

ROUNDS = int(os.environ.get("ROUNDS", "30"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
PEOPLE = 2
"""On each platform, and one in the web chat."""
MOST_MIB = 200


class Stage:
    """One gateway, all platforms, the model, and people."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.record = Record()
        self.model = MoodyModel(random.Random(rng.random()))
        self.feishu, self.feishu_far = FakeFeishu(), FakeFeishu(app_id="cli_far")
        self.ding, self.wechat, self.wecom = SeeingDingTalk(), WeChatPlatform(patience=3.0), FakeWeComBot()
        self.redis = RedisServer()
        self.disk = Disk(root / "workspace")

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Stage"]:
        async with contextlib.AsyncExitStack() as stack:
            for each in (self.model, self.feishu, self.feishu_far, self.ding, self.wechat, self.wecom):
                await stack.enter_async_context(each)
            await asyncio.to_thread(self.redis.start)
            stack.push_async_callback(asyncio.to_thread, self.redis.kill)
            await asyncio.to_thread(self.disk.mount)
            stack.push_async_callback(asyncio.to_thread, self.disk.unmount, self.root / "kept")
            self.gateway = Hurried(self.root, self.model, self._config())
            stack.push_async_callback(self._end)
            self.wechat.url = self.gateway.url("/wechat")
            self.feishu.client_config["PingInterval"] = self.feishu_far.client_config["PingInterval"] = 1
            self.killer = Killer(self.gateway, self.disk, self.redis, self.rng, self.model.excuse)
            self.people = self._crowd()
            yield self
            self.redis.client.close()

    async def _end(self) -> None:
        if self.gateway.process is not None:
            await self.gateway.kill()

    def _config(self) -> dict[str, Any]:
        far = feishu_entry(self.feishu_far, "websocket", kind="feishu")
        credentials = {"client-id": self.ding.client_id, "client-secret": self.ding.client_secret}
        addresses = {"api-base-url": self.ding.base, "oapi-base-url": self.ding.base}
        account = {"app-id": APP_ID, "app-secret": APP_SECRET, "token": TOKEN, "encoding-aes-key": AES_KEY}
        bot = {"bot-id": self.wecom.bot_id, "secret": self.wecom.secret, "websocket-url": self.wecom.url}
        return {
            "server": {"drain": "2s"},
            "models": {"main": {"api-key": key_of_a_life(CANARY), "timeout": "8s", "total-timeout": "30s"}},
            "memory": {"redis": {"url": self.redis.url, "cooldown": "300ms", "timeout": "200ms"}},
            "conversations": {"answer-after-restart": "24h"},
            "channels": {
                "feishu": feishu_entry(self.feishu, "webhook"),
                "feishu-far": far,
                "dingtalk": {"enabled": True, **credentials, **addresses},
                "wechat": {"enabled": True, **account, "active-send": "off", "api-base-url": self.wechat.base},
                "wecom-bot": {"enabled": True, **bot},
            },
        }

    def _crowd(self) -> list[Person]:
        def given(number: int) -> tuple[Any, ...]:
            rng = random.Random(self.rng.random())
            # Mostly a pause, sometimes none: then what is said waits, and becomes one turn.
            return number, self.record, rng, lambda: rng.random() * 1.2 if rng.random() < 0.7 else 0.0

        makers: list[Callable[..., Person]] = [
            lambda *a: OnFeishu(self.feishu, self.gateway, *a),
            lambda *a: OnFeishuConnection(self.feishu_far, self.gateway, *a),
            lambda *a: OnDingTalk(self.ding, *a),
            lambda *a: OnWeChat(self.wechat, *a),
            lambda *a: OnWeCom(self.wecom, *a),
        ]
        made = [make(*given(at * PEOPLE + n)) for at, make in enumerate(makers) for n in range(PEOPLE)]
        return [*made, OnWeb(self.gateway, *given(len(made)))]

    # ---- what befalls the platforms

    async def _break_connections(self) -> None:
        with contextlib.suppress(IndexError):
            self.ding.abort()
        await self.feishu_far.drop(abort=True)
        await self.wecom.drop(abort=True)

    async def _refuse_answers(self) -> None:
        for fake in (self.feishu, self.feishu_far):
            fake.faults += [("/im/v1/messages", 500, 1500, ""), ("/im/v1/messages", 400, 230020, "")]
            fake.revoke_tokens()
        self.ding.faults["/robot/sendBySession"] = [(200, {"errcode": -1, "errmsg": "busy"})]

    async def _slow_platforms(self) -> None:
        for fake in (self.feishu, self.feishu_far):
            fake.api_delay = 0.7
        self.ding.delays["/robot/sendBySession"] = 0.7
        await asyncio.sleep(0.8)
        for fake in (self.feishu, self.feishu_far):
            fake.api_delay = 0.0
        self.ding.delays.clear()

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """All there are, by name."""
        return {
            **self.killer.faults,
            "connections broken": self._break_connections,
            "answers refused": self._refuse_answers,
            "platforms slow": self._slow_platforms,
        }

    async def is_up(self) -> None:
        """Waits until it serves, a few seconds at most: the disk may be full."""
        end = time.monotonic() + 3.0
        while (await self.gateway.health())[0] != 200 and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def watch_the_machine(self) -> None:
        """A machine that stands still for a moment is nobody's fault, but the model is not heard in time."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            if time.monotonic() - before > 0.4:
                self.model.excuse()

    # ---- the end

    async def settle(self) -> None:
        """All is well again, everybody is silent, and nothing is left to be done."""
        self.model.calm = True
        for person in self.people:
            person.end.set()
        await self._is_idle()
        for person in self.people:
            if isinstance(person, OnWeChat):
                await person.fetch()
        await self._is_idle()

    async def _is_idle(self) -> None:
        async def waiting() -> object:
            with contextlib.suppress(OSError, ValueError, TypeError):
                status, told = await self.gateway.get("/api/status")
                return status, told["queue"], told["memory"]["waiting"], told["inbox"]["state"]
            return None

        idle = (200, {"waiting": 0, "unsent": 0, "lanes": 0}, 0, "ok")
        await until_told(waiting, idle, timeout=90)

    async def find_redis(self) -> None:
        """Redis is well again; who says something then finds it so."""
        (web,) = (person for person in self.people if isinstance(person, OnWeb))

        async def state() -> object:
            web.count += 1
            await web.say(text_of(web.number, web.count))
            with contextlib.suppress(OSError, ValueError, TypeError):
                return (await self.gateway.get("/api/status"))[1]["redis"]["state"]
            return None

        await until_told(state, "ok", timeout=60)
        await self._is_idle()

    def look(self) -> None:
        """Puts on the record what people saw."""
        for fake in (self.feishu, self.feishu_far):
            look_at_feishu(fake, self.record)
        look_at_dingtalk(self.ding, [each for each in self.people if isinstance(each, OnDingTalk)])
        look_at_wecom(self.wecom, [each for each in self.people if isinstance(each, OnWeCom)])
        self.record.excused = self.model.excused


def programme(rng: random.Random, faults: list[str], rounds: int) -> list[str]:
    """Which faults, in which order: `rounds` of kill -9, and half as many others, each of them at least once."""
    others = [name for name in faults if name != "kill -9"]
    chosen = [*others, *rng.choices(others, k=max(rounds // 2 - len(others), 0))]
    order = ["kill -9"] * rounds + chosen
    rng.shuffle(order)
    return order


@pytest.mark.timeout(150 + 6 * ROUNDS)
async def test_everything_at_once(tmp_path: Path) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    begun = time.monotonic()
    async with Stage(tmp_path, rng).open() as stage, asyncio.TaskGroup() as tasks:
        order = programme(rng, list(stage.faults), ROUNDS)
        watching = tasks.create_task(stage.watch_the_machine())
        tasks.create_task(stage.killer.keep_up())
        await until(lambda: stage.gateway.process is not None, timeout=60)
        writers = [tasks.create_task(person.write()) for person in stage.people]
        troubles = []
        for name in order:
            if rng.random() < 0.7:  # else also while it starts and takes up what was left
                await stage.is_up()
            await asyncio.sleep(rng.random() * 0.3)
            troubles.append(tasks.create_task(stage.faults[name]()))
        await asyncio.gather(*troubles)
        await stage.settle()
        await asyncio.gather(*writers)
        await stage.find_redis()
        memory = psutil.Process(stage.gateway.pid).memory_info().rss >> 20
        stage.killer.rest()
        watching.cancel()
        assert await stage.gateway.stop() == 0
        stage.look()
        turns = await asyncio.to_thread(stage.record.check, stage.gateway.files())
        output = await asyncio.to_thread(stage.gateway.output)
    moods = ", ".join(f"{name} {count}" for name, count in stage.model.moods.items())
    print(
        f"{time.monotonic() - begun:.0f} s; faults {dict(Counter(order))}; model {moods}; ends {dict(stage.killer.codes)}"
    )
    print(
        f"{len(stage.record.messages)} messages, {sum(m.acknowledged for m in stage.record.messages)} acknowledged, "
        f"{len(turns)} turns, {stage.record.repeats(turns)} answers shown again, {memory} MiB"
    )
    assert stage.model.broken == []
    assert stage.wecom.broken == []
    assert set(stage.killer.codes) <= CODES
    check_starts(output, stage.killer.codes[2])
    assert memory < MOST_MIB
    assert {type(person) for person in stage.people} == {
        type(stage.people[turn.person]) for turn in turns if turn.answer
    }, "each platform had its say"
    check_log(output)


def check_starts(output: str, unable: int) -> None:
    """Where it could not start, the disk was full or another test had its port, and it said so."""
    reasons = re.findall(r"^(?:无法运行：|工作区 |端口 ).*", output, re.MULTILINE)
    assert len(reasons) == unable, output[-4000:]
    excuses = "disk is full|disk I/O|No space left|已被占用"
    assert [reason for reason in reasons if not re.search(excuses, reason)] == []


def check_log(output: str) -> None:
    """No secret, no word of a user, nothing that nobody caught."""
    for word in (CANARY, APP_SECRET, "bot-secret-canary", "secret_test", "人0"):
        assert word not in output, word
    odd = re.findall(r".*(?:Traceback|never retrieved|was never awaited|Unclosed|_failed |_error ).*", output)
    assert [line for line in odd if "OperationalError" not in line] == [], "only a full disk is an excuse"
