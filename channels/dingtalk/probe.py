"""Asks DingTalk whether an application can be used from here: its token and, for the long connection, where to connect."""

import time

from channels.access_token import TokenError, TokenRefused
from channels.dingtalk.api import ApiError, DingTalkApi
from channels.dingtalk.codes import PASSING
from channels.dingtalk.frame import SUBSCRIPTIONS
from channels.dingtalk.settings import DingTalkSettings
from channels.health import Troubles
from channels.probe import Probe, unreachable

_REFUSED_ADDRESS = "ipnotinwhitelist"


async def probe(settings: DingTalkSettings) -> Probe:
    """One token and, in stream mode, one ticket, which is not used; nothing is connected."""
    troubles = Troubles("probe", time.time)
    api = DingTalkApi(settings, troubles)
    try:
        await api.authorise()
        if settings.mode == "stream":
            await api.open_connection(SUBSCRIPTIONS)
    except (TokenRefused, ApiError) as error:
        return _failure(settings, error, troubles)
    except TokenError as error:
        return unreachable("钉钉", settings.api_base_url, str(error), "api-base-url")
    finally:
        await api.close()
    if settings.mode == "stream":
        return Probe(True, "凭证有效，可以建立 Stream 连接")
    return Probe(True, "凭证有效；请在开放平台把消息接收模式设为 HTTP 模式，地址须能从公网访问")


def _failure(settings: DingTalkSettings, error: TokenRefused | ApiError, troubles: Troubles) -> Probe:
    if _REFUSED_ADDRESS in str(error).lower():
        return Probe(False, f"本机 IP 不在钉钉应用的服务器出口 IP 内（{error}）；请在开放平台的「安全设置」中加入")
    if isinstance(error, TokenRefused):
        return Probe(False, troubles.health().detail)
    if error.remedy in PASSING:
        return unreachable("钉钉", settings.api_base_url, str(error), "api-base-url")
    return Probe(False, f"钉钉不允许建立 Stream 连接（{error}）；请确认应用已发布，机器人的消息接收模式为 Stream 模式")
