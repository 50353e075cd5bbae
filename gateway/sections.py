"""The sections of `config/gateway.yaml` that are the gateway's own; every key has a default."""

from pydantic import Field, SecretStr

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


class ClassifySettings(SettingsModel):
    """`router.classify`: the model that picks an agent when no rule does."""

    enabled: bool = True
    model: str = "main"
    timeout: Duration = Field(3.0, gt=0)


class RouterSettings(SettingsModel):
    """`router`: how an agent is picked."""

    sticky_for: Duration = Field(1800.0, ge=0)
    classify: ClassifySettings = ClassifySettings()


class RedisSettings(SettingsModel):
    """`memory.redis`: the short-term store; off while `url` (which may hold a password) is empty."""

    url: SecretStr = SecretStr("")
    prefix: str = Field("gateway:", min_length=1)
    ttl: Duration = Field(86400.0, gt=0)
    cooldown: Duration = Field(15.0, gt=0)
    timeout: Duration = Field(0.3, gt=0)


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

    masking: tuple[str, ...] = ("id-card", "phone", "bank-card")
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
