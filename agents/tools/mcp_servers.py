"""The MCP servers of a configuration: each connected in the background, for as long as it is named, and their tools.

Nobody waits for a server. One that is not there yet offers nothing; one that is gone goes on offering what it had, and
whoever calls that is told at once that it is not there.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agents.tools.mcp import Grant, McpServerSettings, McpUnreachable, function_name
from agents.tools.mcp_results import RemoteTool
from agents.tools.tool import Arguments, CallContext, Tool, ToolError

_log = logging.getLogger("sanqiao.mcp")

AT_ONCE = 16
"""How many calls of one server run at a time; the others' waiting counts into their time."""
CONNECT_SECONDS = 30.0
LIST_SECONDS = 15.0
REREAD_SECONDS = 60.0
"""How often the list of tools is read again, which also shows whether the server is still there."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a connection is tried anew, and at most, as it goes on failing."""
STEADY_SECONDS = 60.0
"""A connection that held so long was no failure."""
END_SECONDS = 10.0
"""How long a server's program may take to end, before it is no longer waited for; the package mcp kills it after four."""
LAST_SECONDS = 2.0
"""How long a connection that is cancelled then is waited for."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class McpState:
    """How a server is: `ok`, a detail for admins (Chinese, no secret), since when (unix seconds), its tools' names."""

    ok: bool
    detail: str
    since: float
    tools: tuple[str, ...] = ()


class McpServer:
    """One server: its connection, made anew whenever it breaks, and its tools as they were told last."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.settings = settings
        self.state = McpState(True, "正在连接", clock())
        self._clock = clock
        self._jitter = jitter
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stop = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        self._session: Any = None
        self._tools: dict[str, Tool] = {}
        self._left_out = 0

    # ---- what agents get

    def tools(self, grants: Iterable[Grant]) -> list[tuple[str, Tool]]:
        """The tools that any of the grants covers, by the server's names for them."""
        grants = tuple(grants)
        return [
            (remote, tool)
            for remote, tool in self._tools.items()
            if any(grant.covers(self.name, remote) for grant in grants)
        ]

    async def call(self, tool: str, arguments: Arguments) -> str:
        """What a tool gives. Raises ToolError, at once where the server is not there."""
        async with self._places:
            session = self._session
            if session is None:
                raise ToolError(f"工具服务 {self.name} 现在连不上，请不用它继续回答")
            try:
                text: str = await session.call(tool, arguments)
            except McpUnreachable as error:
                raise ToolError(f"工具服务 {self.name} 的{error}，这次没有结果") from None
            return text

    def renamed(self, remote: str, tool: Tool) -> Tool:
        """The tool under a name that no other tool has by chance."""
        return replace(tool, name=function_name(self.name, remote, hashed=True))

    def _offered(self, remote: RemoteTool) -> Tool:
        async def run(context: CallContext, arguments: Arguments) -> str:
            return await self.call(remote.name, arguments)

        return Tool(
            name=function_name(self.name, remote.name),
            description=remote.description,
            parameters=remote.parameters,
            run=run,
            repeatable=remote.repeatable,
            seconds=self.settings.timeout,
        )

    # ---- its life

    def stop(self) -> None:
        """Ends the connection, also one that is being made, and `run` soon after."""
        self._stop.set()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Keeps the connection up until `stop`."""
        failures = 0
        while not self._stop.is_set():
            begun = time.monotonic()
            error = await self._alone(self._connected())
            if error is not None and not self._stop.is_set():
                self._down(error)
            failures = 0 if time.monotonic() - begun >= STEADY_SECONDS else failures + 1
            pause = min(FIRST_PAUSE * 2 ** min(failures - 1, 16), LONGEST_PAUSE) if failures else FIRST_PAUSE
            await _either(self._stop, within=pause * (0.5 + self._jitter() / 2))

    @staticmethod
    async def _alone(connection: Coroutine[Any, Any, None]) -> BaseException | None:
        """What ended a connection. It has a task of its own, which the package mcp cancels when a transport breaks."""
        task = asyncio.create_task(connection)
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                task.cancel()
                # No longer: cancelled while it ends a program, the package mcp (2.3.0) may read its output for ever.
                await asyncio.wait([task], timeout=LAST_SECONDS)
        return McpUnreachable("连接断开了") if task.cancelled() else task.exception()

    async def _connected(self) -> None:
        """One connection, from its beginning to its end. Raises what ended it."""
        # Half a second of CPU and 30 MB, which a gateway without MCP is spared.
        module = await asyncio.to_thread(_imported)
        async with AsyncExitStack() as stack:
            async with self._within(CONNECT_SECONDS):
                opening = module.opened(self.settings, show_errors=_log.isEnabledFor(logging.DEBUG))
                session = await stack.enter_async_context(opening)
            stack.callback(self._forget_session)
            while not self._stop.is_set():
                session.attention.clear()
                async with self._within(LIST_SECONDS):
                    tools, self._left_out = await session.tools()
                self._session = session
                self._up(tools)
                await _either(self._stop, session.attention, within=REREAD_SECONDS * (0.75 + self._jitter() / 2))

    def _forget_session(self) -> None:
        self._session = None

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError after so many seconds, or when it is to stop."""
        async with asyncio.timeout(seconds) as patience:
            self._patience = patience
            try:
                yield
            finally:
                self._patience = None

    def _up(self, tools: Sequence[RemoteTool]) -> None:
        self._tools = {each.name: self._offered(each) for each in tools}
        names = tuple(self._tools)
        detail = f"正常，{len(names)} 个工具" + (f"，另有 {self._left_out} 个太大或太多" if self._left_out else "")
        if not self.state.ok or names != self.state.tools or not self.state.detail.startswith("正常"):
            _log.info("mcp.up server=%s tools=%d left_out=%d", self.name, len(names), self._left_out)
            self.state = McpState(True, detail, self._clock(), names)

    def _down(self, error: BaseException) -> None:
        why = _why(error)
        if self.state.ok:
            _log.warning("mcp.down server=%s reason=%r", self.name, why)
        _log.debug("mcp.down server=%s error=%s", self.name, type(error).__name__)
        since = self._clock() if self.state.ok else self.state.since
        self.state = McpState(False, f"{why}；正在重试", since, self.state.tools)


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "没有及时答复"
    if isinstance(error, McpUnreachable):
        return str(error)
    return f"连接断开了（{type(error).__name__}）"


