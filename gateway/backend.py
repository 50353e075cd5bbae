"""The backend of the console: what it asks of the gateway, answered by the gateway's parts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from channels.channel import Channel
from channels.web import WebChannel
from gateway.config.live_settings import LiveSettings
from gateway.console.backend import AgentInfo
from gateway.console.config_view import ConfigState, SourceFile, config_files, config_state
from gateway.pipeline import Pipeline
from gateway.removed import Removed
from gateway.sent_request import SentRequest, request_as_sent
from gateway.snapshot import Snapshots
from gateway.status import Sources, levels, status
from gateway.storage.conversation_index import ConversationIndex, ConversationPage
from gateway.storage.inbox import Inbox
from gateway.tracing.metrics import Metrics
from gateway.tracing.trace import Rejected, Trace, TracePage, TraceQuery
from gateway.tracing.traces import Traces
from gateway.turn_forgetting import ForgottenTurn, TurnForgetting
from gateway.window_view import Inspection, as_json, inspect_window
from memory.conversation import ConversationId, Turn
from memory.memory import Memory
from memory.mended import Mended, Outcome


class Backend:
    """A `gateway.console.backend.ConsoleBackend`."""

    def __init__(
        self,
        *,
        live: LiveSettings,
        snapshots: Snapshots,
        channels: Mapping[str, Channel],
        inbox: Inbox,
        memory: Memory,
        index: ConversationIndex,
        pipeline: Pipeline,
        turns: TurnForgetting,
        traces: Traces,
        metrics: Metrics,
        sources: Callable[[], Sources],
        clock: Callable[[], float],
    ) -> None:
        self._live = live
        self._snapshots = snapshots
        self._channels = channels
        self._inbox = inbox
        self._memory = memory
        self._index = index
        self._pipeline = pipeline
        self._turns = turns
        self._traces = traces
        self._metrics = metrics
        self._sources = sources
        self._clock = clock

    @property
    def trouble(self) -> str:
        """Why nothing can be stored at the moment (Chinese, for admins); "" while all is well."""
        return self._sources().trouble

    @property
    def web(self) -> WebChannel:
        """The web chat. Raises LookupError when it is off."""
        for channel in self._channels.values():
            if isinstance(channel, WebChannel):
                return channel
        raise LookupError("channels.web is off")

    async def conversations(
        self, channel: str | None, user: str | None, q: str | None, before: str | None, limit: int
    ) -> ConversationPage:
        """One page of the conversations, newest first. Raises BadCursor."""
        return await self._index.page(channel=channel, user=user, q=q, before=before, limit=limit)

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> Sequence[Turn] | None:
        """A page of turns in file order, the newest page first; None for a conversation that does not exist."""
        if await self._memory.info(conversation) is None:
            return None
        return await self._memory.history(conversation, before, limit)

    async def window(self, conversation: ConversationId) -> Mapping[str, Any] | None:
        """The window as it would be sent with the next question; None for a conversation that does not exist."""
        inspection = await self.inspect(conversation)
        return as_json(inspection) if inspection else None

    async def inspect(self, conversation: ConversationId, over: Mapping[str, int] | None = None) -> Inspection | None:
        """The same for eyes, `over` in place of some settings of the window. Raises ValueError."""
        entry = await self._index.entry_of(conversation)
        return await inspect_window(conversation, self._snapshots.now(), self._memory, entry, over)

    async def status(self) -> Mapping[str, Any]:
        """How the gateway is."""
        return await status(self._sources(), self._inbox, self._pipeline.lanes)

    async def forget(self, user: str) -> Removed:
        """Removes every trace of one person. Raises StoreError, sqlite3.Error."""
        return await self._pipeline.forgetting.forget(user)

    async def forget_turn(self, conversation: ConversationId, question: str) -> ForgottenTurn | None:
        """Removes one question and what answers it; None for one there is not. Raises StoreError, sqlite3.Error."""
        return await self._turns.forget(conversation, question)

    async def summarised(self, conversations: Sequence[ConversationId]) -> Collection[ConversationId]:
        """Those of them that have summaries. Raises StoreError."""
        return await self._memory.summarised(conversations)

    async def repair(self, conversations: Sequence[ConversationId]) -> list[Mended]:
        """Checks and mends the files of these conversations, or of all. Raises StoreError."""
        found = await self._memory.repair(conversations)
        if any(each.outcome is not Outcome.SOUND for each in found):
            await self._index.refresh()
        return found

    async def config_files(self) -> Sequence[SourceFile]:
        """The config files without secrets, with the problems that keep them from being taken over."""
        return await config_files(self._live)

    async def config_state(self) -> ConfigState:
        """The config files as they are now against what runs."""
        return await config_state(self._live)

    async def reload_config(self) -> bool:
        """Takes the config files over; False where they cannot be."""
        return await self._live.take_over()

    def iso(self, at: float) -> str:
        """Unix seconds as ISO 8601 in the configured time zone."""
        return self._snapshots.now().iso(at)

    def agents(self) -> list[AgentInfo]:
        """The agents that can be chosen."""
        return [AgentInfo(agent.name, agent.settings.description) for agent in self._snapshots.now().agents]

    async def metrics(self) -> str:
        """Prometheus text."""
        return await self._metrics.text(await levels(self._sources(), self._inbox, self._pipeline.lanes, self._clock()))

    async def traces(self, query: TraceQuery, before: int | None = None, limit: int = 50) -> TracePage:
        """One page of what happened to messages, newest first. Raises sqlite3.Error."""
        return await self._traces.find(query, before, limit)

    async def trace(self, id: str) -> Trace | None:
        """What happened to one message, step by step. Raises sqlite3.Error."""
        return await self._traces.get(id)

    async def request_as_sent(self, id: str) -> SentRequest | None:
        """The last request made for the message of this trace; None where none is known. Raises StoreError, sqlite3.Error."""
        trace = await self._traces.get(id)
        return await request_as_sent(trace, self._traces, self._memory) if trace else None

    async def rejected(self, limit: int = 50) -> Sequence[Rejected]:
        """The newest minutes in which requests were turned away unread. Raises sqlite3.Error."""
        return await self._traces.rejected(limit)
