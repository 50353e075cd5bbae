"""One WebSocket of the long connection: frames are read, robot messages stored, each frame acknowledged where it came from."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import aiohttp

from channels.dingtalk.frame import Frame, acknowledgement, read_frame
from channels.reconnecting import Work

_log = logging.getLogger("sanqiao.channels.dingtalk")

_MOST_AT_ONCE = 256

Handle = Callable[[Frame], Awaitable[bool]]
"""Takes one robot message; True when it is stored (or not wanted), False when it is not."""


class Link:
    """Reads one socket from `start` until it ends or is closed; never ends with an exception.

    A robot message is acknowledged once it is stored and never waits for its answer.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, entry: str, handle: Handle) -> None:
        self._socket = socket
        self._entry = entry
        self._handle = handle
        self._work = Work(f"dingtalk-message-{entry}", _MOST_AT_ONCE)
        self._reader: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        self.reason = ""
        self.told_to_leave = False

    def start(self) -> None:
        """Begins to read. `over` is set when another connection is needed, because this one ends or ended."""
        self._reader = asyncio.create_task(self._read(), name=f"dingtalk-read-{self._entry}")

    async def close(self, grace: float) -> None:
        """Reads no more, lets what is being stored be acknowledged for `grace` seconds, and closes."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._work.settle(grace)
        await self._socket.close()

    async def _read(self) -> None:
        try:
            while not self.reason:
                message = await self._socket.receive()
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._on_text(message.data)
                elif message.type is not aiohttp.WSMsgType.BINARY:
                    self.reason = f"closed with code {self._socket.close_code}"
        except ConnectionError as error:
            self.reason = type(error).__name__
        except Exception as error:  # border: the one task that reads this socket
            _log.exception("dingtalk_read_failed entry=%s", self._entry)
            self.reason = type(error).__name__
        finally:
            self.over.set()

    async def _on_text(self, text: str) -> None:
        frame = read_frame(text)
        if frame is None:
            _log.warning("dingtalk_bad_frame entry=%s characters=%d", self._entry, len(text))
        elif frame.is_disconnect:
            self.told_to_leave = True
            self.over.set()
        elif frame.is_robot_message:
            await self._work.begin(lambda: self._take(frame))
        else:
            if frame.type != "SYSTEM":
                _log.info("dingtalk_unused_frame entry=%s type=%r", self._entry, frame.type[:40])
            await self._socket.send_str(acknowledgement(frame))

    async def _take(self, frame: Frame) -> None:
        """Has one message stored, then acknowledges it. What was not stored is not acknowledged: it may come again."""
        try:
            stored = await self._handle(frame)
        except Exception:  # border: one message
            _log.exception("dingtalk_message_failed entry=%s", self._entry)
            stored = False
        if stored:
            with contextlib.suppress(ConnectionError):  # gone: should it come again, it is a duplicate then
                await self._socket.send_str(acknowledgement(frame))