def _imported() -> Any:
    from agents.tools import mcp_session

    return mcp_session


async def _either(*events: asyncio.Event, within: float) -> None:
    """Returns when one of the events is set, or after so many seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


class McpServers:
    """All servers of the configuration that holds now. `spawn` makes the task that owns each one's connection."""

    def __init__(self, spawn: Spawn, *, clock: Callable[[], float] = time.time) -> None:
        self._spawn = spawn
        self._clock = clock
        self._servers: dict[str, McpServer] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def apply(self, settings: Mapping[str, McpServerSettings]) -> None:
        """Begins and ends connections, so that those of `settings` remain; unchanged ones are left as they are."""
        for name, server in list(self._servers.items()):
            if settings.get(name) != server.settings:
                server.stop()
                del self._servers[name]
        for name, entry in settings.items():
            if name not in self._servers:
                server = self._servers[name] = McpServer(name, entry, clock=self._clock)
                self._tasks = [task for task in self._tasks if not task.done()]
                self._tasks.append(self._spawn(server.run()))

    def tools(self, grants: Sequence[Grant], taken: Iterable[str] = ()) -> tuple[Tool, ...]:
        """The tools that the grants cover, as far as their servers told of them; none has a name that is `taken`."""
        names = set(taken)
        found: list[Tool] = []
        for server in self._servers.values():
            for remote, tool in server.tools(grants):
                offered = tool if tool.name not in names else server.renamed(remote, tool)
                if offered.name not in names:
                    names.add(offered.name)
                    found.append(offered)
        return tuple(found)

    def states(self) -> dict[str, McpState]:
        """How each server is."""
        return {name: server.state for name, server in self._servers.items()}

    async def close(self) -> None:
        """Ends all connections and programs; waits for them `END_SECONDS` at most, then, or when cancelled, cancels them."""
        for server in self._servers.values():
            server.stop()
        if not self._tasks:
            return
        try:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
