"""B19: a platform that freezes, flaps, refuses or restarts under a long connection.

Noticed within its bound, tried again with growing pauses, told truthfully by /healthz and /api/status, and once the
platform is well, so is the channel, by itself.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from channels.dingtalk import long_connection as dingtalk
from channels.feishu import long_connection as feishu
from channels.feishu.endpoint import ConnectFailed
from channels.reconnecting import Backoff, Disconnected
from channels.wecom import connection, exchange
from channels.wecom.losses import Loss
from tests.channels.brisk import brisk
from tests.channels.conformance.dingtalk import DingTalkStream
from tests.channels.conformance.feishu import FeishuConnection
from tests.channels.conformance.platform import Platform
from tests.channels.conformance.wecom import WeComConnection
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside
from tests.waiting import until, until_told

CONNECTIONS: list[type[Platform]] = [FeishuConnection, DingTalkStream, WeComConnection]

FROZEN_BOUND: Mapping[str, float] = {"feishu": 2 * 1 + 0.5, "dingtalk": 1.5, "wecom-bot": 0.3 + 2 * 0.3 + 0.3}
"""Seconds, with the short intervals of `hurried`: twice the ping interval and a half; silence; two missed answers."""

QUIET: Mapping[str, float] = {"feishu": 2 * 1 + 4.5, "dingtalk": 6.0, "wecom-bot": 2 * (0.3 + 2.0)}
"""The same with those of `unhurried`."""

LOST: Mapping[str, type[Disconnected]] = {
    "feishu": ConnectFailed,
    "dingtalk": dingtalk.ConnectFailed,
    "wecom-bot": Loss,
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep-alive in short intervals; the pauses stay as they are."""
    monkeypatch.setattr(feishu, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(dingtalk, "SILENCE_SECONDS", FROZEN_BOUND["dingtalk"])
    monkeypatch.setattr(connection, "PING_SECONDS", 0.3)
    monkeypatch.setattr(exchange, "ACK_SECONDS", 0.3)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short intervals, and more patience than a busy machine needs."""
    monkeypatch.setattr(feishu, "SILENCE_SECONDS", 4.5)
    monkeypatch.setattr(dingtalk, "SILENCE_SECONDS", QUIET["dingtalk"])
    monkeypatch.setattr(connection, "PING_SECONDS", 0.3)
    monkeypatch.setattr(exchange, "ACK_SECONDS", 2.0)


@pytest.fixture
def brisk_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pauses after a loss a quarter as long."""
    brisk(monkeypatch, 0.25)


Opened = Callable[..., contextlib.AbstractAsyncContextManager[tuple[Platform, Inside]]]


@pytest.fixture
def opened(tmp_path: Path, model: ModelServer) -> Opened:
    @contextlib.asynccontextmanager
    async def open_(kind: type[Platform], **entry: Any) -> AsyncIterator[tuple[Platform, Inside]]:
        async with kind() as platform:
            if isinstance(platform, FeishuConnection):
                platform.fake.client_config["PingInterval"] = 1
            settings = {"channels": {kind.kind: {**platform.entry(), **entry}}}
            async with Inside(tmp_path, model, settings) as gateway:
                yield platform, gateway

    return open_


async def channel(gateway: Inside, platform: Platform) -> dict[str, Any]:
    """What /api/status says of the channel; /healthz, asked at the same moment, says the same in a word."""
    while True:
        _, before = await gateway.get("/api/status")
        code, word = await gateway.health()
        _, after = await gateway.get("/api/status")
        assert code == 200
        if before["status"] == after["status"]:
            break
    found: dict[str, Any] = after["channels"][platform.kind]
    assert found["ok"] == (word == "ok") == (after["status"] == "ok")
    return found


async def becomes(gateway: Inside, platform: Platform, ok: bool, within: float = 40.0) -> dict[str, Any]:
    """Waits until the channel is well (or is not); what is said of it then. A machine that stands still stops the time."""
    left = within
    while True:
        before = time.monotonic()
        found = await channel(gateway, platform)
        if found["ok"] is ok:
            return found
        assert left > 0, (within, found)
        await asyncio.sleep(0.05)
        left -= min(time.monotonic() - before, 0.2)


async def answers(gateway: Inside, platform: Platform, text: str) -> None:
    """A message gets through, and so does its answer."""
    await platform.connected()
    assert await platform.deliver(gateway, platform.message(text, text))
    await until(lambda: any(text in answer for answer in platform.answers()), what=f"answer to {text}")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_a_frozen_platform_is_noticed_and_left(kind: type[Platform], opened: Opened) -> None:
    async with opened(kind) as (platform, gateway):
        await answers(gateway, platform, "之前")
        assert (await becomes(gateway, platform, True))["detail"] == "正常"
        platform.proxy.freeze()
        found = await becomes(gateway, platform, False, FROZEN_BOUND[kind.kind] + 1.0)
        assert "断开" in found["detail"]
        assert "检查网络" in found["detail"]
        said = await gateway.chat("web-user", "网页还在吗")
        assert said.text == "答复：网页还在吗", "one platform's trouble is nobody else's"
        platform.proxy.thaw()
        await becomes(gateway, platform, True)
        await answers(gateway, platform, "之后")


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_a_quiet_platform_is_not_torn_down(kind: type[Platform], opened: Opened) -> None:
    """Nothing but keep-alive for longer than it takes to notice a frozen one; a pause of a moment is no fault."""
    async with opened(kind) as (platform, gateway):
        await platform.connected()
        await becomes(gateway, platform, True)
        taken = len(platform.proxy.accepted)
        platform.proxy.freeze()
        await asyncio.sleep(0.3)
        platform.proxy.thaw()
        await asyncio.sleep(QUIET[kind.kind] + 0.5)
        assert len(platform.proxy.accepted) == taken
        await answers(gateway, platform, "安静之后")


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every pause before a further try, in seconds, as it is decided."""
    found: list[float] = []
    decide = Backoff.pause

    def noted(self: Backoff, loss: Disconnected, lasted: float) -> float:
        found.append(decide(self, loss, lasted))
        return found[-1]

    monkeypatch.setattr(Backoff, "pause", noted)
    return found


@pytest.mark.usefixtures("brisk_pauses")
@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_a_flapping_platform_is_asked_less_and_less(
    kind: type[Platform], opened: Opened, paused: list[float]
) -> None:
    async with opened(kind) as (platform, gateway):
        await platform.connected()
        await becomes(gateway, platform, True)
        platform.proxy.flapping = True
        platform.proxy.accepted.clear()
        paused.clear()
        begun = time.monotonic()
        platform.proxy.drop()
        await becomes(gateway, platform, False)
        await until(lambda: len(paused) >= 4, what="three tries")
        waited, tried = paused[:-1], len(platform.proxy.accepted)
        assert time.monotonic() - begun >= sum(waited)
        assert tried <= 2 * len(paused), "a storm: a try may be two connections, one right after the other"
        least = [LOST[kind.kind].pauses.after(times, 0.0) for times in range(len(waited))]
        assert all(pause >= bound for pause, bound in zip(waited, least, strict=True)), (waited, least)
        assert least == sorted(set(least))
        platform.proxy.flapping = False
        await becomes(gateway, platform, True)
        await answers(gateway, platform, "好了")


@pytest.mark.usefixtures("brisk_pauses")
@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_connections_that_break_at_once_are_no_storm(kind: type[Platform], opened: Opened) -> None:
    """Each connection succeeds, or nearly, and is gone a moment later."""
    async with opened(kind) as (platform, gateway):
        await platform.connected()
        platform.proxy.accepted.clear()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            platform.proxy.drop()
            await asyncio.sleep(0.02)
        # Two connections a try where the address is asked for first.
        assert len(platform.proxy.accepted) <= 16, len(platform.proxy.accepted)
        await becomes(gateway, platform, True)
        await answers(gateway, platform, "好了")


SECRET_KEY = {"feishu": "app-secret", "dingtalk": "client-secret", "wecom-bot": "secret"}
WRONG = "wrong-secret-canary"


@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_a_platform_that_refuses_is_told_with_its_remedy(
    kind: type[Platform], opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong secret degrades this channel alone, is tried seldom, and is shown nowhere."""
    async with opened(kind, **{SECRET_KEY[kind.kind]: WRONG}) as (platform, gateway):
        found = await becomes(gateway, platform, False)
        end = time.monotonic() + 40
        while "核对" not in found["detail"]:
            assert time.monotonic() < end, found
            await asyncio.sleep(0.05)
            found = await channel(gateway, platform)
        assert SECRET_KEY[kind.kind] in found["detail"]
        platform.proxy.accepted.clear()
        await asyncio.sleep(1)
        assert len(platform.proxy.accepted) <= 4, "tried seldom"
        assert (await gateway.chat("web-user", "网页还在吗")).text == "答复：网页还在吗"
        assert WRONG not in str(await gateway.get("/api/status"))
    assert WRONG not in caplog.text


@pytest.mark.usefixtures("brisk_pauses")
@pytest.mark.parametrize("kind", CONNECTIONS, ids=lambda kind: kind.kind)
async def test_a_platform_that_restarts_gets_the_answer_that_was_made_meanwhile(
    kind: type[Platform], opened: Opened, model: ModelServer
) -> None:
    async with opened(kind) as (platform, gateway):
        await answers(gateway, platform, "之前")
        async with model.held("停机之间"):
            assert await platform.deliver(gateway, platform.message("停机之间", "停机之间"))
            await until(lambda: model.asked("停机之间"), what="question")
            await platform.proxy.down()
            await becomes(gateway, platform, False)
        await until_told(lambda: gateway.count("messages WHERE state = 'answered'"), 1)
        await asyncio.sleep(0.1)
        assert not any("停机之间" in answer for answer in platform.answers())
        await platform.proxy.up()
        await becomes(gateway, platform, True)
        await until(lambda: any("停机之间" in a for a in platform.answers()), what="answer made meanwhile")
        assert sum("停机之间" in answer for answer in platform.answers()) == 1
        assert len(model.asked("停机之间")) == 1
        await answers(gateway, platform, "之后")
