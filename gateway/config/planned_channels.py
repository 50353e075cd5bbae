"""Entries of channels that are not available yet: their keys can be written (and are checked), not switched on."""

from pydantic import SecretStr

from channels.channel import EntrySettings

PLANNED = frozenset({"wecom-app"})
"""Kinds that cannot be switched on yet."""


class WeComAppSettings(EntrySettings):
    """`channels.wecom-app`: one self-built WeCom application (自建应用)."""

    corp_id: str = ""
    agent_id: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    encoding_aes_key: SecretStr = SecretStr("")
    api_base_url: str = "https://qyapi.weixin.qq.com"
