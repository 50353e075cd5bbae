"""Asks WeCom whether a connection can be made from here. It does not subscribe: that would throw out a running gateway."""

import aiohttp

from channels.probe import Probe, unreachable
from channels.wecom.settings import WeComBotSettings

_SECONDS = 8.0


async def probe(settings: WeComBotSettings) -> Probe:
    """One handshake, closed at once. The platform allows one subscribed connection for each bot."""
    if settings.mode == "webhook":
        return Probe(True, "回调模式不需要从本机连接；回调地址须能从公网访问")
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout) as session,
            session.ws_connect(settings.websocket_url, proxy=settings.proxy or None),
        ):
            pass
    except aiohttp.WSServerHandshakeError as error:
        return unreachable("企业微信", settings.websocket_url, f"status {error.status}", "websocket-url")
    except TimeoutError:
        return unreachable("企业微信", settings.websocket_url, f"no answer within {_SECONDS:g} s", "websocket-url")
    except (aiohttp.ClientError, OSError) as error:
        return unreachable("企业微信", settings.websocket_url, type(error).__name__, "websocket-url")
    return Probe(True, "可以建立长连接；bot-id 与 secret 在启动后核对（现在核对会挤掉正在运行的网关）")
