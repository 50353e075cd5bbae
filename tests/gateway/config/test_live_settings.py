"""Changed files while running: taken over as a whole, within a bound, or not at all."""

import asyncio
import contextlib
import errno
import inspect
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from gateway.config.live_settings import LiveSettings, changed_keys, fingerprint
from gateway.config.sections import Settings
from gateway.config.settings import load_settings
from tests.waiting import until

GOOD = """\
server: {port: 9000}
log: {level: info}
memory: {masking: [phone], durability: sync}
models: {main: {provider: demo, timeout: 5s}}
conversations: {debounce: 0s}
channels:
  feishu: {enabled: true, app-id: a, app-secret: SECRETCANARY, group-policy: mention}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "general-agent.yaml").write_text("prompt: 甲\n", encoding="utf-8")
    (tmp_path / "gateway.yaml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def replace(path: Path, text: str) -> None:
    """As a careful editor does it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


@pytest.fixture
def loaded(folder: Path) -> Settings:
    """What a start reads, before there is an event loop."""
    return load_settings(folder, {})


@pytest.fixture
async def live(folder: Path, loaded: Settings) -> AsyncIterator[LiveSettings]:
    settings = LiveSettings(folder, {}, loaded, poll=0.02, settle=0.02, again=0.1)
    task = asyncio.create_task(settings.watch())
    yield settings
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_live_keys_are_taken_over(live: LiveSettings, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao.config")
    told: list[tuple[Settings, Settings]] = []
    live.on_change(lambda old, new: told.append((old, new)))
    before = live.current
    changed = (
        GOOD.replace("[phone]", "[]").replace("timeout: 5s", "timeout: 6s").replace("level: info", "level: debug")
        .replace("mention}", "all, dm-policy: allowlist, allow-from: [u1], agent: general-agent, context: {window: {max-messages: 6}}}")
        .replace("debounce: 0s", "debounce: 1s")
        + "limits: {messages-per-minute: 3}\ntexts: {busy: 忙}\nadmins: [u2]\nrouter: {sticky-for: 1m}\n"
        "agent: {context: {window: {max-messages: 12}}}\n"
    )  # fmt: skip
    replace(folder / "gateway.yaml", changed)
    await until(lambda: live.current is not before)
    now = live.current
    assert (now.memory.masking, now.models["main"].timeout, now.log.level) == ((), 6.0, "debug")
    assert (now.limits.messages_per_minute, now.texts["busy"], now.admins) == (3, "忙", ("u2",))
    assert (now.router.sticky_for, now.agent.context.window.max_messages) == (60.0, 12)
    feishu = now.channels["feishu"]
    assert (feishu.group_policy, feishu.dm_policy, feishu.allow_from, feishu.agent) == (
        "all", "allowlist", ("u1",), "general-agent",
    )  # fmt: skip
    assert now.context_for("general-agent", "feishu").window.max_messages == 6
    assert now.conversations.debounce == 1.0
    assert told == [(before, now)]
    assert live.waiting == ()
    line = next(record.getMessage() for record in caplog.records if "config_taken_over" in record.getMessage())
    assert "memory.masking" in line
    assert "channels.feishu.group-policy" in line
    assert "SECRETCANARY" not in caplog.text


async def test_agents_come_change_and_go(live: LiveSettings, folder: Path) -> None:
    agents = folder / "agents"
    replace(agents / "second.yaml", "prompt: 乙\n")
    await until(lambda: "second" in live.current.agents)
    replace(agents / "second.yaml", "prompt: 丙\n")
    await until(lambda: live.current.agents["second"].prompt == "丙")
    (agents / "second.yaml").unlink()
    await until(lambda: "second" not in live.current.agents)
    replace(folder / ".env", "P=丁\n")
    replace(agents / "general-agent.yaml", "prompt: ${P}\n")
    await until(lambda: live.current.agents["general-agent"].prompt == "丁")


async def test_a_broken_file_changes_nothing_and_is_told_once(
    live: LiveSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.current
    replace(folder / "gateway.yaml", GOOD.replace("debounce", "debonce") + "admins: [u1]\n")
    await until(lambda: live.problems != ())
    assert live.current is before, "not even what is right in it"
    assert [(problem.line, problem.key) for problem in live.problems] == [(5, "conversations.debonce")]
    assert "gateway.yaml:5: conversations.debonce" in caplog.text
    os.utime(folder / "gateway.yaml")
    replace(folder / ".env", "A=1\n")
    await asyncio.sleep(0.2)
    assert caplog.text.count("config_problem ") == 1
    assert "SECRETCANARY" not in caplog.text
    replace(folder / "gateway.yaml", GOOD + "admins: [u1]\n")
    await until(lambda: live.current.admins == ("u1",))
    assert live.problems == ()


async def test_an_emptied_or_missing_file_changes_nothing(
    live: LiveSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sanqiao.config")
    before = live.current
    replace(folder / "gateway.yaml", "")
    await until(lambda: live.problems != ())
    (folder / "gateway.yaml").unlink()
    await until(lambda: "找不到" in str(live.problems))
    assert live.current is before
    replace(folder / "gateway.yaml", GOOD)
    await until(lambda: live.problems == ())
    assert live.current is before, "the same content is no change"
    assert caplog.text.count("config_mended") == 1


async def test_what_is_remarked_while_it_runs_is_logged_once_and_shown(
    live: LiveSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replace(folder / "agents" / "general-agent.yaml", "prompt: x\nintents: {keywords: [甲，乙]}\n")
    await until(lambda: "config_note" in caplog.text)
    assert any("甲，乙" in note for note in live.current.notes)
    (folder / "stray.yaml").write_text("prompt: x\n")
    replace(folder / ".env", "A=1\n")
    await until(lambda: any("stray.yaml" in note for note in live.current.notes))
    assert caplog.text.count("config_note") == 2


async def test_a_half_written_file_is_not_taken(
    folder: Path, loaded: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveSettings(folder, {}, loaded, poll=0.02, settle=4.0)
    task = asyncio.create_task(live.watch())
    written = ""
    for piece in [*GOOD.splitlines(keepends=True), "admins: [", "u1", "]\n"]:
        written += piece
        (folder / "gateway.yaml").write_text(written, encoding="utf-8")
        await asyncio.sleep(0.03)
    await until(lambda: live.current.admins == ("u1",))
    assert "config_refused" not in caplog.text
    task.cancel()


async def test_what_needs_a_restart_waits_and_is_told(
    live: LiveSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.current
    changed = (
        GOOD.replace("9000", "9001").replace("SECRETCANARY", "OTHERCANARY").replace("durability: sync", "durability: batch")
        .replace("level: info", "format: json") + "  f2: {kind: feishu, app-id: x}\ntimezone: UTC\nadmins: [u1]\n"
    )  # fmt: skip
    replace(folder / "gateway.yaml", changed)
    await until(lambda: live.current.admins == ("u1",))
    now = live.current
    assert (now.server, now.timezone, now.log.format, now.memory.durability) == (
        before.server, "Asia/Shanghai", "text", "sync",
    )  # fmt: skip
    assert now.channels == before.channels
    assert set(live.waiting) == {
        "server.port", "timezone", "log.format", "memory.durability", "channels.feishu.app-secret", "channels.f2",
    }  # fmt: skip
    assert "需重启生效" in caplog.text
    assert "CANARY" not in caplog.text
    replace(folder / "gateway.yaml", GOOD)
    await until(lambda: live.waiting == ())


async def test_old_and_new_must_fit_together(folder: Path) -> None:
    """The key goes and the platform channel with it: but that channel runs on until the restart."""
    replace(folder / "gateway.yaml", GOOD.replace("provider: demo", "api-key: k"))
    live = LiveSettings(folder, {}, await asyncio.to_thread(load_settings, folder, {}))
    replace(folder / "gateway.yaml", "channels: {feishu: {enabled: false}}\n")
    assert not await live.take_over()
    assert [problem.key for problem in live.problems] == ["models.main"]
    assert "按正在运行的渠道检查" in live.problems[0].message, "or it would seem to speak of the file"
    assert live.current.models["main"].provider == "openai"


async def test_a_failing_subscriber_stops_nobody(live: LiveSettings, folder: Path) -> None:
    told: list[Settings] = []

    def fail(old: Settings, new: Settings) -> None:
        raise RuntimeError("mine")

    live.on_change(fail)
    live.on_change(lambda old, new: told.append(new))
    for name in ("u1", "u2"):
        replace(folder / "gateway.yaml", GOOD + f"admins: [{name}]\n")
        await until(lambda: live.current.admins == (name,))  # noqa: B023 (awaited before `name` changes)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("gateway.config.live_settings.load", RuntimeError("can't start new thread")),
        ("gateway.config.live_settings.fingerprint", OSError(errno.EMFILE, "Too many open files")),
        ("gateway.config.settings.read_text", OSError(errno.EMFILE, "Too many open files")),
    ],
)
async def test_what_fails_for_the_moment_is_read_again(
    live: LiveSettings, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    failing = Mock(side_effect=error)
    with monkeypatch.context() as patched:
        patched.setattr(where, failing)
        replace(folder / "gateway.yaml", GOOD + "admins: [u1]\n")
        await until(lambda: failing.call_count > 3)
    await until(lambda: live.current.admins == ("u1",))
    assert live.problems == ()


async def test_a_pipe_for_a_moment_ends_no_watch(live: LiveSettings, folder: Path) -> None:
    path = folder / "gateway.yaml"
    path.unlink()
    os.mkfifo(path)
    await until(lambda: any("不是普通的文件" in problem.message for problem in live.problems))
    path.unlink()
    replace(path, GOOD + "admins: [u1]\n")
    await until(lambda: live.current.admins == ("u1",))


async def test_the_default_pace_is_within_two_seconds(folder: Path, loaded: Settings) -> None:
    paces = inspect.signature(LiveSettings).parameters
    assert 2 * paces["poll"].default + paces["settle"].default < 2.0, "the first look may come just before the change"
    live = LiveSettings(folder, {}, loaded)
    task = asyncio.create_task(live.watch())
    await asyncio.sleep(0.05)
    replace(folder / "gateway.yaml", GOOD + "admins: [u1]\n")
    await until(lambda: live.current.admins == ("u1",))
    task.cancel()


def test_fingerprint_sees_every_kind_of_change(folder: Path) -> None:
    seen = [fingerprint(folder)]
    assert fingerprint(folder) == seen[0]
    replace(folder / "gateway.yaml", GOOD)
    seen.append(fingerprint(folder))
    (folder / ".env").write_text("")
    seen.append(fingerprint(folder))
    (folder / "agents" / "b.yaml").write_text("")
    seen.append(fingerprint(folder))
    (folder / "agents" / "b.yaml").chmod(0o600)
    seen.append(fingerprint(folder))
    assert len(set(seen)) == 5


def test_changed_keys_hold_no_values() -> None:
    old = Settings()
    new = old.model_copy(update={"timezone": "UTC", "texts": {"busy": "x"}, "notes": ("n",)})
    assert changed_keys(old, new) == ("texts.busy", "timezone")
    assert changed_keys(old, old) == ()
