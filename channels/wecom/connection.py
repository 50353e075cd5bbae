"""The long connection of one bot: one socket, subscribed, kept alive with pings, made again with growing pauses.

developer.work.weixin.qq.com, 智能机器人 › 长连接. Own client, because wecom-aibot-python-sdk 1.0.2 takes no `ws://`
address, does nothing about `disconnected_event` and does not come back after a plain close.
"""

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from channels.health import Troubles
from channels.reconnecting import GRACE_SECONDS, HandshakeFailed, Reconnecting, Work, open_socket
from channels.wecom.exchange import AckMissing, ConnectionLost, Exchange
from channels.wecom.frame import PING, SUBSCRIBE, Frame, decode
from channels.wecom.losses import Loss, Refused, TakenOver
from channels.wecom.settings import WeComBotSettings

_log = logging.getLogger("sanqiao.channels.wecom")

Handle = Callable[[Frame], Awaitable[None]]
"""Takes one callback of the server."""

PING_SECONDS = 30.0
_MOST_AT_ONCE = 512
_MOST_MESSAGE = 8 << 20


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
        self._handle = handle
        self._subscribed = asyncio.Event()
        self._exchange: Exchange | None = None
        self._work = Work(f"wecom-callback-{entry}", _MOST_AT_ONCE)
        hello = "正在与企业微信建立长连接"
        self._life = Reconnecting(
            "wecom", entry, troubles, self._serve, self._work.settle, hello=hello, lost=Loss, rng=rng
        )
        self._life.announce()

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
        await self._life.run()

    async def stop(self) -> None:
        """Closes the connection, after a moment for what is being stored."""
        await self._life.stop()

    async def _serve(self) -> None:
        """One connection from handshake to loss. Raises Loss."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            try:
                socket = await open_socket(
                    session, self._settings.websocket_url, proxy=self._settings.proxy, most_bytes=_MOST_MESSAGE
                )
            except HandshakeFailed as error:
                raise Loss(str(error)) from error
            await self._serve_socket(socket)

    async def _serve_socket(self, socket: aiohttp.ClientWebSocketResponse) -> None:
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
            if self._life.stopping:
                await self._work.settle(GRACE_SECONDS)
            await socket.close()

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
        self._subscribed.set()
        self._life.opened()
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
            await self._work.begin(lambda: self._take(frame))

    async def _take(self, frame: Frame) -> None:
        try:
            await self._handle(frame)
        except Exception:  # border: one callback
            _log.exception("wecom_callback_failed entry=%s", self._entry)


async def _lost(reason: asyncio.Future[str]) -> None:
    raise Loss(await reason)


def _new_id(cmd: str) -> str:
    return f"{cmd}_{uuid.uuid4().hex}"
