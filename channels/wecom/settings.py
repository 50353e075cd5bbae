"""What an entry of kind ``wecom-bot`` takes in the config."""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from channels.channel import EntrySettings


class WeComBotSettings(EntrySettings):
    """`channels.wecom-bot`: one 智能机器人 of WeCom. `websocket` needs no public address.

    `corp-id` lets several bots of one company know a person by the same id. `bot-name` is needed where the name holds
    blanks, so that its mention can be told from the text.
    """

    mode: Literal["websocket", "webhook"] = "websocket"
    corp_id: str = ""
    bot_id: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    encoding_aes_key: SecretStr = SecretStr("")
    bot_name: str = ""
    websocket_url: str = Field("wss://openws.work.weixin.qq.com", pattern=r"^wss?://[^\s/]+(/[^\s]*)?$")

    @property
    def account(self) -> str:
        """What the inbox and every session id know this bot by."""
        return self.account_alias or self.bot_id

    @property
    def user_account(self) -> str:
        """What user ids are made with: the company where it is known, for a person is the same to all its bots."""
        return self.corp_id or self.account

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"bot-id": self.bot_id, "secret": self.secret.get_secret_value()}
        return self.complete(
            needed if self.mode == "websocket" else {}, "企业微信智能机器人的「API 模式 › 长连接」页面"
        )
