"""How the gateway is, for admins: channels, models, memory, queue, configuration."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from channels.channel import Channel
from gateway.inbox import Inbox
from gateway.lanes import Lanes
from gateway.live_settings import LiveSettings
from memory.memory import Memory


def is_degraded(channels: Mapping[str, Channel], live: LiveSettings, memory: Memory) -> bool:
    """Whether something needs an admin: a channel, Redis or files that are not well, or a broken configuration file."""
    well = (
        memory.redis().state != "down"
        and memory.files_well()
        and all(channel.health().ok for channel in channels.values())
    )
    return bool(live.problems) or not well


async def status(
    channels: Mapping[str, Channel], live: LiveSettings, inbox: Inbox, lanes: Lanes, memory: Memory
) -> dict[str, Any]:
    """The form of ``GET /api/status``: no secret, no id of a user."""
    settings = live.current
    counts = await inbox.counts()
    redis = memory.redis()
    return {
        "status": "degraded" if is_degraded(channels, live, memory) else "ok",
        "channels": {name: _channel(channel) for name, channel in channels.items()},
        "models": {
            name: {"provider": model.provider, "model": "demo" if model.provider == "demo" else model.model}
            for name, model in settings.models.items()
        },
        "demo": any(model.provider == "demo" for model in settings.models.values()),
        "redis": {"state": redis.state, "cooldown_left": redis.cooldown_left, "remedy": redis.remedy},
        "memory": asdict(memory.files()),
        "long_term": {"state": "off"},
        "queue": {**counts, "lanes": len(lanes)},
        "config": {
            "problems": [str(problem) for problem in live.problems],
            "waiting_for_restart": list(live.waiting),
            "notes": list(settings.notes),
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    health = channel.health()
    return {"ok": health.ok, "detail": health.detail, "since": health.since}


def metrics(values: Mapping[str, float]) -> str:
    """Prometheus text of plain gauges."""
    return "".join(f"# TYPE sanqiao_{name} gauge\nsanqiao_{name} {value:g}\n" for name, value in values.items())
