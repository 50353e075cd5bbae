"""Entries of channels that are not available yet: their keys can be written (and are checked), not switched on."""

from typing import Literal

from pydantic import SecretStr

from channels.channel import EntrySettings


class WeComAppSettings(EntrySettings):
    """`channels.wecom-app`: one self-built WeCom application (自建应用)."""

    corp_id: str = ""
    agent_id: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    encoding_aes_key: SecretStr = SecretStr("")
    api_base_url: str = "https://qyapi.weixin.qq.com"


class WeComBotSettings(EntrySettings):
    """`channels.wecom-bot`: one WeCom 智能机器人."""

    mode: Literal["websocket", "webhook"] = "websocket"
    corp_id: str = ""
    bot_id: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    encoding_aes_key: SecretStr = SecretStr("")
    bot_name: str = ""
    websocket_url: str = "wss://openws.work.weixin.qq.com"
