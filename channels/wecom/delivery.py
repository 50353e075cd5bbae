"""One part of an answer goes to WeCom: as the end of its question's stream, else as a message of its own."""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from channels.channel import SendError, SendFailed, SendLimited, SendRefused, SendUncertain
from channels.message import InboundMessage, Part
from channels.wecom.codes import Remedy, remedy_for
from channels.wecom.connection import LongConnection
from channels.wecom.exchange import ConnectionLost, RequestFailed
from channels.wecom.frame import RESPOND_WELCOME, SEND
from channels.wecom.origin import Origin
from channels.wecom.quota import Quota
from channels.wecom.streams import Stream, Streams

_log = logging.getLogger("sanqiao.channels.wecom")

SEND_SECONDS = 29.0
"""No send waits for its turn or for a connection longer than this."""

WELCOME_SECONDS = 5.0
_ANSWERABLE_SECONDS = 24 * 3600.0 - 60
_READY_SECONDS = 20.0
_MOST_TRIES = 5
_MOST_UNHEARD = 2
_REST_SECONDS = 10.0


class Delivery:
    """Sends parts of one bot. A part counts as sent when the platform acknowledged it."""

    def __init__(
        self,
        connection: LongConnection,
        streams: Streams,
        quota: Quota,
        run: str,
        *,
        clock: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._quota = quota
        self._run = run
        self._clock = clock
        self._now = now
        self._rng = rng

    async def send(self, part: Part) -> str:
        """Sends one part. The platform names no id of what it sent: returns "". Raises SendError."""
        try:
            await self._deliver(part, self._now() + SEND_SECONDS)
        except SendError as error:
            _log.warning("wecom_not_sent entry=%s part=%d reason=%r", part.message.entry, part.number, str(error))
            if isinstance(error, SendRefused):
                self._streams.forget(part.message)
            raise
        return ""

    async def _deliver(self, part: Part, deadline: float) -> None:
        message, text = part.message, part.text
        origin = Origin.of(message)
        if origin.welcome:
            await self._welcome(origin, text)
            return
        stream = self._stream(message, origin) if part.number == 0 else None
        for _ in range(_MOST_TRIES):
            await self._wait_turn(origin.chat, deadline)
            if not await self._connection.ready(min(_READY_SECONDS, deadline - self._now())):
                raise SendFailed("no connection")
            by_stream = stream if stream is not None and stream.is_open(self._now()) else None
            try:
                code = await self._once(by_stream, origin, text)
            except ConnectionLost:
                continue
            if code == 0:
                if stream is not None:
                    self._streams.forget(message)
                return
            self._mend(code, by_stream, origin)
        raise SendFailed("the connection was lost too often")

    def _stream(self, message: InboundMessage, origin: Origin) -> Stream | None:
        """The stream a first part ends; None where the callback can no longer be answered."""
        if origin.run != self._run or not origin.req_id or self._clock() - origin.at > _ANSWERABLE_SECONDS:
            return None
        return self._streams.of(message)

    async def _once(self, stream: Stream | None, origin: Origin, text: str) -> int:
        """Tries once; returns the errcode. Raises ConnectionLost; SendFailed where no acknowledgement came.

        A frame of a stream may be repeated: it shows the same text in the same place. A message of its own may not.
        """
        try:
            if stream is not None:
                return await self._streams.finish(stream, text)
            kind = 2 if origin.group else 1
            body = {"chatid": origin.chat, "chat_type": kind, "msgtype": "markdown", "markdown": {"content": text}}
            return await self._connection.ask(SEND, body)
        except RequestFailed as error:
            if stream is None and error.written:
                raise SendUncertain(str(error)) from error
            if isinstance(error, ConnectionLost):
                raise
            if stream is not None:
                stream.unheard += 1
                stream.spoiled = stream.unheard >= _MOST_UNHEARD
            raise SendFailed("not acknowledged") from error

    def _mend(self, code: int, stream: Stream | None, origin: Origin) -> None:
        """What this errcode calls for, before the next try. Raises SendError where no other try helps."""
        remedy = remedy_for(code)
        if remedy is Remedy.WAIT:
            self._quota.pause(origin.chat, self._now(), _REST_SECONDS)
            raise SendLimited(f"errcode {code}", _REST_SECONDS * (1 + self._rng()))
        if remedy is Remedy.ASK_AGAIN or (remedy is Remedy.SEND_ACTIVELY and stream is None):
            raise SendFailed(f"errcode {code}")
        if remedy is Remedy.SUBSCRIBE_AGAIN:
            self._connection.renew("not subscribed")
        elif stream is None:
            raise SendRefused(f"errcode {code}")
        if stream is not None:
            stream.spoiled = True

    async def _wait_turn(self, chat: str, deadline: float) -> None:
        now = self._now()
        wait = self._quota.wait(chat, now)
        if now + wait >= deadline:
            raise SendLimited("too many messages in this conversation", wait)
        self._quota.take(chat, now)
        if wait:
            await asyncio.sleep(wait)

    async def _welcome(self, origin: Origin, text: str) -> None:
        """Greets a person who entered the chat: within five seconds or not at all."""
        left = origin.at + WELCOME_SECONDS - self._clock()
        if origin.run != self._run or left <= 0 or not await self._connection.ready(left):
            raise SendRefused("too late for a welcome")
        try:
            body = {"msgtype": "text", "text": {"content": text}}
            code = await self._connection.ask(RESPOND_WELCOME, body, origin.req_id)
        except RequestFailed as error:
            raise SendRefused(f"welcome not sent: {error}") from error
        if code:
            raise SendRefused(f"errcode {code}")
