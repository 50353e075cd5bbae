"""How each platform hands a person's message to what is measured: four ways, signed and encrypted as the platforms do."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.bench.platform import Platform
from tests.bench.wire import Client
from tests.platforms import dingtalk_gateway as dingtalk
from tests.platforms import feishu_server as feishu
from tests.platforms import wechat_platform as wechat

FEISHU_SECRETS = {"encrypt-key": "bench-encrypt-key", "verification-token": "bench-verification-token"}
FEISHU_APP, FEISHU_LONG_APP, DINGTALK_APP = "cli_bench", "cli_bench_long", "dingbench"
_JSON = "Content-Type: application/json\r\n"


@dataclass(frozen=True)
class Manners:
    """How a platform and its people behave.

    `patience`: seconds it waits for an acknowledgement; `again`: seconds until it delivers once more. One of the
    people at once is `cast` persons in turn, each replaced after `most` messages (0: never), because the platform
    takes no more of one chat: Feishu five replies a second, DingTalk twenty a minute.
    """

    patience: float
    again: float
    cast: int = 1
    most: int = 0

    def person(self, slot: int, number: int) -> str:
        """Who says message `number` (from 0) of this one of the people at once."""
        generation = number // (self.cast * self.most) if self.most else 0
        return f"u{slot}g{generation}c{number % self.cast}"


class Channel(Protocol):
    """One way. `name` is its entry in the config, `title` what the tables say."""

    name: str
    title: str
    manners: Manners

    @staticmethod
    def entry(base: str) -> Mapping[str, Any]:
        """What stands in the config of the product, with the platform at `base`."""
        ...

    async def ready(self, platform: Platform) -> None:
        """Returns when messages can be delivered."""
        ...

    async def deliver(self, platform: Platform, client: Client, person: str, tag: str, text: str) -> bool:
        """Delivers once; whether it was acknowledged. A reply in the acknowledgement goes to `arrived`. Raises OSError."""
        ...


class FeishuWebhook:
    """Encrypted and signed POST; the answer is a call."""

    name, title, manners = "feishu", "飞书 webhook", Manners(patience=3, again=15, cast=8)

    @staticmethod
    def entry(base: str) -> Mapping[str, Any]:
        app = {"app-id": FEISHU_APP, "app-secret": "secret"}
        return {"enabled": True, "mode": "webhook", **app, **FEISHU_SECRETS, "api-base-url": base}

    async def ready(self, platform: Platform) -> None:
        return

    async def deliver(self, platform: Platform, client: Client, person: str, tag: str, text: str) -> bool:
        key = FEISHU_SECRETS["encrypt-key"]
        body = json.dumps({"encrypt": feishu.encrypt(key, json.dumps(_feishu_event(FEISHU_APP, person, tag, text)))})
        stamp, nonce = str(int(time.time())), tag
        signature = feishu.sign(stamp, nonce, key, body.encode())
        headers = (
            f"{_JSON}X-Lark-Request-Timestamp: {stamp}\r\nX-Lark-Request-Nonce: {nonce}\r\n"
            f"X-Lark-Signature: {signature}\r\n"
        )
        status, _ = await client.post("/feishu", body.encode(), headers)
        return status == 200


class FeishuLongConnection:
    """A frame on the WebSocket; the answer is a call."""

    name, title, manners = "feishu-long", "飞书长连接", Manners(patience=3, again=15, cast=8)

    @staticmethod
    def entry(base: str) -> Mapping[str, Any]:
        app = {"kind": "feishu", "app-id": FEISHU_LONG_APP, "app-secret": "secret"}
        return {"enabled": True, "mode": "websocket", **app, "api-base-url": base}

    async def ready(self, platform: Platform) -> None:
        await platform.connected("feishu")

    async def deliver(self, platform: Platform, client: Client, person: str, tag: str, text: str) -> bool:
        event = json.dumps(_feishu_event(FEISHU_LONG_APP, person, tag, text)).encode()
        stamp = int(time.time() * 1000)
        head = {"type": "event", "message_id": tag, "trace_id": tag, "sum": 1, "seq": 0, "timestamp": stamp}
        frame = feishu.Frame(feishu.DATA, head, event).encode()
        await platform.push("feishu", tag, lambda socket: socket.send_bytes(frame))
        return True


class DingTalkLongConnection:
    """A frame on the WebSocket (Stream 模式); the answer goes to the session webhook of the message."""

    name, title, manners = "dingtalk", "钉钉长连接", Manners(patience=60, again=0, cast=8, most=8)

    @staticmethod
    def entry(base: str) -> Mapping[str, Any]:
        app = {"client-id": DINGTALK_APP, "client-secret": "secret"}
        return {"enabled": True, "mode": "stream", **app, "api-base-url": base, "oapi-base-url": base}

    async def ready(self, platform: Platform) -> None:
        await platform.connected("dingtalk")

    async def deliver(self, platform: Platform, client: Client, person: str, tag: str, text: str) -> bool:
        data = dingtalk.chat_data(
            text, base=platform.base, conversation=f"cid{person}==", staff=person, msgId=f"msg{tag}"
        )
        frame = json.dumps(dingtalk.FakeDingTalk.frame("CALLBACK", dingtalk.BOT_TOPIC, data, tag))
        await platform.push("dingtalk", tag, lambda socket: socket.send_str(frame))
        return True


class WeChatPassive:
    """Encrypted and signed POST; the answer is the encrypted response."""

    name, title, manners = "wechat", "公众号被动回复", Manners(patience=5, again=0)

    @staticmethod
    def entry(base: str) -> Mapping[str, Any]:
        app = {"app-id": wechat.APP_ID, "token": wechat.TOKEN, "encoding-aes-key": wechat.AES_KEY}
        return {"enabled": True, "mode": "safe", "active-send": "off", **app, "api-base-url": base}

    async def ready(self, platform: Platform) -> None:
        return

    async def deliver(self, platform: Platform, client: Client, person: str, tag: str, text: str) -> bool:
        sealed = wechat.encrypt(wechat.message_xml(person, Content=text, MsgId=int(tag[1:-1], 16)))
        stamp = str(int(time.time()))
        signature, signed = wechat.sign(wechat.TOKEN, stamp, tag), wechat.sign(wechat.TOKEN, stamp, tag, sealed)
        query = f"signature={signature}&timestamp={stamp}&nonce={tag}&encrypt_type=aes&msg_signature={signed}"
        body = wechat.envelope(sealed).encode()
        status, answer = await client.post(f"/wechat?{query}", body, "Content-Type: text/xml\r\n")
        if b"<Encrypt>" in answer:
            inner = answer.split(b"<Encrypt>", 1)[1].split(b"</Encrypt>", 1)[0]
            plain, _ = wechat.decrypt(inner.removeprefix(b"<![CDATA[").removesuffix(b"]]>").decode())
            platform.arrived(plain.encode())
        return status == 200


def _feishu_event(app: str, person: str, tag: str, text: str) -> dict[str, Any]:
    event: dict[str, Any] = feishu.message_event(
        text,
        open_id=f"ou_{person}",
        chat_id=f"oc_{person}",
        message_id=f"om_{tag}",
        event_id=f"ev_{tag}",
        token=FEISHU_SECRETS["verification-token"],
        app_id=app,
    )
    return event


CHANNELS: tuple[Channel, ...] = (FeishuWebhook(), WeChatPassive(), FeishuLongConnection(), DingTalkLongConnection())
