"""People who write on every platform at once, without pause, while the gateway comes and goes.

Each platform delivers as it is documented to: Feishu and DingTalk until they are told 200, 公众号 three times, WeCom
once. Nobody says the next thing before the last one was taken or given up, so that there is an order to keep.
"""

import abc
import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp import web

from gateway.config.texts import DEFAULTS
from tests.faults.record import FETCH, Message, Record, Shown, text_of
from tests.platforms.dingtalk_gateway import BOT_TOPIC, FakeDingTalk, chat_data
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.wechat_platform import WeChatPlatform, message_xml
from tests.platforms.wecom_bot import FakeWeComBot
from tests.scenarios.gateway import ENCRYPT_KEY, Gateway, id_of, shown

GONE = (aiohttp.ClientError, ConnectionError, TimeoutError, IndexError, RuntimeError)
"""What a delivery ends in when nobody takes it; the last two: the stand-in has no connection to push on."""

_AGAIN_SECONDS = 0.05


class Person(abc.ABC):
    """One person on one platform."""

    once: ClassVar[bool] = False
    silent: ClassVar[bool] = False

    def __init__(self, number: int, record: Record, rng: random.Random, pause: Callable[[], float]) -> None:
        self.number = number
        self.record = record
        self.rng = rng
        self.pause = pause
        self.count = 0
        self.end = asyncio.Event()
        if self.once:
            record.once.add(number)
        if self.silent:
            record.silent.add(number)

    @property
    def name(self) -> str:
        """What the platform calls this person."""
        return f"p{self.number:02d}"

    async def write(self) -> None:
        """Says one thing after the other, until `end`."""
        while not self.end.is_set():
            self.count += 1
            await self.say(text_of(self.number, self.count))
            await asyncio.sleep(self.pause())

    @abc.abstractmethod
    async def say(self, text: str) -> None:
        """Says it, and waits until it is taken or given up."""

    def noted(self, text: str, number: str = "") -> Message:
        """Puts it on the record before it is said."""
        message = Message(self.number, text, number)
        self.record.messages.append(message)
        return message

    def tell(self, text: str, what: str) -> None:
        """What became of one try to say it."""
        self.record.story[text].append(f"{time.time() % 1000:.2f} {what}")

    def see(self, text: str, about: str = "") -> None:
        """This person is shown something."""
        self.record.shown.append(Shown(self.number, text, about))


class _Persistent(Person):
    """On a platform that delivers until it is told that the message was taken."""

    async def say(self, text: str) -> None:
        payload, number = self.payload(text)
        message = self.noted(text, number)
        while not await self._delivered(payload):
            if self.end.is_set():
                return
            await asyncio.sleep(_AGAIN_SECONDS)
        message.acknowledged = True
        if self.rng.random() < 0.1:
            await self._delivered(payload)

    async def _delivered(self, payload: Any) -> bool:
        with contextlib.suppress(*GONE):
            async with asyncio.timeout(2.0):
                return await self.deliver(payload)
        return False

    @abc.abstractmethod
    def payload(self, text: str) -> tuple[Any, str]:
        """What is delivered, and the number of the message."""

    @abc.abstractmethod
    async def deliver(self, payload: Any) -> bool:
        """Delivers once; whether it was acknowledged."""


class OnFeishu(_Persistent):
    """By webhook."""

    once = True

    def __init__(self, fake: FakeFeishu, gateway: Gateway, *given: Any) -> None:
        super().__init__(*given)
        self.fake = fake
        self.gateway = gateway

    def payload(self, text: str) -> tuple[Any, str]:
        event = message_event(text, open_id="ou_" + self.name, chat_id="oc_" + self.name, app_id=self.fake.app_id)
        return event, id_of(event)

    async def deliver(self, payload: Any) -> bool:
        status, _, _ = await self.fake.post_webhook(self.gateway.url("/feishu"), payload, encrypt_key=ENCRYPT_KEY)
        return bool(status == 200)


class OnFeishuConnection(OnFeishu):
    """By long connection."""

    async def deliver(self, payload: Any) -> bool:
        ack = await self.fake.push(payload, timeout=1.5)
        return ack is not None and ack.code == 200


def look_at_feishu(fake: FakeFeishu, record: Record) -> None:
    """What people in Feishu see."""
    people = {message.number: message.person for message in record.messages if message.number}
    record.shown += [Shown(people[each.asked], each.text, each.asked) for each in shown(fake)]


