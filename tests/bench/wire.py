"""HTTP/1.1 between processes of one machine, as lean as can be: what measures must cost less than what is measured.

Only what both sides here need: bodies with a Content-Length, one request at a time on a connection, no TLS.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_BACKLOG = 4096

Write = Callable[[bytes], None]
Handle = Callable[[bytes, bytes, Write], None]
"""Takes head and body of a request, and what writes the whole response, now or later."""


class Messages:
    """The bytes of one direction of a connection → head (without the empty line) and body of each message."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The messages that are whole now. Raises ValueError for a chunked body."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            if _CHUNKED.search(head):
                raise ValueError("a chunked body is not understood here")
            found = _LENGTH.search(head)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._data) < whole:
                return
            body, self._data = self._data[end + 4 : whole], self._data[whole:]
            yield head, body


def json_response(body: bytes = b"{}") -> bytes:
    """A whole response that carries JSON."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class _Serving(asyncio.Protocol):
    """One connection of a server."""

    def __init__(self, handle: Handle, open_ones: set[asyncio.Transport]) -> None:
        self._handle, self._open_ones, self._messages = handle, open_ones, Messages()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        for head, body in self._messages.feed(data):
            self._handle(head, body, self._write)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    """Serves on a free loopback port meanwhile; the address."""
    open_ones: set[asyncio.Transport] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Serving(handle, open_ones), "127.0.0.1", 0, backlog=_BACKLOG)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for transport in list(open_ones):
            transport.abort()
        await server.wait_closed()


class _Asking(asyncio.Protocol):
    """One connection of a client."""

    waiting: asyncio.Future[tuple[int, bytes]] | None = None
    closed = False

    def __init__(self) -> None:
        self._messages = Messages()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for head, body in self._messages.feed(data):
            if self.waiting is not None and not self.waiting.done():
                self.waiting.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError("closed without a response"))


class Client:
    """Asks one port of this machine; connections that have answered are used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[_Asking] = []
        self._all: list[_Asking] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._all:
            connection.transport.abort()

    async def post(self, path: str, body: bytes, headers: str = "") -> tuple[int, bytes]:
        """Status and body of the response; `headers` are whole lines. Raises OSError."""
        connection = await self._connection()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        connection.waiting = asyncio.get_running_loop().create_future()
        answered = False
        try:
            connection.transport.write(head.encode() + body)
            answer = await connection.waiting
            answered = True
            return answer
        finally:
            if answered:
                self._idle.append(connection)
            else:
                connection.transport.abort()  # what comes now would be taken for the next answer

    async def _connection(self) -> _Asking:
        while self._idle:
            if not (connection := self._idle.pop()).closed:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(_Asking, "127.0.0.1", self._port)
        self._all.append(connection)
        return connection
