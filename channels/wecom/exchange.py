"""Requests on one socket: each frame of ours goes out and waits for its acknowledgement, one after another per req_id."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from weakref import WeakValueDictionary

from channels.wecom.frame import Frame, encode

_log = logging.getLogger("sanqiao.channels.wecom")

ACK_SECONDS = 5.0
MOST_MISSED = 2
"""Acknowledgements missing in a row after which a connection counts as dead."""

_MOST_WAITING = 2000


class RequestFailed(Exception):
    """A frame was not acknowledged. Of one that was `written`, nobody knows whether the platform took it."""

    written = True


class ConnectionLost(RequestFailed):
    """There is no connection, or it ended before the acknowledgement came."""

    def __init__(self, reason: str, *, written: bool = False) -> None:
        super().__init__(reason)
        self.written = written


class AckMissing(RequestFailed):
    """No acknowledgement came in time on a connection that is open."""


class Exchange:
    """The requests of one socket. `dead` is called once, with the reason, when the socket is of no more use."""

    def __init__(self, send: Callable[[str], Awaitable[None]], dead: Callable[[str], None]) -> None:
        self._send = send
        self._dead = dead
        self._waiting: dict[str, deque[asyncio.Future[Frame | None]]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._missed = 0
        self._closed = False

    async def ask(self, cmd: str, req_id: str, body: Mapping[str, object] | None = None) -> Frame:
        """Sends one frame after those of the same req_id were acknowledged; returns its acknowledgement.

        Raises ConnectionLost, AckMissing.
        """
        turn = self._turns.setdefault(req_id, asyncio.Lock())
        async with turn:
            if self._closed:
                raise ConnectionLost("closed")
            ack: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
            # It stays in the queue when nobody waits any more: a late acknowledgement is never taken for the next one.
            self._waiting.setdefault(req_id, deque()).append(ack)
            return await self._write_and_wait(encode(cmd, req_id, body), ack)

    async def _write_and_wait(self, text: str, ack: asyncio.Future[Frame | None]) -> Frame:
        written = False
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await self._send(text)
                written = True
                frame = await ack
        except TimeoutError as error:
            self._missed += 1
            if not written or self._missed >= MOST_MISSED or len(self._waiting) >= _MOST_WAITING:
                self.close(f"{self._missed} acknowledgements missing" if written else "cannot write")
            raise AckMissing("not acknowledged") from error
        except ConnectionError as error:
            self.close(type(error).__name__)
            raise ConnectionLost(type(error).__name__) from error
        if frame is None:
            raise ConnectionLost("closed before the acknowledgement", written=True)
        return frame

    def acknowledge(self, frame: Frame) -> None:
        """A frame without `cmd` came."""
        queue = self._waiting.get(frame.req_id)
        if not queue:
            _log.debug("wecom_stray_ack errcode=%d", frame.errcode)
            return
        self._missed = 0
        ack = queue.popleft()
        if not queue:
            del self._waiting[frame.req_id]
        if not ack.done():
            ack.set_result(frame)

    def close(self, reason: str) -> None:
        """Whoever waits hears ConnectionLost."""
        if self._closed:
            return
        self._closed = True
        self._dead(reason)
        for queue in self._waiting.values():
            for ack in queue:
                if not ack.done():
                    ack.set_result(None)
        self._waiting.clear()
