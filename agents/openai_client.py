"""Asks an OpenAI-compatible server: a request in, streamed text and one clean completion out, within its time.

The package openai (3.57.0) says with what headers a server wants to be asked. It does not ask: its
``chat.completions.create`` walks every message against its type declarations, which costs ten times the CPU of the rest
and buys nothing for a body made here; its ``post`` still costs twice what `agents.model_http` does; its retries and
time-outs count per try, and a time-out of ten minutes times three is no bound.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import httpx2
from openai import AsyncOpenAI

from agents.cleaning import ThinkFilter
from agents.events import EventReader
from agents.listener import Listener
from agents.model import (
    BlankAnswer,
    ChatMessage,
    Completion,
    ModelBrokeOff,
    ModelError,
    ModelRefused,
    ModelRequest,
    ModelSettings,
    ModelTimeout,
    NoPlace,
    OddAnswer,
)
from agents.model_http import ModelHttp, pieces, whole
from agents.refusal import ModelBusy, refusal, retry_after, status_inside
from agents.wire import AnswerReader, Dialect, body
from memory.conversation import Role

_log = logging.getLogger("sanqiao.model")

TRIES = 3
CUT_MARK = "\n\n（回答过长，已截断）"
"""Stands at the end of an answer that was cut at `max-output-tokens` even after it was continued once."""

_CONTINUE = "你的回答被长度限制打断了。请从中断处直接接着写完，不要重复已经写过的内容，也不要解释。"
_PAUSE_WITH_FALLBACK = 3.0
_MOST_REASON = 20_000
_BEGIN_AT_ONCE = 64
"""Requests made in one turn of the event loop: a thousand at once would hold everything else up for half a second."""
# Only the usage may still come then; some servers leave the connection open instead of ending the stream.
_PATIENCE_AFTER_FINISH = 2.0
_PATIENCE_AFTER_DONE = 0.1
# Characters: more than any vocabulary puts into one token on average, even of one character again and again.
_MOST_PER_TOKEN = 64
_REFUSED = ("content_filter", "sensitive")
_BROKE_OFF = ("insufficient_system_resource", "network_error", "error")
_CUT = ("length", "max_tokens", "model_context_window_exceeded")


class OpenAIClient:
    """One entry under `models` with provider ``openai``.

    Tries again (at most `TRIES` times, with growing pauses, jitter, and `Retry-After` where it fits) on 408, 409, 425,
    429, 5xx and broken connections, and only while `on_text` was told nothing. A server that is silent for `timeout`
    is not asked again. All of it ends within `total-timeout`, and at most half of that is spent waiting for one of
    `max-concurrency` places: who got one too late would take it from somebody who could still be answered.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        jitter: Callable[[], float] = random.random,
        first_pause: float = 0.5,
    ) -> None:
        """Asks the system for its name and version: not on the event loop. `first_pause` (s) doubles with each try."""
        self._settings = settings
        self._jitter = jitter
        self._first_pause = first_pause
        self._places = asyncio.Semaphore(settings.max_concurrency)
        self._beginning = asyncio.Semaphore(_BEGIN_AT_ONCE)
        self._dialect = Dialect()
        self._thinks_unopened = False  # what it thinks has an end tag and no begin: known after the first answer
        url = f"{settings.base_url.rstrip('/')}/chat/completions"
        self._http = ModelHttp(url, _headers(settings), connections=settings.max_concurrency)
        self._running = 0
        self._retired = False

    @property
    def settings(self) -> ModelSettings:
        """The entry this client was made from."""
        return self._settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """See ModelClient. An answer cut at `max-output-tokens` is continued once."""
        loop = asyncio.get_running_loop()
        total = self._settings.total_timeout if within is None else min(within, self._settings.total_timeout)
        deadline = loop.time() + total
        self._running += 1
        try:
            first = await self._answer(request, Listener(on_text), deadline)
            return await self._finished(first, request, on_text, deadline)
        finally:
            self._running -= 1
            if self._retired:
                await self.retire()

    async def retire(self) -> None:
        """Closes the connections as soon as no answer is under way. Asked again, the client opens them anew."""
        self._retired = True
        if not self._running:
            await self._http.close()

    async def _finished(
        self, first: Completion, request: ModelRequest, on_text: Callable[[str], None], deadline: float
    ) -> Completion:
        """The answer itself, or, when it was cut, continued once; marked if it is still not whole."""
        if first.finish != "length" or first.tool_calls:
            return first
        said = (ChatMessage(Role.ASSISTANT, first.text), ChatMessage(Role.USER, _CONTINUE))
        again = replace(request, messages=request.messages + said, tools=())
        listener = Listener(on_text)
        try:
            rest = await self._answer(again, listener, deadline)
            text, finish = rest.text, rest.finish
            usage = first.usage + rest.usage if first.usage else rest.usage
        except ModelError as error:
            _log.warning("model.not-continued model=%s error=%s", self._settings.model, type(error).__name__)
            text, usage, finish = listener.text, first.usage, "length"
        if finish == "length":
            text += CUT_MARK
            on_text(CUT_MARK)
        return Completion(text=first.text + text, model=first.model, usage=usage, finish=finish)

    async def _answer(self, request: ModelRequest, listener: Listener, deadline: float) -> Completion:
        """One answer of the server, in at most `TRIES` tries (and one more for each key the server does not take)."""
        tries = 0
        now = asyncio.get_running_loop().time()
        latest = deadline - min(self._settings.timeout, (deadline - now) / 2)
        while True:
            try:
                async with self._place(deadline if tries else latest):
                    return await self._try(request, listener, deadline)
            except _KeyRefused as refused:
                self._dialect = refused.dialect
                _log.info("model.dialect model=%s dialect=%s", self._settings.model, refused.dialect)
            except ModelBusy as busy:
                tries += 1
                if listener.text:
                    raise ModelBrokeOff(str(busy)) from busy
                pause = self._pause(tries, busy.retry_after)
                left = deadline - asyncio.get_running_loop().time()
                if tries >= TRIES or pause >= left or self._rather_fall_back(pause):
                    raise
                _log.warning("model.retry model=%s reason=%r pause=%.2f", self._settings.model, str(busy), pause)
                await asyncio.sleep(pause)

    def _pause(self, tries: int, asked: float | None) -> float:
        """Seconds before the next try: what the server asked for, never less; with jitter, so that not all come at once."""
        own: float = self._first_pause * 2 ** (tries - 1)
        if asked is None:
            return own * (0.5 + self._jitter() / 2)
        return asked + own * self._jitter() / 2

    def _rather_fall_back(self, pause: float) -> bool:
        return bool(self._settings.fallback) and pause > _PAUSE_WITH_FALLBACK

    @asynccontextmanager
    async def _place(self, deadline: float) -> AsyncIterator[None]:
        """One of the `max-concurrency` places. Raises NoPlace when none gets free in time."""
        try:
            if self._places.locked():
                async with asyncio.timeout_at(deadline):
                    await self._places.acquire()
            else:
                await self._places.acquire()  # at once
        except TimeoutError:
            raise NoPlace(f"{self._settings.model}: no place in time; raise max-concurrency") from None
        try:
            yield
        finally:
            self._places.release()

    async def _try(self, request: ModelRequest, listener: Listener, deadline: float) -> Completion:
        """One request. Raises ModelError, and _KeyRefused when the server does not know a key that can be left out."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        reader, thinking, dialect = AnswerReader(), ThinkFilter(begun=self._thinks_unopened), self._dialect
        try:
            async with (
                asyncio.timeout_at(min(deadline, loop.time() + self._settings.timeout)) as silence,
                aclosing(self._chunks(request, dialect)) as chunks,
            ):
                async for chunk in chunks:
                    listener(thinking.feed(reader.add(chunk)))
                    if len(thinking.text) > self._settings.max_output_tokens * _MOST_PER_TOKEN:
                        reader.finish = "length"  # a server that knows no bound
                        break
                    patience = _PATIENCE_AFTER_FINISH if reader.finish else self._settings.timeout
                    until = min(deadline, loop.time() + patience)
                    if abs(until - (silence.when() or 0.0)) > self._settings.timeout / 100:  # a timer is dear
                        silence.reschedule(until)
        except TimeoutError:
            if not reader.finish:
                reason = f"{self._settings.model}: no answer in time (timeout or total-timeout)"
                raise ModelTimeout(reason, loop.time() - begun) from None
        except aiohttp.ClientConnectorError as error:
            raise ModelBusy(f"{self._settings.model}: no connection ({type(error).__name__})") from None
        except aiohttp.ClientError as error:
            raise ModelBusy(f"{self._settings.model}: broken connection ({type(error).__name__})") from None
        except ValueError:
            # What json and the decoders raise; their messages quote the body.
            raise OddAnswer(f"{self._settings.model}: the answer is no JSON; check base-url") from None
        return self._completion(reader, thinking, listener)

    async def _chunks(self, request: ModelRequest, dialect: Dialect) -> AsyncGenerator[object, None]:
        """The parsed chunks of one answer; of a server that does not stream, the whole answer as one."""
        asked = json.dumps(body(request, self._settings, dialect), ensure_ascii=False).encode()
        if self._running > _BEGIN_AT_ONCE:
            async with self._beginning:
                await asyncio.sleep(0)
        async with self._http.post(asked) as response:
            kind = response.headers.get("content-type", "")
            if response.status >= 300:
                raise self._refused(response, await whole(response), dialect)
            if "json" in kind or "html" in kind:
                yield self._without_error(json.loads(await whole(response)))
            else:
                async for data in _events(response):
                    yield self._without_error(json.loads(data))

    def _without_error(self, chunk: object) -> object:
        """The chunk; what it says of an error is raised."""
        if isinstance(chunk, dict) and chunk.get("error"):
            raise self._error_inside(chunk["error"])
        return chunk

    def _completion(self, reader: AnswerReader, thinking: ThinkFilter, listener: Listener) -> Completion:
        """What a whole answer comes to. Raises ModelError for one that is none."""
        model, calls = self._settings.model, reader.tool_calls
        if reader.finish in _REFUSED:
            raise ModelRefused(f"{model}: the answer was stopped by the provider's content filter")
        if reader.finish in _BROKE_OFF:
            raise ModelBusy(f"{model}: the server broke off ({reader.finish})")
        listener(thinking.close(cut=reader.finish in _CUT))
        self._thinks_unopened = thinking.unopened or (self._thinks_unopened and reader.finish in _CUT)
        if not thinking.text.strip() and not calls:
            if reader.started:
                cut = "; max-output-tokens are used up by thinking, raise them" if reader.finish in _CUT else ""
                raise BlankAnswer(f"{model}: a blank answer{cut}")
            raise OddAnswer(f"{model}: an answer without choices")
        finish = "tool_calls" if calls else "length" if reader.finish in _CUT else "stop"
        return Completion(text=thinking.text, model=model, usage=reader.usage, finish=finish, tool_calls=calls)

    def _refused(self, response: aiohttp.ClientResponse, content: bytes, spoken: Dialect) -> Exception:
        reason = content.decode(errors="replace")[:_MOST_REASON]
        dialect = spoken.after_refusal(reason) if response.status in (400, 422) else None
        if dialect is not None:
            return _KeyRefused(dialect)
        wait = retry_after(response.headers, datetime.now(UTC))
        return refusal(self._settings.model, response.status, reason, wait)

    def _error_inside(self, error: object) -> ModelError:
        """An error that came with status 200, as the whole answer or within the stream."""
        return refusal(self._settings.model, status_inside(error), str(error)[:_MOST_REASON])


def _headers(settings: ModelSettings) -> dict[str, str]:
    """The headers the SDK gives a request with a JSON body."""
    sdk = AsyncOpenAI(
        api_key=settings.api_key.get_secret_value() or "none",
        base_url=settings.base_url,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(_unasked)),  # its own would read certificates
    )
    named = {**sdk.default_headers, **sdk.auth_headers}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def _unasked(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError("the SDK is only asked for its headers")


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[str, None]:
    """The data of the events of an answer up to ``[DONE]``; what follows is read, so that the connection can be used again."""
    reader, coming = EventReader(), pieces(response)
    async for piece in coming:
        for data in reader.feed(piece):
            if data.startswith("[DONE]"):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE_AFTER_DONE):
                        async for _ in coming:
                            pass
                return
            yield data
    for data in reader.close():
        yield data


class _KeyRefused(Exception):
    """The server does not take a key of the body; `dialect` does without it."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(str(dialect))
        self.dialect = dialect
