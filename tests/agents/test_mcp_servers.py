"""MCP servers that are real: a program and an address, with all that may go wrong with them."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.client import stdio

from agents.tools import mcp_servers
from agents.tools.mcp import Grant, McpServerSettings
from agents.tools.mcp_servers import McpServers, McpState
from agents.tools.tool import Tool, ToolError
from tests.platforms.mcp_server import HttpMcpServer
from tests.waiting import until

SECRET = "CANARY-mcp"
ROOT = Path(__file__).resolve().parents[2]


def program(folder: Path, *words: str, **keys: Any) -> McpServerSettings:
    """The small test server that misbehaves on request."""
    command = (sys.executable, "-S", str(ROOT / "tests" / "platforms" / "mcp_program.py"), str(folder), *words)
    return McpServerSettings.model_validate({"command": command, **keys})


def address(server: HttpMcpServer, **keys: Any) -> McpServerSettings:
    return McpServerSettings.model_validate({"url": server.url, **keys})


@dataclass
class Connected:
    """Servers that are connected in the background, as the gateway does."""

    servers: McpServers

    def state(self, name: str = "s") -> McpState:
        return self.servers.states()[name]

    async def up(self, *names: str) -> None:
        await until(lambda: all(self.state(name).tools and self.state(name).ok for name in names or ("s",)))

    async def down(self, name: str = "s", timeout: float = 40.0) -> None:
        await until(lambda: not self.state(name).ok, timeout)

    def tools(self, *grants: Grant) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.servers.tools(grants or (Grant("s", "*"),))}

    async def call(self, name: str, /, **arguments: object) -> str:
        return await self.tools()[name].run(None, arguments)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(**settings: McpServerSettings) -> AsyncIterator[Connected]:
    async with asyncio.TaskGroup() as tasks:
        made = Connected(McpServers(tasks.create_task))
        made.servers.apply(settings)
        try:
            yield made
        finally:
            await made.servers.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "FIRST_PAUSE", 0.05)


@pytest.fixture
async def http() -> AsyncIterator[HttpMcpServer]:
    async with HttpMcpServer() as server:
        yield server


def processes(folder: Path) -> list[psutil.Process]:
    """The programs that were started there and still run."""
    found = []
    for file in folder.glob("pid-*"):
        try:
            process = psutil.Process(int(file.name.removeprefix("pid-")))
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


async def ended(folder: Path, timeout: float = 40.0) -> None:
    end = time.monotonic() + timeout
    while await asyncio.to_thread(processes, folder):
        assert time.monotonic() < end, "an orphan"
        await asyncio.sleep(0.02)


async def abandoned(folder: Path) -> None:
    """Kills programs that nobody waits for any more, and has asyncio see it: else it warns, in whatever test is next."""
    for left in await asyncio.to_thread(processes, folder):
        left.kill()
    await ended(folder)
    transports = [each for each in gc.get_objects() if type(each).__name__ == "_UnixSubprocessTransport"]
    await until(lambda: all(each.get_returncode() is not None for each in transports))
    for each in transports:
        each.close()
    await asyncio.sleep(0)


def test_the_package_is_imported_only_where_a_server_is_named() -> None:
    code = "import sys, gateway.app; print('mcp' in sys.modules, 'jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "False"]


# ---- a program


async def test_a_program_is_called_and_ends_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    monkeypatch.setenv("OWN_KEY", "not this")
    keys = {"env": {"PYTHONPATH": str(ROOT), "OWN_KEY": "its own"}, "timeout": "7s"}
    command = (sys.executable, "-m", "tests.platforms.mcp_server", str(tmp_path))
    entry = McpServerSettings.model_validate({"command": command, **keys})
    async with connected(s=entry) as made:
        assert not made.tools(), "nothing is offered before it is there"
        assert made.state().ok
        await made.up()
        tools = made.tools()
        assert {"s_add", "s_wait", "s_fail"} < set(tools)
        assert tools["s_add"].description == "把两个数相加"
        assert tools["s_add"].parameters["required"] == ["a", "b"]
        assert (tools["s_add"].repeatable, tools["s_wait"].repeatable) == (True, False)
        assert tools["s_add"].seconds == 7.0
        assert await made.call("s_add", a=2, b=3) == "5"
        assert await made.call("s_picture") == "看图\n（图片，无法显示）"
        assert await made.call("s_secret", name="OWN_KEY") == "its own"
        assert await made.call("s_secret", name="GATEWAY_SECRET") == "没有", "it inherits no secret of the gateway's"
        (odd,) = [tool for name, tool in tools.items() if name.startswith("s___")]
        assert await odd.run(None, {}) == "合规"  # type: ignore[arg-type]
        both = await asyncio.gather(made.call("s_wait", seconds=0.3), made.call("s_add", a=1, b=1))
        assert both == ["等完了", "2"]
        for name, arguments, said in (
            ("s_fail", {}, "fail"),
            ("s_add", {"a": "x"}, "a"),
        ):
            with pytest.raises(ToolError, match=said):
                await made.call(name, **arguments)
        assert len(await asyncio.to_thread(processes, tmp_path)) == 1
    await ended(tmp_path)


async def test_a_program_that_dies_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sanqiao.mcp")
    (tmp_path / "tools.txt").write_text("later")
    async with connected(s=program(tmp_path)) as made:
        await made.up()
        assert await made.call("s_echo", text="听到") == "听到", "a server of an older protocol"
        with pytest.raises(ToolError, match="断开"):
            await made.call("s_crash")
        await made.down()
        assert "s_later" in made.tools(), "what it had is offered all the same"
        with pytest.raises(ToolError, match="连不上"):
            await made.call("s_echo")
        (tmp_path / "tools.txt").write_text("other")
        await made.up()
        assert await made.call("s_echo", text="听到") == "听到"
        assert {"s_other", "s_later"} & set(made.tools()) == {"s_other"}, "the list is read again"
        (tmp_path / "tools.txt").write_text("newest")
        await made.call("s_change")
        await until(lambda: "s_newest" in made.tools(), what="the list to be read when the server says so")
    logged = [record.getMessage().split()[0] for record in caplog.records if record.name == "sanqiao.mcp"]
    assert logged == ["mcp.up", "mcp.down", "mcp.up", "mcp.up"], "one line for each change"
    await ended(tmp_path)


async def test_the_list_of_tools_is_read_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "REREAD_SECONDS", 0.05)
    async with connected(s=program(tmp_path)) as made:
        await made.up()
        (tmp_path / "tools.txt").write_text("later")
        await until(lambda: "s_later" in made.tools())


async def test_what_a_program_says_beside_messages_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")
    async with connected(s=program(tmp_path, "noisy", SECRET)) as made:
        await made.up()
        assert await made.call("s_echo", text="听到") == "听到"
    assert "Welcome" not in caplog.text
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


async def test_tools_beyond_all_bounds_are_left_out(tmp_path: Path) -> None:
    async with connected(s=program(tmp_path, "many")) as made:
        await made.up()
        assert len(made.tools()) == 128
        assert "s_echo" not in made.tools(), "its schema is too long"
        assert "另有 175 个太大或太多" in made.state().detail


async def test_a_call_that_takes_too_long_leaves_the_connection_as_it_is(http: HttpMcpServer) -> None:
    async with connected(s=address(http)) as made:
        await made.up()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await made.call("s_wait", seconds=30)
        assert await made.call("s_add", a=1, b=1) == "2"
        assert made.state().ok


async def test_programs_that_are_none_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    text.chmod(0o755)
    entries = {
        "none": McpServerSettings(command=("no-such-program", SECRET)),
        "text": McpServerSettings(command=(str(text),)),
        "dies": program(tmp_path / "dies", "dies", SECRET),
        "mute": program(tmp_path / "mute", "mute", SECRET),
    }
    mute = entries.pop("mute")
    async with connected(**entries) as made:
        for name in entries:
            await made.down(name)
        monkeypatch.setattr(mcp_servers, "CONNECT_SECONDS", 1.0)
        made.servers.apply({**entries, "mute": mute})
        await made.down("mute")
        said = {name: state.detail for name, state in made.servers.states().items()}
        assert "找不到 command" in said["none"]
        assert "一启动就结束" in said["dies"]
        assert "没有及时答复" in said["mute"]
        assert all(detail.endswith("正在重试") for detail in said.values())
        assert SECRET not in str(said)
    await ended(tmp_path / "mute")


@pytest.mark.parametrize("words", [(), ("stubborn",)], ids=["well-behaved", "stubborn"])
async def test_nothing_is_left_behind(tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROCESS_TERMINATION_TIMEOUT", "FORCE_KILL_TIMEOUT"):  # two seconds each
        assert getattr(stdio, name) < mcp_servers.END_SECONDS / 2
        monkeypatch.setattr(stdio, name, 0.2)
    async with connected(s=program(tmp_path, *words)) as made:
        await made.up()
    await ended(tmp_path)


async def test_a_program_that_takes_too_long_to_end_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops goes on, although the package mcp, cancelled meanwhile, waits for the program's output for ever."""
    monkeypatch.setattr(mcp_servers, "END_SECONDS", 0.5)
    monkeypatch.setattr(mcp_servers, "LAST_SECONDS", 0.2)
    async with asyncio.timeout(40):
        async with connected(s=program(tmp_path, "stubborn")) as made:
            await made.up()
    await abandoned(tmp_path)


