"""What an entry of kind ``feishu`` takes in the config."""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from channels.channel import EntrySettings


class FeishuSettings(EntrySettings):
    """`channels.feishu`: one app (机器人) on open.feishu.cn or, with another `api-base-url`, on Lark.

    `websocket` needs no public address; `webhook` requires `encrypt-key` and `verification-token`, because without
    them anybody who knows the address could speak for any user.
    """

    mode: Literal["websocket", "webhook"] = "websocket"
    app_id: str = ""
    app_secret: SecretStr = SecretStr("")
    verification_token: SecretStr = SecretStr("")
    encrypt_key: SecretStr = SecretStr("")
    api_base_url: str = Field("https://open.feishu.cn", pattern=r"^https?://[^\s/]+(/[^\s]*)?$")

    @property
    def account(self) -> str:
        """What the inbox and every id know this app by."""
        return self.account_alias or self.app_id

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"app-id": self.app_id, "app-secret": self.app_secret.get_secret_value()}
        if self.mode == "webhook":
            needed["encrypt-key"] = self.encrypt_key.get_secret_value()
            needed["verification-token"] = self.verification_token.get_secret_value()
        return self.complete(needed, "飞书开放平台的应用后台")
