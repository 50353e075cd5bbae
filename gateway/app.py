"""The application: builds everything once, owns every task, starts and stops in one order."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from agents.models import Models
from channels.channel import Channel, Route
from channels.web import WebChannel
from gateway import conversation_index, inbox
from gateway.channel_factory import make_channel
from gateway.console.application import build_console
from gateway.console.auth import ConsoleAuth
from gateway.console.backend import AgentInfo
from gateway.conversation_index import ConversationIndex, Page
from gateway.database import Database
from gateway.inbox import Inbox
from gateway.live_settings import LiveSettings
from gateway.outbox import Outbox
from gateway.pipeline import Pipeline
from gateway.server import Listener, build_public
from gateway.snapshot import Snapshots
from gateway.status import is_degraded, metrics, status
from gateway.window_view import window_view
from gateway.workspace_lock import WorkspaceLock
from memory.conversation import ConversationId, Turn
from memory.memory import Memory

log = logging.getLogger("sanqiao.app")

_KEEP_IDS_SECONDS = 48 * 3600.0  # the longest redelivery known is Feishu's, 7.1 h after the first try
_HOUSEKEEPING_SECONDS = 3600.0
_CHANNEL_PAUSE_SECONDS = 5.0


class App:
    """One gateway on one workspace. `running()` is its whole life."""

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
        self._state = "starting"
        self._background: list[asyncio.Task[None]] = []
        self._lock = WorkspaceLock(workspace)
        self._workspace = workspace
        self._database = Database(workspace / "gateway.db", inbox.SCHEMA + conversation_index.SCHEMA)
        self._inbox = Inbox(self._database)
        self.memory = Memory(workspace, durability=settings.memory.durability)
        self.index = ConversationIndex(self._database, self.memory)
        self.models = Models(settings.models)
        self.channels: dict[str, Channel] = {}
        self._tasks: asyncio.TaskGroup
        self._outbox = Outbox(
            self._inbox,
            self.channels,
            patience=lambda: live.current.conversations.answer_after_restart,
            spawn=self._spawn,
            clock=clock,
            rng=rng or random.SystemRandom(),
        )
        self.pipeline = Pipeline(
            inbox=self._inbox,
            memory=self.memory,
            index=self.index,
            models=lambda: self.models,
            snapshots=Snapshots(lambda: live.current),
            channels=self.channels,
            outbox=self._outbox,
            spawn=self._spawn,
            clock=clock,
        )
        live.on_change(self._settings_changed)

    # ---- life

    @contextlib.asynccontextmanager
    async def running(self, *, serve: bool = True) -> AsyncIterator["App"]:
        """Starts everything, yields, stops everything.

        `serve` False: no ports and no platforms, only the web channel (the terminal chat). Raises WorkspaceBusy,
        ListenFailed.
        """
        await asyncio.to_thread(self._lock.acquire)
        try:
            async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                listeners = await self._start(stack, serve)
                try:
                    yield self
                finally:
                    await self._stop(listeners)
        finally:
            await self._database.close()
            await asyncio.to_thread(self._lock.release)

    async def _start(self, stack: contextlib.AsyncExitStack, serve: bool) -> list[Listener]:
        settings = self.live.current
        await asyncio.to_thread(self._database.open)
        stack.push_async_callback(self.memory.close)
        stack.push_async_callback(self._close_models)
        for name, entry in settings.channels.items():
            if entry.enabled and (serve or (entry.kind or name) == "web"):
                self.channels[name] = make_channel(name, entry, self.pipeline.accept, clock=self._clock)
        listeners = await self._listen() if serve else []
        await self.pipeline.recover()
        self.pipeline.open()
        for channel in self.channels.values():
            self._background.append(self._spawn(self._run_channel(channel)))
        self._background.append(self._spawn(self.live.watch()))
        self._background.append(self._spawn(self._keep_house()))
        self._state = "ready"
        log.info("ready channels=%s", ",".join(self.channels))
        return listeners

    async def _listen(self) -> list[Listener]:
        settings = self.live.current
        routes: list[Route] = [route for channel in self.channels.values() for route in channel.routes()]
        public = build_public(routes, self._health, settings.server.max_body_bytes)
        listeners = [Listener(public, settings.server.host, settings.server.port)]
        if settings.console.enabled:
            self.auth = await asyncio.to_thread(ConsoleAuth.from_settings, settings.console, self._workspace)
            console = build_console(self, self.auth, settings.console)
            listeners.append(Listener(console, settings.console.host, settings.console.port, key="console"))
        started: list[Listener] = []
        try:
            for listener in listeners:
                await listener.start()
                started.append(listener)
        except BaseException:
            for listener in started:
                await listener.stop()
            raise
        return listeners

    async def _stop(self, listeners: list[Listener]) -> None:
        """The one order of stopping: take nothing new, finish what runs, send what is answered, close."""
        drain = self.live.current.server.drain
        end = self._clock() + drain
        self._state = "draining"
        self.pipeline.close()
        await asyncio.gather(*(channel.stop_receiving() for channel in self.channels.values()))
        await self.pipeline.lanes.drain(drain)
        await self._outbox.drain(max(end - self._clock(), 0.5))
        for channel in self.channels.values():
            await channel.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*(listener.stop() for listener in listeners))
        await self.index.flush()
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
            except Exception:  # border of one channel
                log.exception("channel failed entry=%s again_in=%.0fs", channel.name, _CHANNEL_PAUSE_SECONDS)
            await asyncio.sleep(_CHANNEL_PAUSE_SECONDS)

    async def _keep_house(self) -> None:
        """Makes the index anew once, then forgets ended messages that no platform repeats any more."""
        while True:
            try:
                if self._clock() >= 0:
                    await self._inbox.purge(self._clock() - _KEEP_IDS_SECONDS)
                await self.index.refresh()
            except Exception:  # border of a background task
                log.exception("housekeeping failed")
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)

    def _settings_changed(self) -> None:
        old, self.models = self.models, self.models.renew(self.live.current.models)
        if old is not self.models:
            log.info("models renewed")

    async def _close_models(self) -> None:
        await self.models.close()

    def _health(self) -> tuple[int, str]:
        if self._state != "ready":
            return 503, self._state
        return 200, "degraded" if is_degraded(self.channels, self.live) else "ok"

    # ---- what the console asks

    @property
    def web(self) -> WebChannel:
        """The web chat. Raises LookupError when it is off."""
        for channel in self.channels.values():
            if isinstance(channel, WebChannel):
                return channel
        raise LookupError("channels.web is off")

    async def conversations(
        self, *, channel: str | None, user: str | None, q: str | None, before: str | None, limit: int
    ) -> Page:
        """One page of the conversations, newest first."""
        return await self.index.page(channel=channel, user=user, q=q, before=before, limit=limit)

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn] | None:
        """A page of turns in file order, the newest page first; None for a conversation that does not exist."""
        if await self.memory.info(conversation) is None:
            return None
        return await self.memory.history(conversation, before, limit)

    async def window(self, conversation: ConversationId) -> dict[str, Any] | None:
        """The window as it would be sent with the next question."""
        entry = conversation.lane.channel
        return await window_view(conversation, self.pipeline.snapshot(), self.memory, self.models, entry)

    async def status(self) -> dict[str, Any]:
        """How the gateway is."""
        return await status(self.channels, self.live, self._inbox, self.pipeline.lanes)

    def agents(self) -> list[AgentInfo]:
        """The agents that can be chosen."""
        return [AgentInfo(agent.name, agent.settings.description) for agent in self.pipeline.snapshot().agents]

    async def metrics(self) -> str:
        """Prometheus text."""
        counts = await self._inbox.counts()
        return metrics(
            {
                "up": 1,
                "lanes_active": len(self.pipeline.lanes),
                "inbox_waiting": counts["waiting"],
                "parts_unsent": counts["unsent"],
            }
        )