class SeeingDingTalk(FakeDingTalk):
    """Keeps what people see: (conversation's session or staff id, text)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    async def _session(self, request: web.Request) -> web.StreamResponse:
        answer = await super()._session(request)
        assert isinstance(answer, web.Response)
        if answer.status == 200 and json.loads(answer.text or "{}").get("errcode") == 0:
            self.seen.append((request.query.get("session", ""), (await request.json())["markdown"]["text"]))
        return answer

    async def _api(self, request: web.Request) -> web.StreamResponse:
        answer = await super()._api(request)
        if answer.status == 200:
            body = await request.json()
            self.seen.append((body["userIds"][0], json.loads(body["msgParam"])["text"]))
        return answer


class OnDingTalk(_Persistent):
    """By stream."""

    def __init__(self, fake: SeeingDingTalk, *given: Any) -> None:
        super().__init__(*given)
        self.fake = fake
        self.sessions: dict[str, str] = {}

    def payload(self, text: str) -> tuple[Any, str]:
        data = chat_data(text, base=self.fake.base, conversation=f"cid{self.name}==", staff=self.name)
        (session,) = parse_qs(urlsplit(data["sessionWebhook"]).query)["session"]
        self.sessions[session] = data["msgId"]
        return data, data["msgId"]

    async def deliver(self, payload: Any) -> bool:
        number = await self.fake.push(self.fake.frame("CALLBACK", BOT_TOPIC, payload))
        while not (acks := self.fake.acks_of(number)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return bool(acks[0].body["code"] == 200)


def look_at_dingtalk(fake: SeeingDingTalk, people: list[OnDingTalk]) -> None:
    """What people in DingTalk see."""
    for where, text in fake.seen:
        (person,) = (each for each in people if where in each.sessions or where == each.name)
        person.see(text, person.sessions.get(where, ""))


class OnWeChat(Person):
    """In a 公众号 without 客服消息: three deliveries, and what does not come in time is fetched."""

    def __init__(self, platform: WeChatPlatform, *given: Any) -> None:
        super().__init__(*given)
        self.platform = platform

    async def say(self, text: str) -> None:
        await self.ask(text)
        if self.rng.random() < 0.2:
            await self.ask(FETCH)

    async def ask(self, text: str) -> str | None:
        """Says it; what is shown ("" for nothing), None when the platform told that the account is out of order."""
        number = self.platform.new_id()
        message = self.noted(text, f"{self.name}:{number}")
        xml = message_xml(self.name, Content=text, MsgId=number)
        for _ in range(3):
            try:
                delivered = await self.platform.deliver(xml)
            except GONE as error:
                self.tell(text, type(error).__name__)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self.tell(text, f"{delivered.status} {delivered.text!r} after {delivered.took:.2f} s")
            if delivered.cut:
                continue
            if delivered.status != 200:  # refused, for the clock is wrong
                await asyncio.sleep(_AGAIN_SECONDS)
                return None
            message.acknowledged = True
            self.see(delivered.text)
            return delivered.text
        return None

    async def fetch(self) -> None:
        """Says 继续 until nothing waits any more."""
        for _ in range(60):
            text = await self.ask(FETCH)
            if text == f"答复：{FETCH}":  # with a hint behind it, it is one that waited, and not the last
                return
            await asyncio.sleep(0.05 if text != DEFAULTS["later"] else 0.2)
        raise AssertionError(f"{self.name} fetches without end")


class OnWeCom(Person):
    """At a 智能机器人: one delivery, no acknowledgement but the first frame of its answer."""

    def __init__(self, fake: FakeWeComBot, *given: Any) -> None:
        super().__init__(*given)
        self.fake = fake
        self.said: dict[str, Message] = {}

    async def say(self, text: str) -> None:
        while not self.fake.connected:
            if self.end.is_set():
                return
            await asyncio.sleep(_AGAIN_SECONDS)
        number = f"m{self.number}-{self.count}"
        message = self.noted(text, number)
        try:
            req_id = await self.fake.says(text, self.name, msgid=number)
        except GONE:
            return
        self.said[req_id] = message
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while not self.fake.streams(req_id):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


def look_at_wecom(fake: FakeWeComBot, people: list[OnWeCom]) -> None:
    """What people at the bot see, and what was acknowledged by it."""
    by_req_id = {req_id: (person, message) for person in people for req_id, message in person.said.items()}
    by_name = {person.name: person for person in people}
    for frame in fake.taken:
        body = frame.get("body", {})
        if frame["cmd"] == "aibot_send_msg":
            by_name[body["chatid"]].see(body["markdown"]["content"])
        elif frame["cmd"] == "aibot_respond_msg":
            person, message = by_req_id[frame["headers"]["req_id"]]
            content = body["stream"]["content"]
            message.acknowledged = message.acknowledged or content != DEFAULTS["not-taken"]
            if body["stream"]["finish"]:
                person.see(content, message.number)


class OnWeb(Person):
    """In the web chat: whoever loses the stream finds the answer in the conversation."""

    silent = True

    def __init__(self, gateway: Gateway, *given: Any) -> None:
        super().__init__(*given)
        self.gateway = gateway

    async def say(self, text: str) -> None:
        message = self.noted(text)
        with contextlib.suppress(*GONE, AssertionError):
            async with asyncio.timeout(8.0), contextlib.aclosing(self.gateway.stream(self.name, text)) as events:
                async for name, data in events:
                    message.acknowledged = True
                    if name in ("done", "error"):
                        self.see(data.get("text") or data["message"])
                        return
