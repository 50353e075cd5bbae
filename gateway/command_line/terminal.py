"""``chat``: the same pipeline in the terminal; through the running gateway where one owns the workspace."""

import asyncio
import contextlib
import getpass
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp

from channels.message import Answered, Delta, Failed, GatewayClosed, Routed, Shown
from gateway import logs
from gateway.app import App
from gateway.command_line import interruptible
from gateway.command_line.running import refused, running_console
from gateway.command_line.terminal_text import printable
from gateway.config.live_settings import LiveSettings
from gateway.config.sections import LogSettings
from gateway.workspace_lock import WorkspaceBusy

Ask = Callable[[str], AsyncIterator[Shown]]


def chat(live: LiveSettings, workspace: Path, *, agent: str | None, message: str | None) -> int:
    """Asks `message`, or reads questions until end of file; returns the exit code."""
    settings = live.current
    logs.configure(LogSettings(level="error", format=settings.log.format))
    if agent is not None and agent not in settings.agents:
        print(f"没有名为 {agent} 的智能体；可用的有：{'、'.join(sorted(settings.agents))}", file=sys.stderr)
        return 2
    return interruptible.run(_chat(App(live, workspace), workspace, agent, message))


async def _chat(app: App, workspace: Path, agent: str | None, message: str | None) -> int:
    user = getpass.getuser()
    try:
        async with app.running(serve=False):
            web = app.backend.web

            async def ask(text: str) -> AsyncIterator[Shown]:
                async for event in await web.ask(user, text, agent=agent):
                    yield event

            try:
                return await _converse(ask, message)
            except GatewayClosed:
                print("这句话没能存下；原因见上面的日志", file=sys.stderr)
                return 1
    except WorkspaceBusy:
        return await _through_gateway(app.live, workspace, user, agent, message)


async def _converse(ask: Ask, message: str | None) -> int:
    if message is not None:
        return await _show(ask(message))
    print("输入要问的话，/help 查看命令，Ctrl-D 退出。")
    while True:
        try:
            text = await _typed("你：")
        except EOFError:
            print()
            return 0
        if text.strip():
            await _show(ask(text))


async def _typed(prompt: str) -> str:
    """A line that a person types. Raises EOFError.

    From a terminal it is read in a thread that nothing waits for, since Ctrl-C does not wake ``input`` there. A pipe
    ends by itself, and its reader must not be left behind: it holds the lock of `sys.stdin`.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return await asyncio.to_thread(input, prompt)
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def put(result: str | None) -> None:
        if line.done():
            return
        if result is None:
            line.set_exception(EOFError())
        else:
            line.set_result(result)

    def read() -> None:
        try:
            result = input(prompt)
        except (EOFError, OSError, ValueError):  # ended, or closed under us
            result = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(put, result)

    threading.Thread(target=read, name="typed", daemon=True).start()
    return await line


async def _show(events: AsyncIterator[Shown]) -> int:
    """Prints an answer as it comes; 1 when there was none."""
    streamed = ""
    async for event in events:
        match event:
            case Routed(agent, reason):
                print(printable(f"[{agent} · {reason}]"), file=sys.stderr)
            case Delta(text):
                streamed += text
                print(printable(text), end="", flush=True)
            case Answered(text):
                print(printable(text.removeprefix(streamed) if text.startswith(streamed) else f"\n{text}"))
                return 0
            case Failed(text):
                print(printable(text))
                return 1
    return 1


async def _through_gateway(
    live: LiveSettings, workspace: Path, user: str, agent: str | None, message: str | None
) -> int:
    console = await running_console(live, workspace)
    url = console.url("/api/chat")
    async with console.session() as session:

        async def ask(text: str) -> AsyncIterator[Shown]:
            body = {"user": user, "text": text, "agent": agent}
            async with session.post(url, json=body) as response:
                if response.status != 200:
                    yield Failed(await refused(response))
                    return
                async for event in _events(response):
                    yield event

        try:
            return await _converse(ask, message)
        except aiohttp.ClientError:
            print(f"工作目录正被另一个网关使用，而它的控制台 {url} 无法访问", file=sys.stderr)
            return 2


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Shown]:
    name = ""
    async for raw in response.content:
        line = raw.decode().rstrip("\r\n")
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data = json.loads(line[5:])
            if name == "route":
                yield Routed(data["agent"], data["reason"])
            elif name == "delta":
                yield Delta(data["text"])
            elif name == "done":
                yield Answered(data["text"])
            elif name == "error":
                yield Failed(data["message"])
