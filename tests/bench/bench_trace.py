"""What a message's trace and metrics cost: ``python -m tests.bench.bench_trace``; CPU of all threads, and bytes on disk."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from agents.model import ChatMessage, ModelRequest
from channels.message import InboundMessage
from gateway.config.sections import TraceSettings
from gateway.tracing.frames import Asked
from gateway.tracing.metrics import Metrics
from gateway.tracing.trace import Kind, follow
from gateway.tracing.traces import TRACES, Traces
from memory.conversation import LaneKey, Role, session_id, user_id
from memory.masking import RULES, Masking
from memory.window import Drop, Window, WindowMessage

MESSAGES, PEOPLE, BATCH = 2000, 300, 100
TEXT = "帮我推荐 Java 岗位，薪资 25k 以上，最好在上海，离家近一些"
MODEL = {"model": "m", "seconds": 1.5, "first_token": 0.4, "prompt_tokens": 900, "completion_tokens": 80}


def _message(number: int) -> InboundMessage:
    person = user_id("feishu", "cli", f"ou_{number % PEOPLE}")
    lane = LaneKey(person, "feishu", session_id("feishu", "cli", "oc"), False)
    id_ = f"om_{number:032d}"
    return InboundMessage(
        entry="feishu", account="cli", id=id_, lane=lane, user=person, platform_user=f"ou_{number % PEOPLE}", text=TEXT
    )


def _asked(number: int, length: int) -> Asked:
    kept = tuple(
        WindowMessage(
            role=Role.ASSISTANT if place % 2 else Role.USER,
            content=TEXT * 3,
            ids=(f"om_{number:020d}{place:012d}",),
            tokens=100,
        )
        for place in range(length)
    )
    drops = tuple(
        Drop(f"om_{number}{place}", Role.USER, "acknowledgement", "确认词“好的”", place) for place in range(3)
    )
    window = Window(messages=kept, dropped=drops, tokens=100 * length, question_tokens=40, first=3)
    messages = (ChatMessage("system", "你是求职顾问。" * 90), *(ChatMessage(each.role, each.content) for each in kept))
    request = ModelRequest(messages=(*messages, ChatMessage(Role.USER, TEXT)))
    return Asked(window, request, f"om_{number:032d}", 2000, messages[0].content, "messages", ())


async def measure(messages: Sequence[InboundMessage], asked: Sequence[Asked]) -> tuple[float, float]:
    """Milliseconds of CPU and bytes on disk for each message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TRACES
        metrics = await asyncio.to_thread(Metrics)
        mask = Masking(RULES).mask
        traces = Traces(path, settings=TraceSettings, mask=mask, clock=time.time, listen=metrics.step)
        await traces.open()
        began = time.process_time()
        for start in range(0, len(messages), BATCH):
            for message, each in zip(messages[start : start + BATCH], asked[start : start + BATCH], strict=True):
                _steps(traces, message, each)
            await traces.flush()
        took = time.process_time() - began
        size = path.stat().st_size
        await traces.close()
    return took / len(messages) * 1000, size / len(messages)


def _steps(traces: Traces, message: InboundMessage, asked: Asked) -> None:
    follow(message)
    traces.note(message, Kind.RECEIVED, chars=len(message.text))
    conversation = message.lane.with_agent("general-agent")
    follow(message, conversation)
    traces.note(message, Kind.ROUTED, agent="general-agent", reason="延续上一轮", conversation=str(conversation))
    traces.note(message, Kind.WINDOW, asked, kept=len(asked.window.messages), dropped=3)
    traces.note(message, Kind.MODEL, **MODEL, finish="stop", messages=22, tools=0)
    traces.note(message, Kind.ANSWERED, chars=120, stopped=False)
    follow(message)
    traces.note(message, Kind.SENT, part=1, parts=1, attempts=1, seconds=0.2, platform_id="om_x")


def main() -> None:
    """Prints one line for each length of the window."""
    for length in (0, 4, 20):
        messages = [_message(number) for number in range(MESSAGES)]
        cost, size = asyncio.run(measure(messages, [_asked(number, length) for number in range(MESSAGES)]))
        print(f"window={length} cpu_ms={cost:.3f} bytes={size:.0f}")


if __name__ == "__main__":
    main()
