"""Asks Feishu where to connect: credentials go in, a single-use WebSocket address and the ping interval come out."""

from collections.abc import Mapping
from dataclasses import dataclass

from yarl import URL

from channels.feishu.api import ApiError, FeishuApi
from channels.feishu.codes import Remedy
from channels.feishu.settings import FeishuSettings
from channels.json_values import Object, int_at, object_at, text_at
from channels.reconnecting import Disconnected, Pauses

_PATH = "/callback/ws/endpoint"
_TOO_MANY = (1000040350,)


class ConnectFailed(Disconnected):
    """No connection now. The message is for logs: no address, for it holds the ticket.

    `detail` is what an admin reads (Chinese, with the remedy).
    """

    detail = "与飞书的长连接断开，正在重连；请检查网络与 api-base-url"
    pauses = Pauses(0.2, 60.0)


class ConnectRefused(ConnectFailed):
    """The platform refuses this app: credentials, rights or the number of connections. An admin must mend it."""

    pauses = Pauses(1.0, 60.0)

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with code {code}")
        if code in _TOO_MANY:
            self.detail = "该飞书应用的长连接已达上限（50 个），请停掉多余的实例"
        else:
            self.detail = f"飞书拒绝建立长连接（错误码 {code}），请核对 app-id 与 app-secret，并确认应用已启用长连接"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect. The address is a secret: it holds the ticket."""

    url: URL
    service: int
    ping_interval: float

    def __repr__(self) -> str:
        return f"Endpoint(service={self.service}, ping_interval={self.ping_interval:g})"


def ping_interval(config: Object, default: float) -> float:
    """`PingInterval` of a ClientConfig in seconds, kept between 1 s and 10 min; `default` where it is missing."""
    seconds = int_at(config, "PingInterval", 0)
    return float(min(seconds, 600)) if seconds >= 1 else default


async def ask_endpoint(api: FeishuApi, settings: FeishuSettings) -> Endpoint:
    """Asks once, bounded in time. Raises ConnectFailed, ConnectRefused."""
    body = {"AppID": settings.app_id, "AppSecret": settings.app_secret.get_secret_value()}
    try:
        answer = await api.post(_PATH, body)
    except ApiError as error:
        if error.code <= 0 or error.remedy in (Remedy.ASK_AGAIN, Remedy.WAIT_APP):
            raise ConnectFailed(str(error)) from error
        raise ConnectRefused(error.code) from error
    data = object_at(answer, "data")
    try:
        url = URL(text_at(data, "URL"))
    except ValueError as error:
        raise ConnectFailed("endpoint answer with a bad address") from error
    if url.scheme not in ("ws", "wss") or not url.host:
        raise ConnectFailed("endpoint answer without an address")
    service = url.query.get("service_id", "")
    return Endpoint(
        url,
        int(service) if service.isascii() and service.isdigit() and len(service) < 11 else 0,
        ping_interval(object_at(data, "ClientConfig"), 120.0),
    )


def refused_handshake(reason: str, told: Mapping[str, str]) -> ConnectFailed:
    """What the headers `Handshake-Autherrcode` and `Handshake-Status` of a refused handshake mean."""
    code = told.get("Handshake-Autherrcode") or told.get("Handshake-Status") or ""
    if code.isascii() and code.isdigit() and len(code) < 12:
        return ConnectRefused(int(code))
    return ConnectFailed(reason)
