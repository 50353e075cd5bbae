"""Our frames and messages against dingtalk-stream, which was written by others; and the stand-in against its client."""

import asyncio
import json
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from channels.dingtalk.frame import acknowledgement, read_frame
from channels.dingtalk.robot_message import read_message
from tests.channels.dingtalk_recorder import ROBOT, asked
from tests.platforms.dingtalk_gateway import FakeDingTalk, chat_data
from tests.waiting import until

BASE = "https://oapi.dingtalk.com"

CLIENT = """
import sys, websockets.exceptions, dingtalk_stream
class Echo(dingtalk_stream.ChatbotHandler):
    async def process(self, callback):
        print(dingtalk_stream.ChatbotMessage.from_dict(callback.data).text.content.strip(), flush=True)
        return dingtalk_stream.AckMessage.STATUS_OK, "OK"
client = dingtalk_stream.DingTalkStreamClient(dingtalk_stream.Credential(*sys.argv[1:]))
client.register_callback_handler(dingtalk_stream.ChatbotMessage.TOPIC, Echo())
client.start_forever()
"""


@pytest.fixture(scope="module")
def peer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dingtalk_stream import AckMessage, CallbackMessage, ChatbotMessage, SystemMessage
    return SimpleNamespace(Ack=AckMessage, Callback=CallbackMessage, Chat=ChatbotMessage, System=SystemMessage)


def test_our_acknowledgement_has_the_form_of_the_peers(peer: Any) -> None:
    frame = FakeDingTalk().chat("你好", frame_id="frame-1")
    theirs = peer.Callback.from_dict(frame)
    ack = peer.Ack()
    ack.code, ack.message, ack.data = 200, "OK", {"response": None}
    ack.headers.message_id, ack.headers.content_type = theirs.headers.message_id, "application/json"
    ours = read_frame(json.dumps(frame))
    assert ours is not None
    assert json.loads(acknowledgement(ours)) == ack.to_dict()
    assert (ours.id, ours.topic) == (theirs.headers.message_id, theirs.headers.topic)
    assert ours.message() == theirs.data


def test_a_ping_is_answered_as_the_peer_does(peer: Any) -> None:
    frame = FakeDingTalk().ping("op-7")
    ours = read_frame(json.dumps(frame))
    assert ours is not None
    assert json.loads(json.loads(acknowledgement(ours))["data"]) == peer.System.from_dict(frame).data


@pytest.mark.parametrize("kind", ["1", "2"])
def test_a_text_reads_as_the_peer_reads_it(peer: Any, kind: str) -> None:
    data = chat_data("帮我优化简历", base=BASE, kind=kind)
    theirs, ours = peer.Chat.from_dict(data), read_message(data, ROBOT)
    assert ours is not None
    assert ours.text == theirs.text.content.strip()
    assert ours.id == theirs.message_id
    assert ours.platform_user == theirs.sender_staff_id
    assert ours.name == theirs.sender_nick
    assert ours.reply["chat"] == theirs.conversation_id
    assert ours.reply["webhook"] == theirs.session_webhook
    assert int(ours.reply["webhook-ends"]) == theirs.session_webhook_expired_time
    assert ours.lane.group == (theirs.conversation_type == "2")


def test_rich_text_reads_as_the_peer_reads_it(peer: Any) -> None:
    pieces = [{"text": "看图 "}, {"type": "picture", "downloadCode": "dc1"}, {"text": "第二段"}]
    data = chat_data(None, base=BASE, msgtype="richText", content={"richText": pieces})
    theirs = peer.Chat.from_dict(data)
    ours = asked(None, msgtype="richText", content={"richText": pieces})
    assert ours.text.replace("[图片]", "") == "".join(theirs.get_text_list())
    assert ours.text.count("[图片]") == len(theirs.get_image_list())


async def test_the_stand_in_is_understood_by_the_platforms_own_client() -> None:
    async with FakeDingTalk() as ding:
        environment = {**os.environ, "DINGTALK_OPENAPI_ENDPOINT": ding.base, "NO_PROXY": "*"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "ignore",
            "-c",
            CLIENT,
            ding.client_id,
            ding.client_secret,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await ding.wait_connected(timeout=20)
            number = await ding.say("你好，同行", kind="2")
            assert process.stdout is not None
            assert (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip() == "你好，同行"
            await until(lambda: ding.acks_of(number))
            ping = await ding.push(ding.ping("op-7"))
            await until(lambda: ding.acks_of(ping))
            assert ding.acks_of(ping)[0].body["data"] == {"opaque": "op-7"}
        finally:
            process.kill()
            await process.wait()
