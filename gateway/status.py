"""How the gateway is, for admins: channels, models, memory, queue, configuration."""

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.models import ModelHealth, Models
from agents.tools.mcp_servers import McpState
from channels.channel import Channel, Health
from gateway.config.live_settings import LiveSettings
from gateway.lanes import Lanes
from gateway.storage.inbox import Inbox
from gateway.tracing.metrics import Levels
from memory.memory import Memory


@dataclass(frozen=True, slots=True)
class Sources:
    """What the state of the gateway is read from."""

    channels: Mapping[str, Channel]
    live: LiveSettings
    memory: Memory
    models: Models
    trouble: str
    """Why nothing can be stored at the moment (Chinese, for admins); "" while all is well."""
    mcp: Mapping[str, McpState] = field(default_factory=dict)

    @property
    def degraded(self) -> bool:
        """Whether something needs an admin: a channel, a model, an MCP server, Redis, files, the inbox, a broken config."""
        well = (
            not self.trouble
            and self.memory.redis().state != "down"
            and self.memory.files_well()
            and all(channel.health().ok for channel in self.channels.values())
            and all(health.ok for health in self.models.health().values())
            and all(server.ok for server in self.mcp.values())
        )
        return bool(self.live.problems) or not well


async def status(sources: Sources, inbox: Inbox, lanes: Lanes) -> dict[str, Any]:
    """The form of ``GET /api/status``: no secret, no id of a user."""
    live = sources.live
    redis = sources.memory.redis()
    return {
        "status": "degraded" if sources.degraded else "ok",
        "channels": {name: _health(channel.health()) for name, channel in sources.channels.items()},
        "models": {name: _model(name, sources) for name in live.current.models},
        "demo": any(model.provider == "demo" for model in live.current.models.values()),
        "mcp": {name: _health(server) | {"tools": list(server.tools)} for name, server in sources.mcp.items()},
        "redis": {"state": redis.state, "cooldown_left": redis.cooldown_left, "remedy": redis.remedy},
        "memory": asdict(sources.memory.files()),
        "long_term": {"state": "off"},
        "inbox": {"state": "failing" if sources.trouble else "ok", "detail": sources.trouble},
        "queue": {**await _counts(inbox), "lanes": len(lanes)},
        "config": {
            "problems": [str(problem) for problem in live.problems],
            "waiting_for_restart": list(live.waiting),
            "notes": list(live.current.notes),
        },
    }


async def _counts(inbox: Inbox) -> dict[str, int | None]:
    try:
        return dict(await inbox.counts())
    except sqlite3.Error:  # then `inbox` says why
        return {"waiting": None, "unsent": None}


def _model(name: str, sources: Sources) -> dict[str, Any]:
    settings, health = sources.live.current.models[name], sources.models.health().get(name)
    shown = {"provider": settings.provider, "model": "demo" if settings.provider == "demo" else settings.model}
    return shown | (_health(health) if health else {})


def _health(health: Health | ModelHealth | McpState) -> dict[str, Any]:
    return {"ok": health.ok, "detail": health.detail, "since": health.since}


async def levels(sources: Sources, inbox: Inbox, lanes: Lanes, now: float) -> Levels:
    """What the metrics look at when they are asked for; `now` in unix seconds."""
    counts = await _counts(inbox)
    return Levels(
        waiting=counts["waiting"] or 0,
        oldest=await _oldest(inbox, now),
        unsent=counts["unsent"] or 0,
        lanes=len(lanes),
        redis=sources.memory.redis().state,
        channels={name: channel.health().ok for name, channel in sources.channels.items()},
        models={name: health.ok for name, health in sources.models.health().items()},
    )


async def _oldest(inbox: Inbox, now: float) -> float:
    try:
        since = await inbox.oldest()
    except sqlite3.Error:
        return 0.0
    return 0.0 if since is None else max(now - since, 0.0)
