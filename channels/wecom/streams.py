"""Answers people watch while they are made: one stream per question, refreshed seldom, finished exactly once.

developer.work.weixin.qq.com, 智能机器人 › 回复消息: each frame of a stream holds the whole text so far; a stream ends
with its `finish` frame, at the latest six minutes after its first frame.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from channels import markup
from channels.channel import SendRefused, Texts
from channels.message import Answered, Delta, Failed, InboundMessage, Joined, Progress, Routed, Silent
from channels.text import is_blank
from channels.wecom.codes import STREAM_EXPIRED, Remedy, remedy_for
from channels.wecom.connection import LongConnection
from channels.wecom.exchange import ConnectionLost, RequestFailed
from channels.wecom.frame import RESPOND
from channels.wecom.origin import Origin
from channels.wecom.quota import Quota
from channels.wecom.render import PART_BYTES, beginning

_log = logging.getLogger("sanqiao.channels.wecom")

REFRESH_SECONDS = 2.0
STREAM_SECONDS = 340.0
_REST_SECONDS = 10.0
_MOST_STREAMS = 1000
_CLOSE_SECONDS = 4.0
_NOTICE_BYTES = 400


@dataclass(slots=True, eq=False)
class Stream:
    """One answer as it is shown. `made` is when it was asked for, `begun` when its first frame went out (monotonic).

    `finishing` is set once a finish frame went out, `finished` once it was taken. A `muted` stream is refreshed no
    more; of a `spoiled` one the platform takes no frame at all.
    """

    origin: Origin
    id: str
    made: float
    said: list[str] = field(default_factory=list)
    size: int = 0
    told: str = ""
    begun: float | None = None
    shown: str = ""
    shown_at: float = -math.inf
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    finishing: bool = False
    finished: bool = False
    muted: bool = False
    spoiled: bool = False
    unheard: int = 0

    @property
    def text(self) -> str:
        """What was said so far, as it is shown."""
        return beginning(markup.wecom("".join(self.said)))

    def add(self, text: str) -> None:
        """The answer goes on; what no frame can hold is not kept."""
        if self.size < PART_BYTES:
            self.said.append(text)
            self.size += len(text)
            self.changed.set()

    def is_open(self, now: float) -> bool:
        """Whether the platform still takes its finish frame."""
        return not (self.finished or self.spoiled) and (self.begun is None or now - self.begun < STREAM_SECONDS)

    def left(self, now: float) -> float:
        """Seconds until it is to be finished, whole or not."""
        return (self.made if self.begun is None else self.begun) + STREAM_SECONDS - 1 - now

    def end(self) -> None:
        """Nothing more is shown but the last frame."""
        self.closing.set()
        self.changed.set()


def stream_id(message: InboundMessage) -> str:
    """The id of the stream that answers a message: the same each time it is tried."""
    parts = f"{message.account}\n{message.id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(parts).hexdigest()[:32]


class Streams:
    """The open streams of one bot, by the message each answers; at most 1,000, more are shown when they are whole."""

    def __init__(
        self,
        connection: LongConnection,
        quota: Quota,
        texts: Texts,
        *,
        entry: str,
        run: str,
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._texts = texts
        self._quota = quota
        self._entry = entry
        self._run = run
        self._now = now
        self._open: dict[str, Stream] = {}
        self._joined: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # ---- what the gateway tells

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """What happens to a message, in the order in which it happens. Does not block."""
        if self._closed:
            return
        stream = self._open.get(message.id)
        match event:
            case Joined():
                self._join(message, stream)
            case Routed() if stream is None and message.id not in self._joined:
                self._begin(message)
            case Delta(text) if stream is not None:
                stream.add(text)
            case Answered(text) | Failed(text):
                self._joined.pop(message.id, None)
                if stream is not None:
                    stream.told = text
            case Silent() if stream is not None:
                self._spawn(self._end(message, stream, stream.told or stream.text or self._texts("nothing-to-show")))

    def _join(self, message: InboundMessage, stream: Stream | None) -> None:
        while len(self._joined) >= _MOST_STREAMS:
            del self._joined[next(iter(self._joined))]
        self._joined[message.id] = None
        if stream is not None:
            self._spawn(self._end(message, stream, self._texts("merged")))

    def _begin(self, message: InboundMessage) -> None:
        try:
            origin = Origin.of(message)
        except SendRefused:
            return  # whoever sends the answer is told
        if origin.run != self._run or not origin.req_id or not self._has_room():
            return
        stream = self._open[message.id] = Stream(origin, stream_id(message), self._now())
        self._spawn(self._show(stream))

    def _has_room(self) -> bool:
        if len(self._open) >= _MOST_STREAMS:
            now = self._now()
            for key in [key for key, stream in self._open.items() if stream.left(now) <= 0 or not stream.is_open(now)]:
                self._open.pop(key).end()
        return len(self._open) < _MOST_STREAMS

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"wecom-stream-{self._entry}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():  # border of one stream: its answer is sent all the same
            _log.error("wecom_stream_failed entry=%s", self._entry, exc_info=task.exception())

    # ---- what the delivery asks

    def of(self, message: InboundMessage) -> Stream:
        """The stream that answers this message, or one that was not begun yet."""
        stream = self._open.get(message.id) or Stream(Origin.of(message), stream_id(message), self._now())
        if self._has_room():
            self._open[message.id] = stream
        return stream

    def is_answering(self, message: InboundMessage) -> bool:
        """Whether an answer to this message is being shown."""
        return message.id in self._open

    def forget(self, message: InboundMessage) -> None:
        """The message is answered, or never will be."""
        stream = self._open.pop(message.id, None)
        if stream is not None:
            stream.end()

    async def finish(self, stream: Stream, text: str) -> int:
        """Shows the last text and ends the stream; returns the errcode. Raises ConnectionLost, AckMissing.

        A stream that ended meanwhile is answered as the platform would.
        """
        stream.end()
        async with stream.turn:
            if not stream.is_open(self._now()):
                return STREAM_EXPIRED
            return await self._frame(stream, text, finish=True)

    async def close(self) -> None:
        """Ends what is still shown unfinished with a notice, within 4 s: its answer comes after the restart."""
        self._closed = True
        left = [stream for stream in self._open.values() if stream.begun is not None and not stream.finishing]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*(self._say_goodbye(stream) for stream in left))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._open.clear()

    async def _say_goodbye(self, stream: Stream) -> None:
        text = f"{self._so_far(stream)}{self._notice('restarting')}"
        try:
            code = await self.finish(stream, text)
        except RequestFailed as error:
            _log.warning("wecom_stream_left_open entry=%s reason=%s", self._entry, error)
        else:
            _log.info("wecom_stream_interrupted entry=%s errcode=%d", self._entry, code)

    # ---- what is shown meanwhile

    async def _end(self, message: InboundMessage, stream: Stream, text: str) -> None:
        """Nothing more comes for this message: its stream is finished with a short text."""
        if await self._connection.ready(STREAM_SECONDS):
            with contextlib.suppress(RequestFailed):
                await self.finish(stream, beginning(markup.wecom(text)))
        if self._open.get(message.id) is stream:
            self.forget(message)

    async def _show(self, stream: Stream) -> None:
        """Shows the first frame at once and then the text so far, until the stream is closing or too old."""
        while not stream.closing.is_set() and await self._worth_showing(stream):
            async with stream.turn:
                if stream.closing.is_set():
                    return
                if stream.left(self._now()) <= 0:
                    await self._give_up(stream)
                    return
                await self._refresh(stream)

    async def _worth_showing(self, stream: Stream) -> bool:
        """Waits until there is something new to show and it may be shown; False when nothing can be shown any more."""
        now = self._now()
        if stream.muted:
            await _within(stream.closing, stream.left(now))
        elif stream.begun is None or await _within(stream.changed, stream.left(now)):
            stream.changed.clear()
            now = self._now()
            due = max(stream.shown_at + REFRESH_SECONDS - now, self._quota.wait_to_refresh(stream.origin.chat, now))
            await _within(stream.closing, min(due, stream.left(now)))
        return not stream.closing.is_set() and await self._connection.ready(stream.left(self._now()))

    async def _refresh(self, stream: Stream) -> None:
        text = stream.text
        text = self._notice("thinking") if is_blank(text) else text
        if text == stream.shown:
            return
        self._quota.take(stream.origin.chat, self._now())
        try:
            code = await self._frame(stream, text, finish=False)
        except ConnectionLost:
            stream.changed.set()
            return
        except RequestFailed:
            return
        if code:
            self._refused(stream, code)

    def _refused(self, stream: Stream, code: int) -> None:
        _log.warning("wecom_refresh_refused entry=%s errcode=%d", self._entry, code)
        remedy = remedy_for(code)
        stream.muted = remedy is not Remedy.WAIT
        stream.spoiled = remedy in (Remedy.SUBSCRIBE_AGAIN, Remedy.SEND_ACTIVELY)
        if remedy is Remedy.WAIT:
            self._quota.pause(stream.origin.chat, self._now(), _REST_SECONDS)
            stream.changed.set()
        elif remedy is Remedy.SUBSCRIBE_AGAIN:
            self._connection.renew("not subscribed")

    async def _give_up(self, stream: Stream) -> None:
        """The stream may live no longer, but its answer is not there yet: it will be sent by itself."""
        text = f"{self._so_far(stream)}{self._notice('answer-later')}"
        if stream.begun is not None and not stream.spoiled:
            with contextlib.suppress(RequestFailed):
                await self._frame(stream, text, finish=True)
        stream.spoiled = True

    def _so_far(self, stream: Stream) -> str:
        """What was said, with room for a notice below it."""
        said = beginning(stream.text, PART_BYTES - _NOTICE_BYTES)
        return f"{said}\n\n" if said else ""

    def _notice(self, name: str) -> str:
        return beginning(self._texts(name), _NOTICE_BYTES)

    async def _frame(self, stream: Stream, text: str, *, finish: bool) -> int:
        """One frame of the stream; its turn is held. Returns the errcode. Raises ConnectionLost, AckMissing."""
        now = self._now()
        shown = {"id": stream.id, "finish": finish, "content": text}
        stream.finishing = stream.finishing or finish
        stream.begun, stream.shown_at = now if stream.begun is None else stream.begun, now
        code = await self._connection.ask(RESPOND, {"msgtype": "stream", "stream": shown}, stream.origin.req_id)
        if code == 0:
            stream.shown, stream.finished = text, finish
        return code


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event, `seconds` at most; whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await event.wait()
    return event.is_set()
