"""The application: builds everything once, owns every task, starts and stops in one order."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.tools.jobs import JobBoard
from agents.tools.mcp_servers import McpServers
from agents.tools.search_jobs import SEARCH_JOBS
from channels.channel import Channel
from channels.web import WebChannel
from gateway import conversation_index, inbox, logs, owed_turns
from gateway.channel_factory import make_channel
from gateway.console.application import Console
from gateway.console.auth import console_token
from gateway.console.backend import AgentInfo
from gateway.console.config_view import ConfigState, SourceFile, config_files, config_state
from gateway.conversation_index import ConversationIndex, ConversationPage
from gateway.database import Database
from gateway.inbox import Inbox
from gateway.live_settings import LiveSettings
from gateway.logs import log_failure
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.owed_turns import OwedTurns
from gateway.parts import Parts as AnswerParts
from gateway.pipeline import Pipeline
from gateway.removed import Removed
from gateway.server import Listener, build_public
from gateway.settings import Settings
from gateway.shelf import InboxShelf
from gateway.snapshot import Snapshots
from gateway.status import Parts, levels, status
from gateway.summaries import Summaries
from gateway.tool_calls import Desk
from gateway.trace import Rejected, Trace, TracePage, TraceQuery
from gateway.trace_request import SentRequest, request_as_sent
from gateway.traces import TRACES, Traces
from gateway.turn_forgetting import ForgottenTurn, TurnForgetting
from gateway.window_view import Inspection, as_json, inspect_window
from gateway.workspace_lock import WorkspaceLock
from memory.conversation import ConversationId, Turn
from memory.errors import StoreError
from memory.memory import Memory
from memory.mended import Mended, Outcome

log = logging.getLogger("sanqiao.app")

_KEEP_IDS_SECONDS = 48 * 3600.0  # the longest redelivery known is Feishu's, 7.1 h after the first try
_HOUSEKEEPING_SECONDS = 3600.0
_CHANNEL_PAUSE_SECONDS = 5.0
_WRITE_AGAIN_SECONDS = 5.0
_LINK_SECONDS = 600.0
_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 2.0
_LOOK_REST = 49.0
"""How many times as long as a look at the links took there is none."""
_SUMMARY_SECONDS = 3.0  # a summary that is not ready by then is made after a later answer


class App:
    """One gateway on one workspace. `running()` is its whole life; the console asks the rest."""

    def __init__(
        self,
        live: LiveSettings,
        workspace: Path,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        settings = live.current
        self.live = live
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._state = "starting"
        self._lost = False
        self._tasks: asyncio.TaskGroup
        self._background: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._console: Console | None = None
        self._lock = WorkspaceLock(workspace)
        self._workspace = workspace
        schema = inbox.SCHEMA + conversation_index.SCHEMA + owed_turns.SCHEMA
        self._database = Database(workspace / "gateway.db", schema)
        self._inbox = Inbox(self._database)
        parts = AnswerParts(self._database)
        self._memory = Memory(
            workspace,
            durability=settings.memory.durability,
            redis=settings.memory.redis,
            shelter=OwedTurns(self._database),
        )
        self._index = ConversationIndex(self._database, self._memory)
        self._mcp = McpServers(self._spawn, clock=clock)
        self._snapshots = Snapshots(lambda: live.current, self._mcp.tools)
        self._metrics = Metrics(lambda: live.current.tools.mcp)
        self._traces = Traces(
            workspace / TRACES,
            settings=lambda: live.current.trace,
            mask=self._masked,
            clock=clock,
            listen=self._metrics.step,
        )
        self._shelf = InboxShelf(self._inbox, parts, self._memory, clock, self._traces.note)
        self._channels: dict[str, Channel] = {}
        self._outbox = Outbox(
            parts,
            self._channels,
            patience=lambda: live.current.conversations.answer_after_restart,
            spawn=self._spawn,
            clock=clock,
            rng=self._rng,
            note=self._traces.note,
        )
        self._summaries = Summaries(self._memory, spawn=self._spawn, clock=clock, rng=self._rng)
        self._jobs = JobBoard(workspace)
        self._pipeline = Pipeline(
            inbox=self._inbox,
            memory=self._memory,
            index=self._index,
            snapshots=self._snapshots,
            channels=self._channels,
            outbox=self._outbox,
            summaries=self._summaries,
            desk=Desk(self._memory, self._index, self._jobs, clock),
            spawn=self._spawn,
            clock=clock,
            rng=self._rng,
            note=self._traces.note,
            forget_traces=self._traces.forget,
        )
        self._turns = TurnForgetting(
            self._memory, self._database, self._index, self._traces.forget_turn, self._pipeline.drop_answers
        )

    # ---- life

    @contextlib.asynccontextmanager
    async def running(self, *, serve: bool = True) -> AsyncIterator["App"]:
        """Starts everything, yields, stops everything.

        `serve` False: no ports and no platforms, only the web channel (for the terminal chat). Raises WorkspaceBusy,
        ListenFailed, TokenUnusable, sqlite3.Error, OSError.
        """
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.to_thread(self._lock.acquire)
            stack.callback(self._lock.release)
            await asyncio.to_thread(self._database.open)
            stack.push_async_callback(self._database.close)
            stack.push_async_callback(self._traces.close)
            await self._traces.open()
            stack.push_async_callback(self._memory.close)
            await self._memory.open()
            await self._put_sample_jobs()
            stack.push_async_callback(self._snapshots.close)
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.push_async_callback(self._stop)
            await self._start(serve)
            yield self

    async def _put_sample_jobs(self) -> None:
        """Postings for an agent that looks through them, where there are none; a gateway without goes on all the same."""
        if not any(SEARCH_JOBS.name in agent.tools for agent in self.live.current.agents.values()):
            return
        try:
            await asyncio.to_thread(self._jobs.put_sample)
        except StoreError as error:
            log.error("no sample of postings error=%s", error)

    async def _start(self, serve: bool) -> None:
        for name, entry in self.live.current.enabled_channels().items():
            if serve or entry.kind == "web":
                self._channels[name] = make_channel(
                    name, entry, self._pipeline.intake.accept, self._shelf, self._text, clock=self._clock
                )
        if serve:
            await self._listen()
            await self._pipeline.recover()  # without platforms nobody could be sent what waits for them
        self._pipeline.intake.open()
        self._mcp.apply(self.live.current.tools.mcp)
        self.live.on_change(self._settings_changed)
        background = [
            self.live.watch(),
            self._keep_house(),
            self._keep_writing(),
            self._traces.run(),
            self._metrics.watch_loop(),
            self._watch_workspace(),
            self._watch_links(),
            *map(self._run_channel, self._channels.values()),
        ]
        self._background = [self._spawn(work) for work in background]
        self._state = "ready"
        log.info("ready channels=%s", ",".join(self._channels))

    async def _listen(self) -> None:
        settings = self.live.current
        routes = [route for channel in self._channels.values() for route in channel.routes()]
        public = build_public(routes, self._health, settings.server.max_body_bytes, rejected=self._rejected)
        await self._open_port(Listener(public, settings.server.host, settings.server.port))
        if settings.console.enabled:
            configured = settings.console.token.get_secret_value()
            token = await asyncio.to_thread(console_token, configured, self._workspace)
            proxies = settings.console.trusted_proxies
            self._console = Console(self, token=token, host=settings.console.host, trusted_proxies=proxies)
            app = self._console.app
            await self._open_port(Listener(app, settings.console.host, settings.console.port, key="console"))

    async def _open_port(self, listener: Listener) -> None:
        await listener.start()
        self._listeners.append(listener)

    async def _stop(self) -> None:
        """The one order of stopping: take nothing new, finish what runs, send what is answered, close.

        Takes `server.drain`, and a few seconds at most after it.
        """
        end = time.monotonic() + self.live.current.server.drain

        def left(most: float = float("inf")) -> float:
            return min(max(end - time.monotonic(), 0.5), most)

        self._state = "draining"
        self._pipeline.intake.close()
        await _all(channel.stop_receiving() for channel in self._channels.values())
        await self._pipeline.lanes.drain(left())
        await self._outbox.drain(left())
        await self._summaries.drain(left(_SUMMARY_SECONDS))
        await _all([self._mcp.close(), *(channel.close() for channel in self._channels.values())])
        for task in self._background:
            task.cancel()
        await _all(listener.stop() for listener in self._listeners)
        await _all([self._index.flush()])
        log.info("stopped")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._tasks.create_task(work)

    # ---- in the background

    async def _run_channel(self, channel: Channel) -> None:
        """A channel that fails is started again; the others never notice."""
        while True:
            try:
                await channel.run()
                return
            except Exception as error:  # border of one channel
                log_failure(log, f"channel failed entry={channel.name}", error)
            await asyncio.sleep(_CHANNEL_PAUSE_SECONDS * (1 + self._rng.random()))

    async def _keep_house(self) -> None:
        """Forgets ended messages that no platform repeats any more; brings the index in line with the files."""
        while True:
            try:
                await self._shelf.clear_old()
                await self._inbox.purge(self._clock() - _KEEP_IDS_SECONDS)
                await self._index.refresh()
            except Exception as error:  # border of a background task
                log_failure(log, "housekeeping failed", error)
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)

    async def _watch_workspace(self) -> None:
        """Takes nothing more while the workspace is not there: what was stored into thin air would be lost."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            lost = not await asyncio.to_thread(self._lock.held)
            if lost and not self._lost:
                log.error("workspace gone path=%s 工作区已被移走、替换或删除，暂不接收消息", self._workspace)
                self._pipeline.intake.close()
            elif self._lost and not lost:
                log.info("workspace back path=%s", self._workspace)
                if self._state == "ready":
                    self._pipeline.intake.open()
            self._lost = lost

    async def _watch_links(self) -> None:
        """Takes over what admins write into persons' files about who is who; at most a fiftieth of the time."""
        while True:
            began = time.monotonic()
            try:
                await self._memory.read_links()
            except Exception as error:  # border of a background task
                log_failure(log, "links not read", error)
            await asyncio.sleep(max(_LOOK_SECONDS, _LOOK_REST * (time.monotonic() - began)))

    async def _keep_writing(self) -> None:
        """Writes into conversation files what they could not take before."""
        while True:
            try:
                await self._memory.keep_trying(lambda: _WRITE_AGAIN_SECONDS * (0.5 + self._rng.random()))
            except Exception as error:  # border of a background task
                log_failure(log, "writing again failed", error)

    def _rejected(self, route: str, status: int) -> None:
        self._traces.reject(route, status)
        self._metrics.rejected(route, status)

    def _masked(self, text: str) -> str:
        """A text as it may be kept before its agent is chosen: not at all where own filters have yet to see it."""
        masking = self._snapshots.now().strictest_masking
        return "" if masking.filters else masking.mask(text)

    def _text(self, name: str) -> str:
        """The fixed text of that name, as the config has it now."""
        return self._snapshots.now().texts.get(name)

    def _settings_changed(self, old: Settings, new: Settings) -> None:
        logs.set_level(new.log.level)
        for name, channel in self._channels.items():
            channel.apply(new.channels[name])
        self._mcp.apply(new.tools.mcp)
        self._spawn(self._take_over())

    async def _take_over(self) -> None:
        try:
            await self._snapshots.take_over()
        except Exception as error:  # border: the old configuration goes on
            log_failure(log, "config not taken over", error)

    def _health(self) -> tuple[int, str]:
        if self._state != "ready":
            return 503, self._state
        return 200, "degraded" if self._parts().degraded else "ok"

    def _parts(self) -> Parts:
        models = self._snapshots.now().models
        return Parts(self._channels, self.live, self._memory, models, self.trouble, self._mcp.states())

    # ---- what the console asks

    @property
    def trouble(self) -> str:
        """Why nothing can be stored at the moment (Chinese, for admins); "" while all is well."""
        return "工作区已被移走、替换或删除；请放回原处，或重新启动" if self._lost else self._database.trouble

    def login_link(self) -> str:
        """A link to the web chat that logs in once. Raises LookupError when the console is off."""
        if self._console is None:
            raise LookupError("the console is off")
        settings = self.live.current.console
        return f"http://{settings.host}:{settings.port}{self._console.login_path(_LINK_SECONDS)}"

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
        return await status(self._parts(), self._inbox, self._pipeline.lanes)

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
        return await config_files(self.live)

    async def config_state(self) -> ConfigState:
        """The config files as they are now against what runs."""
        return await config_state(self.live)

    async def reload_config(self) -> bool:
        """Takes the config files over; False where they cannot be."""
        return await self.live.take_over()

    def iso(self, at: float) -> str:
        """Unix seconds as ISO 8601 in the configured time zone."""
        return self._snapshots.now().iso(at)

    def agents(self) -> list[AgentInfo]:
        """The agents that can be chosen."""
        return [AgentInfo(agent.name, agent.settings.description) for agent in self._snapshots.now().agents]

    async def metrics(self) -> str:
        """Prometheus text."""
        return await self._metrics.text(await levels(self._parts(), self._inbox, self._pipeline.lanes, self._clock()))

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


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits all of them for `_CLOSE_SECONDS` at most; one that fails or hangs keeps no other from its end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return
    _, hanging = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
    for task in hanging:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, BaseException):
            log_failure(log, "not closed in order", error)
