"""Asks Feishu whether an app can be used from here: its token, its bot, and where to connect."""

import time

from channels.access_token import TokenError, TokenRefused
from channels.feishu.api import ApiError, FeishuApi
from channels.feishu.codes import ADMIN_REMEDIES
from channels.feishu.endpoint import ConnectFailed, ConnectRefused, ask_endpoint
from channels.feishu.settings import FeishuSettings
from channels.health import Troubles
from channels.probe import Probe, unreachable


async def probe(settings: FeishuSettings) -> Probe:
    """One token, one question about the bot and, in websocket mode, one about the address; nothing is connected."""
    troubles = Troubles("probe", time.time)
    api = FeishuApi(settings, troubles)

    def no_answer(error: Exception) -> Probe:
        return unreachable("飞书", settings.api_base_url, str(error), "api-base-url")

    try:
        await api.own_open_id()
        if settings.mode == "websocket":
            await ask_endpoint(api, settings)
    except (TokenRefused, ConnectRefused) as error:
        return Probe(False, error.detail if isinstance(error, ConnectRefused) else troubles.health().detail)
    except ApiError as error:
        if error.code in ADMIN_REMEDIES:
            return Probe(False, f"{ADMIN_REMEDIES[error.code]}（错误码 {error.code}）")
        if error.code <= 0:
            return no_answer(error)
        return Probe(
            False, f"取不到机器人的信息（错误码 {error.code}）；请在飞书开放平台为应用添加机器人能力并发布版本"
        )
    except (TokenError, ConnectFailed) as error:
        return no_answer(error)
    finally:
        await api.close()
    if settings.mode == "websocket":
        return Probe(True, "凭证有效，机器人可用，可以建立长连接")
    return Probe(True, "凭证有效，机器人可用；回调地址须能从公网访问，请在飞书开放平台的事件订阅页面点「保存」验证")
