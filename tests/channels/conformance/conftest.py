"""Each platform in each of its modes, before the whole gateway in this process."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from gateway import outbox
from tests.channels.conformance.dingtalk import DingTalkHttp, DingTalkStream
from tests.channels.conformance.feishu import FeishuConnection, FeishuWebhook
from tests.channels.conformance.platform import Platform, Webhook
from tests.channels.conformance.wechat import WeChatPlain, WeChatSafe
from tests.channels.conformance.wecom import WeComConnection
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside

WEBHOOKS: list[type[Webhook]] = [FeishuWebhook, DingTalkHttp, WeChatSafe, WeChatPlain]
ALL: list[type[Platform]] = [*WEBHOOKS, FeishuConnection, DingTalkStream, WeComConnection]
SENDING: list[type[Platform]] = [FeishuWebhook, DingTalkHttp, WeChatSafe, WeComConnection]
"""One mode each: answers go the same way in all of them."""

Open = Callable[[Platform], AbstractAsyncContextManager[Inside]]


def named(kind: type[Platform]) -> str:
    return kind.name


@pytest.fixture
def opened(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractAsyncContextManager[tuple[Platform, Inside]]]:
    """`async with opened(kind) as (platform, gateway):`, the two connected."""

    @contextlib.asynccontextmanager
    async def open_(kind: type[Platform], **over: Any) -> AsyncIterator[tuple[Platform, Inside]]:
        monkeypatch.setattr(outbox, "_FIRST_PAUSE", 0.2)
        async with kind() as platform:
            settings = {"server": {"max-body-bytes": 65536}, "channels": {kind.kind: platform.entry()}, **over}
            async with Inside(tmp_path, model, settings) as gateway:
                await platform.connected()
                yield platform, gateway

    return open_
