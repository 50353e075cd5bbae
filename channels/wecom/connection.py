"""The long connection of one bot: one socket, subscribed, kept alive with pings, made again with growing pauses.

developer.work.weixin.qq.com, 智能机器人 › 长连接. Own client, because wecom-aibot-python-sdk 1.0.2 takes no `ws://`
address, does nothing about `disconnected_event` and does not come back after a plain close.
"""

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from channels.health import Troubles
from channels.wecom.exchange import AckMissing, ConnectionLost, Exchange
from channels.wecom.frame import PING, SUBSCRIBE, Frame, decode
from channels.wecom.losses import Backoff, Loss, Refused, TakenOver
from channels.wecom.settings import WeComBotSettings

_log = logging.getLogger("sanqiao.channels.wecom")

Handle = Callable[[Frame], Awaitable[None]]
"""Takes one callback of the server."""

CONNECT_SECONDS = 10.0
PING_SECONDS = 30.0
_MOST_AT_ONCE = 512
_MOST_MESSAGE = 8 << 20
_STOP_SECONDS = 0.5


class LongConnection:
    """Keeps one subscribed connection until stopped; never gives up."""

    def __init__(
        self,
        settings: WeComBotSettings,
        entry: str,
        troubles: Troubles,
        handle: Handle,
        *,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._entry = entry
        self._troubles = troubles
        self._handle = handle
        self._backoff = Backoff(rng)
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._subscribed = asyncio.Event()
        self._subscribed_at = 0.0
        self._exchange: Exchange | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._troubles.report("connection", "正在与企业微信建立长连接", logging.INFO)

    # ---- for those who send

    async def ready(self, seconds: float) -> bool:
        """Waits until subscribed, `seconds` at most; whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._subscribed.wait()
        return self._subscribed.is_set()

    async def ask(self, cmd: str, body: Mapping[str, object] | None = None, req_id: str = "") -> int:
        """Sends a frame on the subscribed connection; returns the errcode of its acknowledgement.

        `req_id` is that of the callback it answers, or "" for a new one. Raises ConnectionLost, AckMissing.
        """
        exchange = self._exchange
        if exchange is None or not self._subscribed.is_set():
            raise ConnectionLost("not connected")
        return (await exchange.ask(cmd, req_id or _new_id(cmd), body)).errcode

    def renew(self, reason: str) -> None:
        """The connection is open but of no use: it is closed and made again."""
        if self._exchange is not None:
            self._exchange.close(reason)

    # ---- life

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        self._idle.clear()
        try:
            await self._keep_connected()
        finally:
            self._idle.set()

    async def stop(self) -> None:
        """Closes the connection, after a moment for what is being stored."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(4 * _STOP_SECONDS):
                await self._idle.wait()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _keep_connected(self) -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            while not self._stopping.is_set():
                self._subscribed_at = 0.0
                loss = await self._until_lost(session)
                if self._stopping.is_set():
                    return
                lasted = time.monotonic() - self._subscribed_at if self._subscribed_at else 0.0
                pause = self._backoff.pause(loss, lasted)
                _log.warning("wecom_disconnected entry=%s reason=%r again_in=%.1f", self._entry, str(loss), pause)
                self._troubles.report("connection", loss.detail)
                await self._until_stopped(asyncio.sleep(pause))

    async def _until_lost(self, session: aiohttp.ClientSession) -> Loss:
        try:
            await self._until_stopped(self._connect_and_serve(session))
        except Loss as loss:
            return loss
        except Exception as error:  # border: the one task that keeps this connection
            _log.exception("wecom_connection_error entry=%s", self._entry)
            return Loss(type(error).__name__)
        return Loss("closed")

    async def _until_stopped(self, work: Awaitable[None]) -> None:
        """Awaits `work`, but cancels it as soon as the connection is to stop."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _connect_and_serve(self, session: aiohttp.ClientSession) -> None:
        """One connection from handshake to loss. Raises Loss."""
        socket = await self._connect(session)
        dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def give_up(reason: str) -> None:
            self._subscribed.clear()
            if not dead.done():
                dead.set_result(reason)

        exchange = self._exchange = Exchange(socket.send_str, give_up)
        tasks = [
            asyncio.create_task(self._read(socket, exchange), name=f"wecom-read-{self._entry}"),
            asyncio.create_task(self._lead(exchange), name=f"wecom-ping-{self._entry}"),
            asyncio.create_task(_lost(dead), name=f"wecom-watch-{self._entry}"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            exchange.close("connection ended")
            self._exchange = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._stopping.is_set() and self._work:
                await asyncio.wait(self._work, timeout=_STOP_SECONDS)
            await socket.close()

    async def _connect(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await session.ws_connect(
                    self._settings.websocket_url,
                    max_msg_size=_MOST_MESSAGE,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_STOP_SECONDS / 2),
                    proxy=self._settings.proxy or None,
                )
        except TimeoutError as error:
            raise Loss("handshake timed out") from error
        except aiohttp.WSServerHandshakeError as error:
            raise Loss(f"handshake refused with status {error.status}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Loss(type(error).__name__) from error

    async def _lead(self, exchange: Exchange) -> None:
        """Subscribes, then pings; ends with the connection. Raises Loss."""
        body = {"bot_id": self._settings.bot_id, "secret": self._settings.secret.get_secret_value()}
        try:
            ack = await exchange.ask(SUBSCRIBE, _new_id(SUBSCRIBE), body)
            if ack.errcode:
                raise Refused(ack.errcode)
        except AckMissing as error:
            raise Loss("subscribe not acknowledged") from error
        except ConnectionLost as error:
            raise Loss("closed while subscribing") from error
        self._subscribed_at = time.monotonic()
        self._subscribed.set()
        self._troubles.clear("connection")
        _log.info("wecom_subscribed entry=%s", self._entry)
        with contextlib.suppress(ConnectionLost):
            while True:
                await asyncio.sleep(PING_SECONDS)
                with contextlib.suppress(AckMissing):  # the exchange counts them
                    await exchange.ask(PING, _new_id(PING))

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, exchange: Exchange) -> None:
        """Reads until the socket ends. Raises Loss."""
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                await self._on_text(message.data, exchange)
            elif message.type is not aiohttp.WSMsgType.BINARY:
                raise Loss(f"closed with code {socket.close_code}")

    async def _on_text(self, text: str, exchange: Exchange) -> None:
        frame = decode(text)
        if frame is None:
            _log.warning("wecom_bad_frame entry=%s bytes=%d", self._entry, len(text))
        elif not frame.cmd:
            exchange.acknowledge(frame)
        elif frame.event == "disconnected_event":
            raise TakenOver("another connection took over")
        else:
            await self._free.acquire()  # when the store is slow, the platform is read more slowly
            task = asyncio.create_task(self._take(frame), name=f"wecom-callback-{self._entry}")
            self._work.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        self._free.release()

    async def _take(self, frame: Frame) -> None:
        try:
            await self._handle(frame)
        except Exception:  # border: one callback
            _log.exception("wecom_callback_failed entry=%s", self._entry)


async def _lost(reason: asyncio.Future[str]) -> None:
    raise Loss(await reason)


def _new_id(cmd: str) -> str:
    return f"{cmd}_{uuid.uuid4().hex}"
