"""One connection to an MCP server, by the package mcp (2.3.0); the only module that imports it, and slow to import.

What goes round the package: its read stream is listened to, since it does not say when a program is gone; its loggers
are quiet, since they quote what servers send.
"""

import asyncio
import importlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, cast

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agents.tools.mcp import McpServerSettings, McpUnreachable
from agents.tools.mcp_results import MOST_TOOLS, Piece, RemoteTool, remote_tool, result_text
from agents.tools.tool import ToolError

# Checks results against schemas; the package imports it, and reads its files, when the first result has come.
importlib.import_module("jsonschema")
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

MOST_ERROR = 500
"""The most characters the model is told of what a server says went wrong."""
_PAGES = 20
_LAUNCHER = Path(__file__).with_name("mcp_launcher.py")
_HTTP_SECONDS = 30.0
_SILENCE_SECONDS = 300.0

_Item = Any


class _Reading:
    """The read stream of a transport; `on_end` is called when it has ended."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """See mcp.shared._stream_protocols.ReadStream."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> _Item:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)


class _Line:
    """What is known of a connection beside its answers."""

    def __init__(self) -> None:
        self.attention = asyncio.Event()
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.attention.set()

    async def hear(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.attention.set()


class McpSession:
    """A connection that is up. `attention` is set when the list of tools may have changed or the program is gone."""

    def __init__(self, client: Client, line: _Line) -> None:
        self._client = client
        self._line = line
        self.attention = line.attention

    async def tools(self) -> tuple[list[RemoteTool], int]:
        """The server's tools as they are now, at most `MOST_TOOLS`, and how many were left out. Raises McpUnreachable."""
        found: list[RemoteTool] = []
        left_out = 0
        cursor: str | None = None
        try:
            for _ in range(_PAGES):
                page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
                for each in page.tools:
                    made = _remote(each) if len(found) < MOST_TOOLS else None
                    if made is None:
                        left_out += 1
                    else:
                        found.append(made)
                cursor = page.next_cursor
                if cursor is None:
                    break
        except MCPError as error:
            if self._line.ended:
                raise McpUnreachable("程序结束了") from None
            raise McpUnreachable(f"没有给出工具清单（错误码 {error.code}）") from None
        except ValidationError:
            raise McpUnreachable("工具清单的形式不对") from None
        return found, left_out

    async def call(self, tool: str, arguments: Mapping[str, object]) -> str:
        """The result as text. Raises ToolError with what the server says went wrong, McpUnreachable."""
        try:
            result = await self._client.call_tool(tool, dict(arguments))
        except MCPError as error:
            self.attention.set()  # it may have forgotten this session, or have other tools by now
            if self._line.ended or error.code == mcp_types.CONNECTION_CLOSED:
                raise McpUnreachable("连接断开了") from None
            raise ToolError(_short(error.message)) from None
        except (ValidationError, RuntimeError):
            raise ToolError("结果的形式与这个工具的说明不符") from None
        text = result_text(map(_piece, result.content), result.structured_content)
        if result.is_error:
            raise ToolError(_short(text))
        return text


@asynccontextmanager
async def opened(settings: McpServerSettings, *, show_errors: bool) -> AsyncGenerator[McpSession, None]:
    """A session with the server of this entry; its program ends, or its HTTP session is closed, at the end.

    `show_errors`: what a program writes to its standard error goes to the gateway's. Raises McpUnreachable while it
    opens; what happens later is told by the session.
    """
    line, answers = _Line(), _Answers()
    transport = _program(settings, show_errors) if settings.command else _address(settings, answers)
    client = Client(cast(Any, _listened(transport, line.end)), message_handler=line.hear, cache=None)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except Exception as error:  # border: whatever a foreign server does while it is met
            raise McpUnreachable(_why(error, answers)) from None
        yield McpSession(client, line)


@asynccontextmanager
async def _listened(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], on_end: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    async with transport as (reading, writing):
        yield _Reading(reading, on_end), writing


@asynccontextmanager
async def _program(settings: McpServerSettings, show_errors: bool) -> AsyncIterator[tuple[Any, Any]]:
    """The entry's program, started anew. It inherits no secret: only what any program needs, and the entry's `env`."""
    env = get_default_environment() | {name: text.get_secret_value() for name, text in settings.env.items()}
    program = await asyncio.to_thread(shutil.which, settings.command[0], path=env.get("PATH"))
    if program is None:
        raise McpUnreachable("找不到 command 里的程序；请安装它，或写出完整的路径")
    command = [program, *settings.command[1:]]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *command]
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, encoding_error_handler="replace")
    # The package passes it on to the new process, which takes a file's number as well.
    errors = sys.__stderr__ if show_errors else None
    async with stdio_client(parameters, errlog=errors or cast(TextIO, subprocess.DEVNULL)) as streams:
        yield streams


class _Answers:
    """What an address answered last: the package tells an HTTP error without its status."""

    def __init__(self) -> None:
        self.status = 200

    async def note(self, response: httpx2.Response) -> None:
        self.status = response.status_code


@asynccontextmanager
async def _address(settings: McpServerSettings, answers: _Answers) -> AsyncIterator[tuple[Any, Any]]:
    headers = {name: text.get_secret_value() for name, text in settings.headers.items()}

    def made() -> httpx2.AsyncClient:  # reads certificates
        timeout = httpx2.Timeout(_HTTP_SECONDS, read=_SILENCE_SECONDS)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [answers.note]})

    async with (
        await asyncio.to_thread(made) as http,
        streamable_http_client(settings.url.get_secret_value(), http_client=http) as streams,
    ):
        yield streams


def _why(error: BaseException, answers: _Answers) -> str:
    """Why there is no connection, in words that hold nothing of the entry's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, McpUnreachable):
        return str(error)
    if answers.status in (401, 403):
        return f"服务拒绝了连接（HTTP {answers.status}）；请检查 url 和 headers 里的密钥"
    if answers.status >= 400:
        return f"服务答复 HTTP {answers.status}；请检查 url"
    if isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED:
        return "程序一启动就结束了；请在终端里运行 command 看看"
    if isinstance(error, MCPError):
        return f"服务拒绝了连接（错误码 {error.code}）"
    if isinstance(error, httpx2.HTTPError):
        return f"连不上（{type(error).__name__}）；请检查 url 和网络"
    if isinstance(error, OSError):
        return f"程序无法启动（{error.strerror or type(error).__name__}）；请检查 command"
    return f"连不上（{type(error).__name__}）"


def _remote(tool: mcp_types.Tool) -> RemoteTool | None:
    hints = tool.annotations
    again = bool(hints and (hints.read_only_hint or hints.idempotent_hint))
    return remote_tool(tool.name, tool.description, tool.input_schema, repeatable=again)


def _piece(block: mcp_types.ContentBlock) -> Piece:
    if isinstance(block, mcp_types.TextContent):
        return Piece(block.type, block.text)
    if isinstance(block, mcp_types.EmbeddedResource):
        resource = block.resource
        return Piece(block.type, resource.text if isinstance(resource, mcp_types.TextResourceContents) else "")
    if isinstance(block, mcp_types.ResourceLink):
        return Piece(block.type, f"{block.name}：{block.uri}")
    return Piece(block.type)


def _short(text: str) -> str:
    text = " ".join(text.split()) or "服务没有说明原因"
    return text if len(text) <= MOST_ERROR else text[: MOST_ERROR - 1] + "…"
