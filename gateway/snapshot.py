"""One configuration, ready for use: what is derived from the settings once, when they change."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from agents.agent import Agent, Intents
from agents.model import ModelClient
from agents.models import Models
from agents.registry import Agents
from agents.tools.mcp import Grant, grants_of
from agents.tools.registry import load_tools
from agents.tools.tool import Tool
from channels.channel import EntrySettings
from gateway.config.settings import Settings
from gateway.config.texts import Texts
from gateway.lanes import Merging
from gateway.route import LaneState
from memory.context import ContextSettings
from memory.masking import Masking

log = logging.getLogger("sanqiao.mcp")

MOST_TOOLS = 128
"""The most tools of one request, at OpenAI."""
_SHARE_OF_REMOTE = 4  # a quarter of the model's context

Remote = Callable[[Sequence[Grant], Iterable[str]], tuple[Tool, ...]]
"""Gives the tools of MCP servers that grants cover at this moment, none under a name that is taken."""


class Snapshot:
    """The settings with the agents, rules, texts, maskings and models made from them; never changed."""

    def __init__(self, settings: Settings, models: Models, remote: Remote | None = None) -> None:
        """Without `remote` no agent has tools of MCP servers."""
        self.settings = settings
        self.models = models
        self._contexts: dict[tuple[str, str], ContextSettings] = {}
        self.agents = Agents(settings.agents, settings.agent.default)
        self.texts = Texts(settings.texts)
        self.zone = ZoneInfo(settings.timezone)
        self.strictest_masking = Masking(settings.strictest_masking)
        """What is made unreadable for whatever sees a text before its agent is chosen."""
        self._maskings = {name: Masking(settings.masking_for(name)) for name in settings.agents}
        self._tools = {name: load_tools(each.tools) for name, each in settings.agents.items()}
        self._grants = {name: grants_of(each.tools) for name, each in settings.agents.items()}
        self._remote = remote
        self._told_of: set[str] = set()

    @cached_property
    def rules(self) -> dict[str, Intents]:
        """Every agent's name with its rules."""
        return {agent.name: agent.settings.intents for agent in self.agents}

    @property
    def merging(self) -> Merging:
        """How waiting messages become one turn."""
        conversations = self.settings.conversations
        return Merging(conversations.merge_queued, conversations.debounce, self.settings.limits.max_text_bytes)

    def entry(self, name: str) -> EntrySettings:
        """The channel entry of that name; defaults for one that is gone."""
        return self.settings.channels.get(name) or EntrySettings()

    def default_agent(self, entry: str) -> str:
        """The agent that answers in this channel entry when nothing else decides."""
        own = self.entry(entry).agent
        return self.agents.get(own).name if own else self.agents.default.name

    def known(self, lane: LaneState) -> LaneState:
        """A lane's state with its agent under its present name; an empty one where the agent is gone."""
        if lane.agent not in self.agents:
            return LaneState()
        return replace(lane, agent=self.agents.get(lane.agent).name)

    def entry_of(self, channel: str) -> str:
        """An enabled entry whose conversations are of this channel; the channel's own name where none is."""
        for name, entry in self.settings.enabled_channels().items():
            if entry.kind == channel or entry.kind.startswith(f"{channel}-"):
                return name
        return channel

    def context(self, agent: Agent, entry: str) -> ContextSettings:
        """What one request of this agent, through this channel entry, carries of the past."""
        key = (agent.name, entry)
        if key not in self._contexts:
            self._contexts[key] = self.settings.context_for(agent.name, entry)
        return self._contexts[key]

    def masking(self, agent: Agent) -> Masking:
        """What is made unreadable before this agent's texts are stored or sent to a model."""
        return self._maskings[agent.name]

    def tools(self, agent: Agent, *, group: bool) -> tuple[Tool, ...]:
        """The tools this agent has; in groups without those that touch what belongs to one person."""
        own = tuple(tool for tool in self._tools[agent.name] if not (group and tool.direct_only))
        grants = self._grants[agent.name]
        if self._remote is None or not grants:
            return own
        return own + self._that_fit(agent, own, self._remote(grants, [tool.name for tool in self._tools[agent.name]]))

    def _that_fit(self, agent: Agent, own: Sequence[Tool], remote: Sequence[Tool]) -> tuple[Tool, ...]:
        """The first of the remote tools, as far as they leave room for what is asked; says once what is left out."""
        left = self.model(agent).settings.context_tokens // _SHARE_OF_REMOTE
        fitting: list[Tool] = []
        for tool in remote[: max(MOST_TOOLS - len(own), 0)]:
            left -= tool.tokens
            if left < 0:
                break
            fitting.append(tool)
        if len(fitting) < len(remote) and agent.name not in self._told_of:
            self._told_of.add(agent.name)
            log.warning(
                "mcp.left_out agent=%s tools=%d offered=%d 放不下；请在智能体的 tools 里逐个选用，或加大 context-tokens",
                agent.name,
                len(remote) - len(fitting),
                len(fitting),
            )
        return tuple(fitting)

    def model(self, agent: Agent) -> ModelClient:
        """The model this agent asks."""
        return self.models.client(self.settings.model_for(agent.name))

    def day(self, now: float) -> str:
        """The day of the configured zone that unix seconds fall on, as ``2026-11-30``."""
        return datetime.fromtimestamp(now, self.zone).date().isoformat()

    def iso(self, now: float) -> str:
        """Unix seconds as ISO 8601 with milliseconds and the offset of the configured zone."""
        return datetime.fromtimestamp(now, self.zone).isoformat(timespec="milliseconds")


class Snapshots:
    """The snapshot that holds now. Settings and models change together or not at all."""

    def __init__(self, current: Callable[[], Settings], remote: Remote | None = None) -> None:
        """Reads what `current` says; imports what its models need (blocking: before the event loop runs)."""
        self._current = current
        self._remote = remote
        settings = current()
        self._made = Snapshot(settings, Models(settings.models), remote)
        self._taking = asyncio.Lock()

    def now(self) -> Snapshot:
        """The snapshot; keep it for the length of one answer, so that a change does not fall into the middle."""
        return self._made

    async def take_over(self) -> None:
        """Makes the snapshot of the settings that are current by now."""
        async with self._taking:
            settings = self._current()
            if settings is not self._made.settings:
                self._made = Snapshot(settings, await self._made.models.renew(settings.models), self._remote)

    async def close(self) -> None:
        """Ends the models' connections."""
        await self._made.models.close()
