"""The application: builds everything once, owns every task, starts and stops in one order."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from agents.tools.jobs import JobBoard
from agents.tools.mcp_servers import END_SECONDS, McpServers
from agents.tools.search_jobs import SEARCH_JOBS
from channels.channel import Channel
from gateway import logs
from gateway.backend import Backend
from gateway.channel_factory import make_channel
from gateway.config.live_settings import LiveSettings
from gateway.config.settings import Settings
from gateway.console.application import Console
from gateway.console.auth import console_token
from gateway.housekeeping import Housekeeping
from gateway.logs import log_failure
from gateway.outbox import Outbox
from gateway.pipeline import Pipeline
from gateway.recovery import Recovery
from gateway.server import Listener, build_public
from gateway.shelf import InboxShelf
from gateway.snapshot import Snapshots
from gateway.status import Sources
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.gateway_db import gateway_db
from gateway.storage.inbox import Inbox
from gateway.storage.owed_turns import OwedTurns
from gateway.storage.parts import Parts
from gateway.tracing.metrics import Metrics
from gateway.tracing.traces import TRACES, Traces
from gateway.turn_forgetting import TurnForgetting
from gateway.turns.summaries import Summaries
from gateway.turns.tool_calls import Desk
from gateway.workspace_lock import WorkspaceLock
from memory.errors import StoreError
from memory.memory import Memory

log = logging.getLogger("sanqiao.app")

_CHANNEL_PAUSE_SECONDS = 5.0
_LINK_SECONDS = 600.0
_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 2.0
_SUMMARY_SECONDS = 3.0  # a summary that is not ready by then is made after a later answer


class App:
    """One gateway on one workspace. `running()` is its whole life; `backend` is what the console asks."""

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
        self._database = gateway_db(workspace)
        self._inbox = Inbox(self._database)
        parts = Parts(self._database)
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
        self._recovery = Recovery(
            self._inbox, self._outbox, self._pipeline, self._snapshots, clock=clock, note=self._traces.note
        )
        self._housekeeping = Housekeeping(
            self._inbox, self._shelf, self._index, self._memory, clock=clock, rng=self._rng
        )
        self.backend = self._backend()

    def _backend(self) -> Backend:
        turns = TurnForgetting(
            self._memory, self._database, self._index, self._traces.forget_turn, self._pipeline.replies.drop
        )
        return Backend(
            live=self.live,
            snapshots=self._snapshots,
            channels=self._channels,
            inbox=self._inbox,
            memory=self._memory,
            index=self._index,
            pipeline=self._pipeline,
            turns=turns,
            traces=self._traces,
            metrics=self._metrics,
            sources=self._sources,
            clock=self._clock,
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
            await self._recovery.run()  # without platforms nobody could be sent what waits for them
        self._pipeline.intake.open()
        self._mcp.apply(self.live.current.tools.mcp)
        self.live.on_change(self._settings_changed)
        background = [
            self.live.watch(),
            *self._housekeeping.tasks(),
            self._traces.run(),
            self._metrics.watch_loop(),
            self._watch_workspace(),
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
            self._console = Console(self.backend, token=token, host=settings.console.host, trusted_proxies=proxies)
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
        await asyncio.gather(
            _all(channel.close() for channel in self._channels.values()),
            _all([self._mcp.close()], within=END_SECONDS + _CLOSE_SECONDS),
        )
        for task in self._background:
            task.cancel()
        await _all(listener.stop() for listener in self._listeners)
        await _all([self._index.flush()])
        log.info("stopped")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._tasks.create_task(work)

    def login_link(self) -> str:
        """A link to the web chat that logs in once. Raises LookupError when the console is off."""
        if self._console is None:
            raise LookupError("the console is off")
        settings = self.live.current.console
        return f"http://{settings.host}:{settings.port}{self._console.login_path(_LINK_SECONDS)}"

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
        return 200, "degraded" if self._sources().degraded else "ok"

    def _sources(self) -> Sources:
        models = self._snapshots.now().models
        return Sources(self._channels, self.live, self._memory, models, self._trouble(), self._mcp.states())

    def _trouble(self) -> str:
        """Why nothing can be stored at the moment (Chinese, for admins); "" while all is well."""
        return "工作区已被移走、替换或删除；请放回原处，或重新启动" if self._lost else self._database.trouble


async def _all(calls: Iterable[Awaitable[None]], within: float = _CLOSE_SECONDS) -> None:
    """Awaits all of them for `within` seconds at most; one that fails or hangs keeps no other from its end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return
    _, hanging = await asyncio.wait(tasks, timeout=within)
    for task in hanging:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, BaseException):
            log_failure(log, "not closed in order", error)
