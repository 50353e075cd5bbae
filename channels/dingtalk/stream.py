"""The stream (Stream 模式): one connection to DingTalk is kept, renewed before it is left, and tried again with pauses.

Own client, because that of dingtalk-stream 0.24.3 acknowledges when the answer is ready, blocks the event loop,
reconnects without a pause after a clean close, and cannot be stopped.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from channels.calls import TRY_SECONDS
from channels.dingtalk.api import ApiError, DingTalkApi
from channels.dingtalk.codes import PASSING, Remedy
from channels.dingtalk.frame import SUBSCRIPTIONS
from channels.dingtalk.link import Handle, Link
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.json_values import text_at

_log = logging.getLogger("sanqiao.channels.dingtalk")

T = TypeVar("T")

SILENCE_SECONDS = 90.0
"""A socket is dead when nothing came for so long, not even the answer to a WebSocket ping after two thirds of it."""
FIRST_PAUSE, FIRST_PAUSE_REFUSED, LONGEST_PAUSE = 0.5, 5.0, 60.0
STABLE_SECONDS = 10.0
RENEW_SECONDS = 4 * 3600.0
"""Connections that answer pings and get no message any more were reported: none is kept longer than this."""

_MOST_AT_ONCE = 256
_MOST_MESSAGE = 16 << 20
_STOP_SECONDS = 0.5
_LEAVE_SECONDS = 2.0


class ConnectFailed(Exception):
    """No connection now. The message is for logs: no address, for it holds the ticket.

    `detail` is what an admin reads (Chinese, with the remedy).
    """

    detail = "与钉钉的 Stream 连接断开，正在重连；请检查网络与 api-base-url"


class ConnectRefused(ConnectFailed):
    """The platform refuses this application: an admin must mend it."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.detail = (
            f"钉钉拒绝建立 Stream 连接（{code or '无错误码'}），请核对 client-id 与 client-secret，"
            "并确认机器人的消息接收模式为 Stream 模式"
        )


class Stream:
    """Keeps one connection until stopped; never gives up."""

    def __init__(
        self,
        api: DingTalkApi,
        settings: DingTalkSettings,
        entry: str,
        troubles: Troubles,
        handle: Handle,
        *,
        now: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._settings = settings
        self._entry = entry
        self._troubles = troubles
        self._handle = handle
        self._now = now
        self._rng = rng
        self._links: set[Link] = set()
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        self._idle.clear()
        self._troubles.report("connection", "正在与钉钉建立 Stream 连接", logging.INFO)
        try:
            await self._keep_connected()
        finally:
            await self._leave(self._links, _STOP_SECONDS)
            self._idle.set()

    async def stop(self) -> None:
        """Reads no more, lets what is being stored be acknowledged for a moment, and closes; well under a second."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * _STOP_SECONDS):
                await self._idle.wait()

    async def _keep_connected(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            left = set(self._links)  # the platform, or we, want to be rid of these, but not before there is another
            try:
                link = await self._until_stopped(self._connect())
            except ConnectFailed as error:
                await self._rest(self._pause(failures, error), error)
                failures += 1
                continue
            if link is None:
                return
            await self._until_stopped(self._leave(left, _LEAVE_SECONDS))
            await self._until_stopped(self._serve(link))
            # A server that takes connections only to close them must not be asked again and again.
            failures = 0 if link.seconds() >= STABLE_SECONDS else failures
            if link.reason and not link.told_to_leave:
                await self._rest(self._pause(failures, ConnectFailed()), ConnectFailed(link.reason))
            elif failures:
                await self._until_stopped(asyncio.sleep(self._pause(failures, ConnectFailed())))
            failures += 1

    async def _serve(self, link: Link) -> None:
        """Returns when another connection is needed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RENEW_SECONDS * (0.75 + 0.25 * self._rng())):
                await link.over.wait()

    async def _leave(self, links: set[Link], grace: float) -> None:
        leaving = list(links)
        await asyncio.gather(*(link.close(grace) for link in leaving))
        self._links.difference_update(leaving)

    async def _rest(self, pause: float, error: ConnectFailed) -> None:
        if self._stopping.is_set():
            return
        _log.warning("dingtalk_disconnected entry=%s reason=%r again_in=%.1f", self._entry, str(error), pause)
        self._troubles.report("connection", error.detail)
        await self._until_stopped(asyncio.sleep(pause))

    def _pause(self, failures: int, error: ConnectFailed) -> float:
        first = FIRST_PAUSE_REFUSED if isinstance(error, ConnectRefused) else FIRST_PAUSE
        return min(LONGEST_PAUSE, first * 2.0 ** min(failures, 20)) * (0.5 + 0.5 * self._rng())

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Awaits `work`, but cancels it as soon as the stream is to stop; None then."""
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _connect(self) -> Link:
        """Opens a socket and begins to read it. Raises ConnectFailed, ConnectRefused."""
        try:
            socket = await self._open_socket(await self._ask_address())
        except ConnectFailed:
            raise
        except Exception as error:  # border: the one task that keeps this connection
            _log.exception("dingtalk_connection_error entry=%s", self._entry)
            raise ConnectFailed(type(error).__name__) from None
        link = Link(socket, self._entry, self._handle, self._free, self._now)
        self._links.add(link)
        link.start()
        self._troubles.clear("connection")
        _log.info("dingtalk_connected entry=%s", self._entry)
        return link

    async def _ask_address(self) -> URL:
        """Where to connect, with the ticket: good for 90 s and one use."""
        try:
            answer = await self._api.open_connection(SUBSCRIPTIONS)
        except ApiError as error:
            if error.remedy in (*PASSING, Remedy.QUOTA):
                raise ConnectFailed(str(error)) from error
            raise ConnectRefused(str(error), error.code) from error
        try:
            url = URL(text_at(answer, "endpoint"))
        except ValueError:
            raise ConnectFailed("answer with a bad endpoint") from None
        ticket = text_at(answer, "ticket")
        secure = self._settings.api_base_url.startswith("https:")
        if not url.host or not ticket or url.scheme not in (("wss",) if secure else ("ws", "wss")):
            raise ConnectFailed("answer without a usable endpoint and ticket")
        return url.update_query(ticket=ticket)

    async def _open_socket(self, url: URL) -> aiohttp.ClientWebSocketResponse:
        """The errors of aiohttp quote the address: they are not passed on."""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                return await self._api.session.ws_connect(
                    url,
                    heartbeat=SILENCE_SECONDS / 1.5,
                    max_msg_size=_MOST_MESSAGE,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_STOP_SECONDS / 2),
                    proxy=self._settings.proxy or None,
                )
        except aiohttp.WSServerHandshakeError as error:
            reason = f"handshake refused with status {error.status}"
        except TimeoutError:
            reason = "handshake timed out"
        except (aiohttp.ClientError, OSError) as error:
            reason = type(error).__name__
        raise ConnectFailed(reason)
