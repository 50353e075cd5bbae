"""Asks WeChat whether a 公众号 can be used from here: its token, which tells about the address of this machine as well."""

import time

from channels.access_token import TokenError, TokenRefused
from channels.health import Troubles
from channels.probe import Probe, unreachable
from channels.wechat.api import WeChatApi
from channels.wechat.settings import WeChatSettings

_CALLBACK = "回调地址须能从公网访问，请在微信公众平台的服务器配置中点「提交」验证"


async def probe(settings: WeChatSettings) -> Probe:
    """One token, as others hold it; none where answers go out as replies only."""
    if settings.active_send == "off":
        return Probe(True, f"active-send 为 off，不调用微信接口；{_CALLBACK}")
    troubles = Troubles("probe", time.time)
    api = WeChatApi(settings, troubles)
    try:
        await api.authorise()
    except TokenRefused:
        return Probe(False, troubles.health().detail)
    except TokenError as error:
        return unreachable("微信", settings.api_base_url, str(error), "api-base-url")
    finally:
        await api.close()
    return Probe(True, f"凭证有效，本机 IP 可以调用接口；{_CALLBACK}")
