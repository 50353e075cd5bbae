"""What the console asks of the gateway; whoever composes the gateway implements it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from channels.web import WebChannel
from gateway.console.config_view import ConfigState, SourceFile
from gateway.removed import Removed
from gateway.sent_request import SentRequest
from gateway.storage.conversation_index import ConversationPage
from gateway.tracing.trace import Rejected, Trace, TracePage, TraceQuery
from gateway.turn_forgetting import ForgottenTurn
from gateway.window_view import Inspection
from memory.conversation import ConversationId, Turn
from memory.mended import Mended


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent as choosers show it."""

    name: str
    description: str


class ConsoleBackend(Protocol):
    """The gateway as the console sees it. No method blocks the event loop."""

    @property
    def web(self) -> WebChannel:
        """The channel that carries the web chat's questions. Raises LookupError while it is off."""

    @property
    def trouble(self) -> str:
        """Why no message can be stored at the moment, and what to do about it; "" while all is well."""

    async def conversations(
        self, channel: str | None, user: str | None, q: str | None, before: str | None, limit: int
    ) -> ConversationPage:
        """One page of the list; None: no such filter. Raises BadCursor."""

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> Sequence[Turn] | None:
        """The newest `limit` turns with an ordinal under `before` (None: of all), oldest first; None: unknown id."""

    async def window(self, conversation: ConversationId) -> Mapping[str, Any] | None:
        """What `window --json` prints; None: unknown id."""

    async def inspect(self, conversation: ConversationId, over: Mapping[str, int] | None = None) -> Inspection | None:
        """The window with the next question, `over` in place of some settings; None: unknown id. Raises ValueError."""

    async def status(self) -> Mapping[str, Any]:
        """How the gateway is, without a secret. ``"demo": true`` while the demo model stands in for a real one."""

    async def forget(self, user: str) -> Removed:
        """Removes every trace of the person with this id. Raises StoreError, sqlite3.Error."""

    async def forget_turn(self, conversation: ConversationId, question: str) -> ForgottenTurn | None:
        """Removes the user turn with this id and what answers it; None: there is none. Raises StoreError, sqlite3.Error."""

    async def summarised(self, conversations: Sequence[ConversationId]) -> Collection[ConversationId]:
        """Those of them that have summaries. Raises StoreError."""

    async def repair(self, conversations: Sequence[ConversationId]) -> Sequence[Mended]:
        """Checks and mends the files of these conversations, or of all. Raises StoreError."""

    async def config_files(self) -> Sequence[SourceFile]:
        """The config files without secrets, with the problems that keep them from being taken over."""

    async def config_state(self) -> ConfigState:
        """The config files as they are now against what runs."""

    async def reload_config(self) -> bool:
        """Takes the config files over; False where they cannot be."""

    def iso(self, at: float) -> str:
        """Unix seconds as ISO 8601 in the configured time zone."""

    def agents(self) -> Sequence[AgentInfo]:
        """The agents of the present configuration."""

    async def metrics(self) -> str:
        """Prometheus text."""

    async def traces(self, query: TraceQuery, before: int | None = None, limit: int = 50) -> TracePage:
        """One page of what happened to messages, without the steps, newest first. Raises sqlite3.Error."""

    async def trace(self, id: str) -> Trace | None:
        """What happened to one message, step by step; None: unknown id. Raises sqlite3.Error."""

    async def request_as_sent(self, id: str) -> SentRequest | None:
        """The last request made for the message of this trace, as it was sent then.

        None: none was, or it is known no longer. Raises StoreError, sqlite3.Error.
        """

    async def rejected(self, limit: int = 50) -> Sequence[Rejected]:
        """The newest minutes in which requests were turned away unread. Raises sqlite3.Error."""
