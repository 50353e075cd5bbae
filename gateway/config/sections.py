"""The sections of `config/gateway.yaml`, and all settings as one frozen tree; every key has a default but secrets."""

from collections.abc import Mapping

from pydantic import Field, SecretStr

from agents.agent import AgentSettings
from agents.model import ModelSettings
from agents.tools.mcp import McpServerSettings
from channels.channel import EntrySettings
from memory.context import PRESETS, ContextOverrides, ContextPreset, ContextSettings, resolve
from memory.masking import RULES, MaskingRules
from memory.redis_link import RedisSettings
from memory.settings import Duration, SettingsModel


class ServerSettings(SettingsModel):
    """`server`: the public listener, for callbacks of the platforms only. Sizes in bytes."""

    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8080, ge=1, le=65535)
    max_body_bytes: int = Field(1048576, ge=1024)
    drain: Duration = Field(15.0, ge=0)


class ConsoleSettings(SettingsModel):
    """`console`: web chat, admin pages, metrics. An empty token is made at the first start and kept in the workspace."""

    enabled: bool = True
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8081, ge=1, le=65535)
    token: SecretStr = SecretStr("")
    trusted_proxies: tuple[str, ...] = ()
    allow_insecure: bool = False


class LogSettings(SettingsModel):
    """`log`: how much is logged, and whether as text or as JSON lines."""

    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    format: str = Field("text", pattern="^(text|json)$")


class TraceSettings(SettingsModel):
    """`trace`: for how long, and how much of what happened to messages is kept."""

    keep_days: int = Field(14, ge=1, le=3650)
    max_mb: int = Field(128, ge=4, le=256)  # forgetting writes the file anew, up to this size


class ClassifySettings(SettingsModel):
    """`router.classify`: the model that picks an agent when no rule does."""

    enabled: bool = True
    model: str = "main"
    timeout: Duration = Field(3.0, gt=0)


class RouterSettings(SettingsModel):
    """`router`: how an agent is picked."""

    sticky_for: Duration = Field(1800.0, ge=0)
    classify: ClassifySettings = ClassifySettings()


class LongTermSettings(SettingsModel):
    """`memory.long-term`: the knowledge base. `min_score` applies to cosine scores only."""

    enabled: bool = True
    store: str = Field("embedded", pattern="^(embedded|milvus)$")
    uri: str = ""
    embedding: str = ""
    top_k: int = Field(5, ge=1, le=100)
    min_score: float = Field(0.8, ge=-1, le=1)


class MemorySettings(SettingsModel):
    """`memory`: masking rules by name, stores, and when an append counts as done."""

    masking: MaskingRules = ("id-card", "phone", "bank-card")
    redis: RedisSettings = RedisSettings()
    long_term: LongTermSettings = LongTermSettings()
    durability: str = Field("sync", pattern="^(sync|batch|none)$")


class ClusterSettings(SettingsModel):
    """`cluster`: several gateways on one workspace, with a Redis that must not evict."""

    enabled: bool = False
    redis: SecretStr = SecretStr("")


class ConversationsSettings(SettingsModel):
    """`conversations`: who shares a context, and how waiting messages are treated."""

    group_context: str = Field("member", pattern="^(member|shared)$")
    debounce: Duration = Field(0.0, ge=0, le=60)
    merge_queued: bool = True
    answer_after_restart: Duration = Field(1800.0, ge=0)


class LimitsSettings(SettingsModel):
    """`limits`: per person; 0 = no limit. A text is measured in UTF-8 bytes."""

    messages_per_minute: int = Field(20, ge=0)
    tokens_per_day: int = Field(0, ge=0)
    max_text_bytes: int = Field(16384, ge=16)


class ToolsSettings(SettingsModel):
    """`tools`: where agents' tools come from beside those that are built in; MCP servers by the names agents use."""

    mcp: Mapping[str, McpServerSettings] = Field(default_factory=dict)


class AgentDefaults(SettingsModel):
    """`agent`: who answers when nothing else decides, what a request carries, and presets for it by name."""

    default: str = "general-agent"
    context: ContextSettings = ContextSettings()
    policies: Mapping[str, ContextPreset] = PRESETS


class GatewayFile(SettingsModel):
    """What `gateway.yaml` says, but for `channels`."""

    server: ServerSettings = ServerSettings()
    console: ConsoleSettings = ConsoleSettings()
    timezone: str = "Asia/Shanghai"
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()
    models: Mapping[str, ModelSettings] = Field(default_factory=dict)
    agent: AgentDefaults = AgentDefaults()
    router: RouterSettings = RouterSettings()
    memory: MemorySettings = MemorySettings()
    cluster: ClusterSettings = ClusterSettings()
    conversations: ConversationsSettings = ConversationsSettings()
    limits: LimitsSettings = LimitsSettings()
    tools: ToolsSettings = ToolsSettings()
    texts: Mapping[str, str] = Field(default_factory=dict)
    admins: tuple[str, ...] = ()


class Settings(GatewayFile):
    """Everything the gateway is configured with, from all files; never changed in place.

    `agents` and `channels` are by name; each channel entry is of its kind's own type and has `kind` filled in.
    `entry_context` holds what entries override of the context. `models` always has ``main``. `notes` (Chinese) are to
    be said at the start. `demo_stands_in`: ``main`` is the demo model because no key was given.
    """

    models: Mapping[str, ModelSettings] = Field(default_factory=lambda: {"main": ModelSettings()})
    agents: Mapping[str, AgentSettings] = Field(default_factory=dict)
    channels: Mapping[str, EntrySettings] = Field(default_factory=dict)
    entry_context: Mapping[str, ContextOverrides] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    demo_stands_in: bool = False

    def context_for(self, agent: str, entry: str = "") -> ContextSettings:
        """What requests of this agent carry through this channel entry. Raises KeyError for an unknown agent."""
        overrides = [self.agents[agent].context]
        if entry in self.entry_context:
            overrides.append(self.entry_context[entry])
        return resolve(self.agent.context, self.agent.policies, *overrides)

    def masking_for(self, agent: str) -> tuple[str, ...]:
        """The names of this agent's masking rules. Raises KeyError for an unknown agent."""
        own = self.agents[agent].masking
        return self.memory.masking if own is None else own

    @property
    def strictest_masking(self) -> tuple[str, ...]:
        """The rules and own filters of all agents together: for what sees a text before an agent is chosen."""
        names = dict.fromkeys((*self.memory.masking, *(n for a in self.agents.values() for n in a.masking or ())))
        return (*(rule for rule in RULES if rule in names), *(name for name in names if name not in RULES))

    def model_name(self, name: str) -> str:
        """The entry under `models` a name stands for: ``summary`` without an entry of its own is ``main``."""
        return "main" if name == "summary" and name not in self.models else name

    def model_for(self, agent: str) -> str:
        """The name, under `models`, of this agent's model. Raises KeyError for an unknown agent."""
        return self.model_name(self.agents[agent].model)

    def enabled_channels(self) -> Mapping[str, EntrySettings]:
        """The entries that are on."""
        return {name: entry for name, entry in self.channels.items() if entry.enabled}
