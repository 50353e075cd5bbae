"""A DingTalk channel on a stand-in platform, with a recorder in place of the gateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from channels.dingtalk.channel import DingTalkChannel
from channels.dingtalk.robot_message import Robot, read_message
from channels.dingtalk.settings import DingTalkSettings
from channels.message import InboundMessage
from tests.channels.feishu_recorder import Recorder
from tests.platforms.dingtalk_gateway import FakeDingTalk, chat_data

ROBOT = Robot(entry="dingtalk", client_id="dingfakeappkey", account="dingfakeappkey")


def settings(ding: FakeDingTalk, mode: str = "stream", **more: object) -> DingTalkSettings:
    return DingTalkSettings.model_validate(
        {
            "enabled": True,
            "mode": mode,
            "client-id": ding.client_id,
            "client-secret": ding.client_secret,
            "api-base-url": ding.base,
            "oapi-base-url": ding.base,
            **more,
        }
    )


def channel(ding: FakeDingTalk, recorder: Recorder, mode: str = "stream", **more: object) -> DingTalkChannel:
    return DingTalkChannel("dingtalk", settings(ding, mode, **more), recorder.accept)


def asked(text: str | None = "你好", *, base: str = "http://127.0.0.1:9", **over: object) -> InboundMessage:
    """The message that the platform's data becomes."""
    message = read_message(chat_data(text, base=base, **over), ROBOT)
    assert message is not None
    return message


@contextlib.asynccontextmanager
async def running(made: DingTalkChannel) -> AsyncIterator[DingTalkChannel]:
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await made.stop_receiving()
        await asyncio.wait_for(task, 30)
        await made.close()
