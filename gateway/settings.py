"""All settings as one frozen tree: `gateway.yaml`, the agent files, the channel entries."""

from collections.abc import Mapping

from pydantic import Field

from agents.model import ModelSettings
from channels.channel import EntrySettings
from gateway.sections import (
    ClassifySettings,
    ClusterSettings,
    ConsoleSettings,
    ConversationsSettings,
    LimitsSettings,
    LogSettings,
    LongTermSettings,
    MemorySettings,
    RedisSettings,
    RouterSettings,
    ServerSettings,
)
from memory.settings import SettingsModel

__all__ = [
    "ClassifySettings",
    "ClusterSettings",
    "ConsoleSettings",
    "ConversationsSettings",
    "LimitsSettings",
    "LogSettings",
    "LongTermSettings",
    "MemorySettings",
    "RedisSettings",
    "RouterSettings",
    "ServerSettings",
    "Settings",
]


class Settings(SettingsModel):
    """Everything the gateway is configured with; never changed in place."""

    server: ServerSettings = ServerSettings()
    console: ConsoleSettings = ConsoleSettings()
    timezone: str = "Asia/Shanghai"
    log: LogSettings = LogSettings()
    models: Mapping[str, ModelSettings] = Field(default_factory=lambda: {"main": ModelSettings()})
    router: RouterSettings = RouterSettings()
    memory: MemorySettings = MemorySettings()
    cluster: ClusterSettings = ClusterSettings()
    conversations: ConversationsSettings = ConversationsSettings()
    limits: LimitsSettings = LimitsSettings()
    texts: Mapping[str, str] = Field(default_factory=dict)
    admins: tuple[str, ...] = ()
    channels: Mapping[str, EntrySettings] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    demo_stands_in: bool = False
