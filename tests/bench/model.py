"""The model of the measurements, a process of its own: answers after a while, and knows when who was answered.

    python -m tests.bench.model            prints its address; ends with its standard input

A request belongs to the message whose tag its newest content begins with; what has none (a summary, say) is only
counted. Times are of the monotonic clock, which all processes of one Linux machine share.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bench.wire import Client, Write, json_response, serving

TAG = re.compile(rb"q[0-9a-f]{10}q")
_CONTENT = re.compile(rb'"content":\s*"(q[0-9a-f]{10}q)')
_STREAMED = re.compile(rb'"stream":\s*true')
_TEXT = "上海的后端岗位目前有十二个，薪资从两万到四万，要不要我按通勤时间排一下？" * 3
_PIECES = 4


@dataclass
class _Asked:
    """What was asked since the last reset: tag, when it came, when its answer went out."""

    answered: list[tuple[str, float, float]] = field(default_factory=list)
    requests: int = 0
    running: int = 0
    most_running: int = 0


class _Model:
    def __init__(self) -> None:
        self._seconds = 0.0
        self._asked = _Asked()

    def handle(self, head: bytes, body: bytes, write: Write) -> None:
        """One request: of the model's interface, or of the driver's (`/_reset`, `/_told`)."""
        if head.startswith(b"POST /_reset"):
            self._seconds, self._asked = json.loads(body)["seconds"], _Asked()
            write(json_response())
        elif head.startswith(b"POST /_told"):
            told = self._asked
            counts = {"requests": told.requests, "most_running": told.most_running}
            write(json_response(json.dumps({**counts, "answered": told.answered}).encode()))
        else:
            self._begin(body, write)

    def _begin(self, body: bytes, write: Write) -> None:
        asked, came = self._asked, time.monotonic()
        asked.requests += 1
        asked.running += 1
        asked.most_running = max(asked.most_running, asked.running)
        tags = _CONTENT.findall(body)
        tag = tags[-1].decode() if tags else ""
        answer = (_streamed if _STREAMED.search(body) else _whole)(f"{tag} {_TEXT}")

        def end() -> None:
            asked.running -= 1
            write(answer)
            if tag:
                asked.answered.append((tag, came, time.monotonic()))

        if self._seconds:
            asyncio.get_running_loop().call_later(self._seconds, end)
        else:
            end()


_HEAD: Mapping[str, Any] = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "bench"}
_USAGE = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}


def _whole(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json_response(
        json.dumps({**_HEAD, "object": "chat.completion", "usage": _USAGE, "choices": [choice]}).encode()
    )


def _streamed(text: str) -> bytes:
    """All events in one chunk, as they come from a server on the same machine."""
    size = -(-len(text) // _PIECES)
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[start : start + size]} for start in range(0, len(text), size)]
    events = [_event([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    events.append(_event([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    events.append(_event([], usage=_USAGE))
    data = b"".join(events) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(data), data)


def _event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    chunk = {**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@dataclass(frozen=True)
class Told:
    """What the model saw since the last reset; `answered`: when each tag's request came and its answer went out."""

    requests: int
    most_running: int
    answered: Mapping[str, tuple[float, float]]


async def reset(client: Client, seconds: float) -> None:
    """Forgets all, and takes so many seconds from now on."""
    await client.post("/_reset", json.dumps({"seconds": seconds}).encode())


async def told(client: Client) -> Told:
    """Asks what it saw."""
    _, body = await client.post("/_told", b"{}")
    value = json.loads(body)
    answered = {tag: (came, went) for tag, came, went in value["answered"]}
    return Told(value["requests"], value["most_running"], answered)


async def _main() -> None:
    async with serving(_Model().handle) as base:
        print(base, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
