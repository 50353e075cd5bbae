"""A way to a stand-in platform that can break: frozen, flapping, cut in mid-answer, gone for a while."""

import asyncio
import contextlib
from typing import Self


class TcpProxy:
    """`async with TcpProxy(port) as proxy:`; what connects to `proxy.port` reaches `port` on loopback.

    `frozen`: connections are taken and kept, and nothing passes either way until `thaw`. `flapping`: connections are
    taken and dropped at once. `cuts`: so many answers are cut off after their request passed. `accepted` counts.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.flapping = False
        self.cuts = 0
        self.accepted: list[float] = []
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.thaw()
        await self.down()

    async def up(self) -> None:
        """Listens, on the same port as before."""
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Nobody listens any more, and what is connected breaks."""
        if self._server is not None:
            self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Breaks what is connected, without a word."""
        for writer in list(self._writers):
            writer.transport.abort()

    def freeze(self) -> None:
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(asyncio.get_running_loop().time())
        if self.flapping:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            from_target, other = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(other)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, other, answers=False))
                tasks.create_task(self._pump(from_target, writer, answers=True))
        except* OSError:
            pass
        finally:
            for each in (writer, other):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            if answers and self.cuts:
                self.cuts -= 1
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
        raise ConnectionResetError
