"""A real MCP server, written with the package mcp: on a loopback port, or as a program on standard input and output.

As a program: ``python -m tests.platforms.mcp_server FOLDER``, where it leaves its process id.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any, Self

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ImageContent, TextContent, ToolAnnotations
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.waiting import until


def server_with(more: list[str], calls: list[tuple[str, Any]] | None = None) -> MCPServer:
    """The server with its own tools and one that echoes for each further name; `calls` is told of every call."""
    server = MCPServer("测试", log_level="ERROR")
    heard: list[tuple[str, Any]] = [] if calls is None else calls

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """把两个数相加"""
        heard.append(("add", (a, b)))
        return str(a + b)

    @server.tool()
    async def wait(seconds: float) -> str:
        """等一会儿"""
        heard.append(("wait", seconds))
        await anyio.sleep(seconds)
        return "等完了"

    @server.tool()
    def fail() -> str:
        """总是出错"""
        raise ValueError("库存系统在维护")

    @server.tool()
    def long() -> str:
        """很长的结果"""
        return "长" * 50_000

    @server.tool(structured_output=False)
    def picture() -> list[TextContent | ImageContent]:
        """一段文字和一张图片"""
        return [TextContent(text="看图"), ImageContent(data="AAAA", mime_type="image/png")]

    @server.tool()
    def secret(name: str) -> str:
        """一个环境变量"""
        return os.environ.get(name, "没有")

    @server.tool(name="名字 不合规/的.工具")
    def odd() -> str:
        """名字不合规的工具"""
        return "合规"

    for name in more:
        server.add_tool(lambda: "后来的", name=name, description=name)
    return server


class HttpMcpServer:
    """`async with HttpMcpServer() as server:`, then `server.url`. `headers` are those of each request.

    `token`: what `Authorization` must be, if anything. `close` and `open` again keep the port.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.calls: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tools: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def open(self) -> None:
        """Begins to listen."""
        server = server_with(self.tools, self.calls)
        config = uvicorn.Config(
            self._guarded(server.streamable_http_app()), log_config=None, lifespan="on", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._life = asyncio.create_task(self._server._serve([listening]))
        await until(lambda: self._server.started)

    async def close(self) -> None:
        """Hangs up on everybody."""
        self._server.should_exit = self._server.force_exit = True
        await self._life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._life.done():
            await self.close()

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.headers.append(headers)
                if self.token and headers.get("authorization") != self.token:
                    await send({"type": "http.response.start", "status": 401, "headers": []})
                    await send({"type": "http.response.body", "body": b"who are you"})
                    return
            await app(scope, receive, send)

        return guarded


def main() -> None:
    """The program."""
    (Path(sys.argv[1]) / f"pid-{os.getpid()}").touch()
    server_with([]).run("stdio")


if __name__ == "__main__":
    main()
