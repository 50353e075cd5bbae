"""What an entry of kind ``wechat`` takes in the config."""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from channels.channel import EntrySettings
from channels.verify import WeChatCipher


class WeChatSettings(EntrySettings):
    """`channels.wechat`: one 公众号 (订阅号 or 服务号) on mp.weixin.qq.com.

    `mode` is what is set there as 消息加解密方式 (兼容模式 is `safe` here); in `plain` mode no body is authenticated.
    `active-send`: whether answers go by the 客服消息 interface; `auto` finds out.
    """

    mode: Literal["safe", "plain"] = "safe"
    app_id: str = ""
    app_secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    encoding_aes_key: SecretStr = SecretStr("")
    active_send: Literal["auto", "on", "off"] = "auto"
    api_base_url: str = Field("https://api.weixin.qq.com", pattern=r"^https?://[^\s/]+(/[^\s]*)?$")

    @property
    def account(self) -> str:
        """What the inbox and every id know this account by."""
        return self.account_alias or self.app_id

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"app-id": self.app_id, "token": self.token.get_secret_value()}
        if self.active_send != "off":
            needed["app-secret"] = self.app_secret.get_secret_value()
        if self.mode == "safe":
            needed["encoding-aes-key"] = self.encoding_aes_key.get_secret_value()
        self.complete(needed, "微信公众平台的「设置与开发」中")
        if self.enabled and self.mode == "safe":
            try:
                WeChatCipher(self.encoding_aes_key.get_secret_value(), self.app_id)
            except ValueError:
                raise ValueError("encoding-aes-key 应为 43 个字母或数字；请在微信公众平台原样复制") from None
        return self
