"""DingTalk's long connection (Stream 模式): kept, renewed before it is left, made again with pauses.

Own client, because that of dingtalk-stream 0.24.3 acknowledges when the answer is ready, blocks the event loop,
reconnects without a pause after a clean close, and cannot be stopped.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

from yarl import URL

from channels.dingtalk.api import ApiError, DingTalkApi
from channels.dingtalk.codes import PASSING, Remedy
from channels.dingtalk.frame import SUBSCRIPTIONS
from channels.dingtalk.link import Handle, Link
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.json_values import text_at
from channels.reconnecting import GRACE_SECONDS, Disconnected, HandshakeFailed, Pauses, Reconnecting, open_socket

SILENCE_SECONDS = 90.0
"""A socket is dead when nothing came for so long, not even the answer to a WebSocket ping after two thirds of it."""
RENEW_SECONDS = 4 * 3600.0
"""Connections that answer pings and get no message any more were reported: none is kept longer than this."""

_MOST_MESSAGE = 16 << 20
_LEAVE_SECONDS = 2.0


class ConnectFailed(Disconnected):
    """No connection now, or not any more."""

    detail = "与钉钉的 Stream 连接断开，正在重连；请检查网络与 api-base-url"
    pauses = Pauses(0.5, 60.0)


class ConnectRefused(ConnectFailed):
    """The platform refuses this application: an admin must mend it."""

    pauses = Pauses(5.0, 60.0)

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.detail = (
            f"钉钉拒绝建立 Stream 连接（{code or '无错误码'}），请核对 client-id 与 client-secret，"
            "并确认机器人的消息接收模式为 Stream 模式"
        )


class Renewed(Disconnected):
    """The platform, or we, want another connection in place of one that is well: no pause, unless that does not end."""

    pauses = Pauses(0.5, 60.0, free=1)


class LongConnection:
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
        self._handle = handle
        self._rng = rng
        self._links: set[Link] = set()
        hello = "正在与钉钉建立 Stream 连接"
        self._life = Reconnecting(
            "dingtalk", entry, troubles, self._serve, self._end, hello=hello, lost=ConnectFailed, rng=rng, now=now
        )

    async def run(self) -> None:
        """Connects, serves and connects again, until `stop`."""
        await self._life.run()

    async def stop(self) -> None:
        """Reads no more, lets what is being stored be acknowledged for a moment, and closes."""
        await self._life.stop()

    async def _serve(self) -> None:
        """One connection, until another is needed; those before it are left once it is there. Raises Disconnected."""
        left = set(self._links)
        link = await self._connect()
        await self._leave(left, _LEAVE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RENEW_SECONDS * (0.75 + 0.25 * self._rng())):
                await link.over.wait()
        if link.reason and not link.told_to_leave:
            raise ConnectFailed(link.reason)
        raise Renewed("told to leave" if link.told_to_leave else "old")

    async def _leave(self, links: set[Link], grace: float) -> None:
        leaving = list(links)
        await asyncio.gather(*(link.close(grace) for link in leaving))
        self._links.difference_update(leaving)

    async def _end(self) -> None:
        await self._leave(self._links, GRACE_SECONDS)

    async def _connect(self) -> Link:
        """Opens a socket and begins to read it. Raises ConnectFailed, ConnectRefused."""
        address = await self._ask_address()
        heartbeat, proxy = SILENCE_SECONDS / 1.5, self._settings.proxy
        try:
            socket = await open_socket(
                self._api.session, address, proxy=proxy, most_bytes=_MOST_MESSAGE, heartbeat=heartbeat
            )
        except HandshakeFailed as error:
            raise ConnectFailed(str(error)) from error
        link = Link(socket, self._entry, self._handle)
        self._links.add(link)
        link.start()
        self._life.opened()
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