async def test_who_gives_up_closing_cancels_what_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "LAST_SECONDS", 0.2)
    async with asyncio.timeout(40):
        async with connected(s=program(tmp_path, "stubborn")) as made:
            await made.up()
            closing = asyncio.create_task(made.servers.close())
            await asyncio.sleep(0.1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await asyncio.wait(made.servers._tasks)
    await abandoned(tmp_path)


# ---- an address


async def test_an_address_is_called_with_its_headers(http: HttpMcpServer) -> None:
    http.token = f"Bearer {SECRET}"
    entry = address(http, headers={"Authorization": f"Bearer {SECRET}"})
    async with connected(s=entry) as made:
        await made.up()
        assert await made.call("s_add", a=2, b=3) == "5"
        assert http.calls == [("add", (2, 3))]
        assert http.headers[-1]["authorization"] == f"Bearer {SECRET}"


async def test_a_wrong_key_is_told_without_being_shown(http: HttpMcpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    http.token = "Bearer right"
    async with connected(s=address(http, headers={"Authorization": f"Bearer {SECRET}"})) as made:
        await made.down()
        assert "HTTP 401" in made.state().detail
        assert SECRET not in made.state().detail + caplog.text
        assert not made.tools()


async def test_an_address_that_goes_and_comes_back(http: HttpMcpServer) -> None:
    async with connected(s=address(http)) as made:
        await made.up()
        await http.close()
        with pytest.raises(ToolError):
            await made.call("s_add", a=1, b=1)
        await made.down()
        begun = time.monotonic()
        with pytest.raises(ToolError, match="连不上"):
            await made.call("s_add", a=1, b=1)
        assert time.monotonic() - begun < 15, "nobody waits for a server that is gone"
        await http.open()
        await made.up()
        assert await made.call("s_add", a=1, b=1) == "2"


async def test_an_address_where_nobody_or_somebody_else_is(http: HttpMcpServer) -> None:
    nobody = McpServerSettings.model_validate({"url": f"http://127.0.0.1:9/mcp?key={SECRET}"})
    other = McpServerSettings.model_validate({"url": http.url.replace("/mcp", "/else")})
    async with connected(nobody=nobody, other=other, s=address(http)) as made:
        await made.down("nobody")
        await made.down("other")
        await made.up("s")
        assert "请检查 url" in made.state("nobody").detail
        assert "HTTP 404" in made.state("other").detail
        assert SECRET not in str(made.servers.states())
        assert await made.call("s_add", a=1, b=1) == "2", "one that is dead is no other's affair"


# ---- which of them


async def test_an_agent_has_the_tools_it_was_granted_and_names_are_told_apart(http: HttpMcpServer) -> None:
    async with connected(s=address(http), t=address(http)) as made:
        await made.up("s", "t")
        assert set(made.tools(Grant("s", "add"))) == {"s_add"}
        assert set(made.tools(Grant("s", "add"), Grant("t", "wait"), Grant("t", "none"))) == {"s_add", "t_wait"}
        assert not made.tools(Grant("u", "*"))
        assert len(made.tools(Grant("s", "*"), Grant("t", "*"))) == 2 * len(made.tools())
        (renamed,) = made.servers.tools([Grant("s", "add")], taken=["s_add"])
        assert renamed.name.startswith("s_add_")
        assert await renamed.run(None, {"a": 1, "b": 1}) == "2"  # type: ignore[arg-type]


async def test_a_changed_config_ends_what_it_no_longer_names_and_keeps_the_rest(
    tmp_path: Path, http: HttpMcpServer
) -> None:
    async with connected(s=address(http), t=program(tmp_path)) as made:
        await made.up("s", "t")
        kept = made.tools()["s_add"]
        made.servers.apply({"s": address(http), "u": address(http)})
        assert set(made.servers.states()) == {"s", "u"}
        assert made.tools()["s_add"] is kept
        await made.up("u")
        await ended(tmp_path)
        made.servers.apply({})
        assert not made.servers.states()
        await asyncio.sleep(0.2)
        with pytest.raises(ToolError, match="连不上"):
            await kept.run(None, {"a": 1, "b": 1})  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
async def test_a_stubborn_program_ends_with_whoever_started_it(tmp_path: Path, number: signal.Signals) -> None:
    """The launcher sees to it that even one that ignores the end of its input goes with a gateway that is killed."""
    launcher = Path(mcp_servers.__file__).with_name("mcp_launcher.py")
    starter = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', {str(launcher)!r}, str(os.getpid()), 'sleep', '60'],"
        " start_new_session=True)\n"
        "print(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", starter, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    child = psutil.Process(int(await process.stdout.readline()))
    await until(lambda: child.name() == "sleep")
    os.kill(process.pid, number)
    await process.wait()
    await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
