"""Why there is no connection, what an admin is told of it, and how long to wait before the next one."""

from channels.reconnecting import Disconnected, Pauses
from channels.wecom.codes import Remedy, remedy_for

_SPREAD = (1.0, 1.25)


class Loss(Disconnected):
    """The connection broke or could not be made."""

    detail = "与企业微信的长连接断开，正在重连；请检查网络与 websocket-url"
    pauses = Pauses(1.0, 30.0, stable=30.0, spread=_SPREAD)


class Refused(Loss):
    """The platform refuses the subscription, which it also does to those who ask too often."""

    pauses = Pauses(30.0, 600.0, stable=30.0, spread=_SPREAD)

    def __init__(self, code: int) -> None:
        super().__init__(f"subscribe refused with code {code}")
        if remedy_for(code) in (Remedy.WAIT, Remedy.ASK_AGAIN):
            self.detail = f"企业微信暂不接受订阅（错误码 {code}），稍后自动重试；请确认没有别的程序在反复连接此机器人"
        else:
            self.detail = (
                f"企业微信拒绝订阅（错误码 {code}），请核对 bot-id 与 secret，并确认机器人的 API 模式为「长连接」"
            )


class TakenOver(Loss):
    """Another program subscribed with the same bot id. Connecting at once would only throw it out in turn."""

    detail = "另一个程序用同一 bot-id 建立了长连接，本网关已让出并暂停接收；请停掉多余的一方，然后重启本网关（否则稍后自动重试）"
    pauses = Pauses(300.0, 3600.0, stable=3600.0, spread=_SPREAD)
