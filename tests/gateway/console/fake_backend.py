"""A gateway for the console's tests: answers each question by a script, lists what it was given."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from channels.message import Admission, Answered, Delta, InboundMessage, Progress, Routed
from channels.web import WebChannel
from gateway.config.texts import Texts
from gateway.console.backend import AgentInfo
from gateway.console.config_view import ConfigState, SourceFile
from gateway.removed import Removed
from gateway.sent_request import SentRequest
from gateway.storage.conversation_index import BadCursor, ConversationItem, ConversationPage
from gateway.tracing.trace import Rejected, Trace, TracePage, TraceQuery
from gateway.turn_forgetting import ForgottenTurn
from gateway.window_view import Inspection
from memory.conversation import ConversationId, Turn
from memory.errors import StoreError
from memory.mended import Mended

Script = Callable[[InboundMessage], Sequence[Progress]]


def echo(message: InboundMessage) -> list[Progress]:
    """Answers ``答复：`` and the question in pieces, as a model does."""
    text = f"答复：{message.text}"
    agent = message.agent or "general-agent"
    pieces: list[Progress] = [Delta(text[i : i + 4]) for i in range(0, len(text), 4)]
    return [Routed(agent, "没有更合适的，用默认智能体"), *pieces, Answered(text, message.lane.with_agent(agent))]


class FakeBackend:
    """A ConsoleBackend without a gateway. `pause` seconds pass before each step of an answer; `gate` holds them all."""

    def __init__(self, script: Script = echo, pause: float = 0.0) -> None:
        self.script = script
        self.pause = pause
        self.gate = asyncio.Event()
        self.gate.set()
        self.accepted: list[InboundMessage] = []
        self.asked: list[tuple[object, ...]] = []
        self.turns: dict[ConversationId, list[Turn]] = {}
        self.items: list[ConversationItem] = []
        self.recorded: list[Trace] = []
        self.sent_requests: dict[str, SentRequest] = {}
        self.inspections: dict[ConversationId, Inspection] = {}
        self.files: list[SourceFile] = []
        self.demo = False
        self.state: dict[str, Any] = {}
        self.broken = False
        self.removed = Removed()
        self.forgotten_turns: dict[str, ForgottenTurn] = {}
        self.with_summaries: set[ConversationId] = set()
        self.mended: list[Mended] = []
        self.answering: set[asyncio.Task[None]] = set()
        numbers = iter(range(10**9))
        self.web = WebChannel("web", self.accept, Texts().get, new_id=lambda: f"w-{next(numbers)}")

    async def accept(self, message: InboundMessage) -> Admission:
        self.accepted.append(message)
        task = asyncio.create_task(self._answer(message))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)
        return Admission.ACCEPTED

    async def _answer(self, message: InboundMessage) -> None:
        for event in self.script(message):
            await self.gate.wait()
            await asyncio.sleep(self.pause)
            self.web.progress(message, event)

    async def close(self) -> None:
        for task in self.answering:
            task.cancel()
        await asyncio.gather(*self.answering, return_exceptions=True)
        await self.web.close()

    async def conversations(
        self, channel: str | None, user: str | None, q: str | None, before: str | None, limit: int
    ) -> ConversationPage:
        self.asked.append((channel, user, q, before, limit))
        if before is not None and not before.isdecimal():
            raise BadCursor(before)
        start = int(before or 0)
        more = start + limit < len(self.items)
        return ConversationPage(self.items[start : start + limit], str(start + limit) if more else None)

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> Sequence[Turn] | None:
        turns = self.turns.get(conversation)
        return turns and [turn for turn in turns if before is None or turn.n < before][-limit:]

    async def window(self, conversation: ConversationId) -> Mapping[str, Any] | None:
        return {"conversation": str(conversation), "messages": []} if conversation in self.turns else None

    async def inspect(self, conversation: ConversationId, over: Mapping[str, int] | None = None) -> Inspection | None:
        self.asked.append(("inspect", str(conversation), over))
        return self.inspections.get(conversation)

    async def config_files(self) -> Sequence[SourceFile]:
        return self.files

    async def config_state(self) -> ConfigState:
        return ConfigState((), ())

    async def reload_config(self) -> bool:
        self.asked.append(("reload",))
        return not self.broken

    def iso(self, at: float) -> str:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")

    @property
    def trouble(self) -> str:
        return ""

    async def status(self) -> Mapping[str, Any]:
        return {
            "status": "ok",
            "channels": {"web": {"ok": True, "detail": "0 个回答正在进行", "since": 0.0}},
            "models": {"main": {"provider": "openai", "model": "fake-main"}},
            "demo": self.demo,
            "redis": {"state": "off", "cooldown_left": 0.0, "remedy": ""},
            "memory": {
                "state": "ok",
                "waiting": 0,
                "conversations": 0,
                "unsheltered": 0,
                "lost": 0,
                "set_aside": 0,
                "remedy": "",
            },
            "long_term": {"state": "off"},
            "inbox": {"state": "ok", "detail": ""},
            "queue": {"waiting": 0, "unsent": 0, "lanes": 0},
            "config": {"problems": [], "waiting_for_restart": [], "notes": []},
        } | self.state

    async def forget(self, user: str) -> Removed:
        self.asked.append(("forget", user))
        if self.broken:
            raise StoreError("conversations/…")
        return self.removed

    async def forget_turn(self, conversation: ConversationId, question: str) -> ForgottenTurn | None:
        self.asked.append(("forget_turn", str(conversation), question))
        if self.broken:
            raise StoreError("conversations/…")
        return self.forgotten_turns.get(question)

    async def summarised(self, conversations: Sequence[ConversationId]) -> Collection[ConversationId]:
        if self.broken:
            raise StoreError("archives/…")
        return self.with_summaries.intersection(conversations)

    async def repair(self, conversations: Sequence[ConversationId]) -> Sequence[Mended]:
        self.asked.append(("repair", *conversations))
        if self.broken:
            raise StoreError("conversations/…")
        return self.mended

    def agents(self) -> Sequence[AgentInfo]:
        return [
            AgentInfo("general-agent", "通用助手"),
            AgentInfo("job-recommend-agent", "根据意向推荐岗位"),
            AgentInfo("resume-optimise-agent", "优化简历"),
        ]

    async def metrics(self) -> str:
        return "sanqiao_messages_total 0\n"

    async def traces(self, query: TraceQuery, before: int | None = None, limit: int = 50) -> TracePage:
        self.asked.append(("traces", query, before, limit))
        found = [trace for trace in self.recorded if before is None or trace.seq < before]
        return TracePage(tuple(found[:limit]), found[limit - 1].seq if len(found) > limit else None)

    async def trace(self, id: str) -> Trace | None:
        return next((trace for trace in self.recorded if trace.id == id), None)

    async def request_as_sent(self, id: str) -> SentRequest | None:
        return self.sent_requests.get(id)

    async def rejected(self, limit: int = 50) -> Sequence[Rejected]:
        return ()
