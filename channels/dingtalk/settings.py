"""What an entry of kind ``dingtalk`` takes in the config."""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from channels.channel import EntrySettings

_ADDRESS = r"^https?://[^\s/@?#]+(/[^\s?#]*)?$"


class DingTalkSettings(EntrySettings):
    """`channels.dingtalk`: one internal application with a robot (open-dev.dingtalk.com).

    `stream` needs no public address; `http` has the platform post to ``/dingtalk``. `oapi-base-url` is the host of
    the session webhooks.
    """

    mode: Literal["stream", "http"] = "stream"
    client_id: str = ""
    client_secret: SecretStr = SecretStr("")
    card_template_id: str = ""
    api_base_url: str = Field("https://api.dingtalk.com", pattern=_ADDRESS)
    oapi_base_url: str = Field("https://oapi.dingtalk.com", pattern=_ADDRESS)

    @property
    def account(self) -> str:
        """What the inbox and every id know this application by."""
        return self.account_alias or self.client_id

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"client-id": self.client_id, "client-secret": self.client_secret.get_secret_value()}
        return self.complete(needed, "钉钉开放平台的应用「凭证与基础信息」中")
