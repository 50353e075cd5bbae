"""A stand-in for an OpenAI-compatible server, with the real wire format, on a loopback port of its own."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

Message = dict[str, Any]


@dataclass(frozen=True)
class Raw:
    """An answer sent as it is: an HTML page, JSON although a stream was asked for, anything."""

    body: str | bytes
    content_type: str = "text/html"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Chunks:
    """A stream of just these chunks: dicts as JSON, texts as raw lines; `pause` seconds before each; no [DONE] if cut.

    `cut` closes the connection in the middle of the answer.
    """

    chunks: Sequence[dict[str, Any] | str]
    pause: float = 0.0
    cut: bool = False


Answer = str | Message | Raw | Chunks


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk as a server sends it, with this content."""
    inner = {**({} if content is None else {"content": content}), **more}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": inner, "finish_reason": finish}]}


def remembering(messages: list[Message]) -> str:
    """The default answer: tells the name it was told before, else repeats what was said last."""
    texts = [message["content"] for message in messages if isinstance(message.get("content"), str)]
    last = texts[-1] if texts else ""
    if "我叫什么" not in last:
        return f"答复：{last}"
    for text in reversed([*texts[:-1], last.rpartition("我叫什么")[0]]):
        found = re.search(r"我叫([^\s，。,.!！?？]{1,8})", text)
        if found and "什么" not in found[1]:
            return f"你叫{found[1]}"
    return "我不知道你的名字"


class ModelServer:
    """`async with ModelServer() as model:`, then `model.base_url` is what `base-url` takes.

    `answer(messages)` gives the text, a whole message (a dict, for tool calls or `reasoning_content`), `Raw` or
    `Chunks`; `answers` are used up before it, one by one. `delay(messages)` gives the seconds before it. `fail` holds
    (status, JSON body, headers), used up one by one, before any answer. `refuses_keys` are keys of the body answered
    with 400. `requests` are the bodies received, `headers` theirs.
    """

    def __init__(self) -> None:
        self.usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self.answer: Callable[[list[Message]], Answer] = remembering
        self.answers: list[Answer] = []
        self.delay: Callable[[list[Message]], float] = lambda messages: 0.0
        self.fail: list[tuple[int, Any, dict[str, str]]] = []
        self.refuses_keys: set[str] = set()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.running = self.most_running = self.connections = 0
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    def asked(self, text: str) -> list[dict[str, Any]]:
        """The requests whose last user message holds `text`."""
        return [request for request in self.requests if text in str(_last_user(request["messages"]))]

    @contextlib.asynccontextmanager
    async def held(self, text: str = "") -> AsyncIterator[asyncio.Event]:
        """Questions that hold `text` get no answer before the event is set (at the latest at the end)."""
        respond, released = self._respond, asyncio.Event()

        async def wait_first(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            if text in str(body["messages"][-1]["content"]):
                await released.wait()
            return await respond(request, body)

        self._respond = wait_first  # type: ignore[method-assign]
        try:
            yield released
        finally:
            released.set()
            self._respond = respond  # type: ignore[method-assign]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._respond(request, body)
        finally:
            self.running -= 1

    async def _respond(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        messages = body["messages"]
        wait = self.delay(messages)
        if wait:
            await asyncio.sleep(wait)
        refused = sorted(self.refuses_keys & set(body))
        if refused:
            message = f"Unrecognized request argument supplied: {refused[0]}"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        if self.fail:
            status, answer, headers = self.fail.pop(0)
            return web.json_response(answer, status=status, headers=headers)
        answer = self.answers.pop(0) if self.answers else self.answer(messages)
        if isinstance(answer, Raw):
            data = answer.body.encode() if isinstance(answer.body, str) else answer.body
            headers = {"Content-Type": answer.content_type, **answer.headers}
            return web.Response(body=data, status=answer.status, headers=headers)
        if isinstance(answer, Chunks):
            return await self._stream(request, answer)
        message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": _finish(message), "message": message}
            return web.json_response({**self._head(body), "choices": [choice], "usage": self.usage})
        return await self._stream(request, Chunks(self._pieces(body, message)))

    def _head(self, body: dict[str, Any]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if body.get("stream") else "chat.completion"
        made = {"id": f"chatcmpl-{len(self.requests)}", "object": kind, "created": int(time.time())}
        return {**made, "model": body.get("model", "fake")}

    def _pieces(self, body: dict[str, Any], message: Message) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": text} for text in _cut(message.get("reasoning_content") or "")]
        for index, call in enumerate(message.get("tool_calls") or []):
            arguments = call["function"]["arguments"]
            first = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
            deltas.append({"tool_calls": [first]})
            for text in _cut(arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        deltas += [{"content": text} for text in _cut(message.get("content") or "")]
        head = self._head(body)
        chunks = [{**head, "choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": self.usage})
        return chunks

    @staticmethod
    async def _stream(request: web.Request, answer: Chunks) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await response.prepare(request)
            for chunk in answer.chunks:
                if answer.pause:
                    await asyncio.sleep(answer.pause)
                line = chunk if isinstance(chunk, str) else "data: " + json.dumps(chunk, ensure_ascii=False) + "\n\n"
                # A lone half of a character goes as an escape, as the servers do that cut in the middle of one.
                await response.write(re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", line).encode())
            if answer.cut:
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(b"data: [DONE]\n\n")
        except ConnectionResetError:  # the asker gave up or was killed
            pass
        return response


def _last_user(messages: list[Message]) -> object:
    users = [message["content"] for message in messages if message["role"] == "user"]
    return users[-1] if users else ""


def _finish(message: Message) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _cut(text: str) -> list[str]:
    return [text[start : start + 8] for start in range(0, len(text), 8)]
