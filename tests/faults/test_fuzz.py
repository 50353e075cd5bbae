"""Whatever comes in by any door: no 5xx, no exception nobody caught, nothing taken that is not authentic.

`INPUTS` sets how many inputs there are, `SEED` repeats a run; both are printed. What is signed is signed after it was
changed as well, for that goes deepest.
"""

import asyncio
import contextlib
import copy
import json
import logging
import os
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.dingtalk.frame import acknowledgement, read_frame
from channels.dingtalk.robot_message import Robot, read_message
from channels.feishu.events import Bot as FeishuBot
from channels.feishu.events import read_event
from channels.feishu.frame import Frame, FrameError
from channels.message import Admission, InboundMessage
from channels.wechat import passive
from channels.wechat.events import Account
from channels.wechat.events import read_message as read_wechat
from channels.wecom import exchange
from channels.wecom.events import Bot as WeComBot
from channels.wecom.events import read_callback
from channels.wecom.frame import decode
from channels.xml_values import BadXml, read_fields
from gateway.intake import Intake
from gateway.storage.stored_message import as_json, from_json
from tests.channels.conformance.platform import Request
from tests.faults.mutation import Mutator, written
from tests.platforms.dingtalk_gateway import BOT_TOPIC, FakeDingTalk, chat_data, signed_headers
from tests.platforms.feishu_server import FakeFeishu, encrypt, message_event, sign
from tests.platforms.feishu_server import Frame as FeishuFrame
from tests.platforms.model_server import ModelServer
from tests.platforms.wechat_platform import AES_KEY, APP_ID, APP_SECRET, TOKEN, WeChatPlatform, envelope, message_xml
from tests.platforms.wechat_platform import encrypt as wechat_encrypt
from tests.platforms.wechat_platform import sign as wechat_sign
from tests.platforms.wecom_bot import FakeWeComBot
from tests.scenarios.gateway import ENCRYPT_KEY, Inside, feishu_entry
from tests.scenarios.gateway import TOKEN as CONSOLE_TOKEN
from tests.waiting import until

INPUTS = int(os.environ.get("INPUTS", "400"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
GROWTH_MIB = 150
"""How much memory all inputs together may take: caches fill, and then nothing grows."""

KINDS = ("application/json", "application/json", "application/x-www-form-urlencoded", "x/y", "")
KINDS += (
    "application/x-www-form-urlencoded; charset=hologram",
    "application/json; charset=utf-7",
    "multipart/form-data",
)

_EXPECTED = re.compile(r"^(?:answer (?:refused|given up)|delivery failed|feishu_not_sent|token )")
"""What is rightly called an error: answers to people that do not exist."""


class Doors:
    """A gateway with every platform on every way in, and what was taken by it."""

    def __init__(self, gateway: Inside, session: aiohttp.ClientSession, rng: random.Random) -> None:
        self.gateway, self.session, self.rng = gateway, session, rng
        self.mutator = Mutator(rng)
        self.taken: list[InboundMessage] = []
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.count = 0

    async def post(self, kind: str, request: Request, *, authentic: bool, console: bool = False) -> None:
        """Sends it. What is not authentic is refused, and nothing of it taken."""
        before, base = len(self.taken), self.gateway.console("") if console else self.gateway.url("")
        status = 0
        try:
            async with self.session.request(
                request.method, base + request.path, params=request.query, data=request.body, headers=request.headers
            ) as response:
                status = response.status
                await response.read()
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            pass
        except aiohttp.ClientResponseError as error:
            if "Got more than" not in error.message:
                raise
            status = error.status  # a line too long in several pieces is refused once for each
        self.statuses[kind, status] += 1
        assert status < 500, (kind, status, request)
        if not authentic:
            assert 400 <= status < 500, (kind, status, request)
            assert len(self.taken) == before, (kind, request, self.taken[-1])

    # ---- Feishu

    def feishu_event(self) -> dict[str, Any]:
        return message_event(f"飞书{self.count}", open_id=f"ou_{self.count % 50}", chat_id=f"oc_{self.count % 50}")

    async def feishu(self) -> None:
        event, stamp, nonce = self.feishu_event(), str(int(time.time())), "n1"
        way = self.rng.randrange(4)
        inner = written(self.mutator.value(event)) if way == 0 else json.dumps(event)
        plain = self.mutator.bytes(inner.encode()).decode("latin-1") if way == 1 else inner
        body = json.dumps({"encrypt": encrypt(ENCRYPT_KEY, plain)}).encode()
        if way == 2:
            body = self.mutator.bytes(body)
        signature = sign(stamp, nonce, ENCRYPT_KEY, body)
        headers = {"X-Lark-Request-Timestamp": stamp, "X-Lark-Request-Nonce": nonce, "X-Lark-Signature": signature}
        request = Request("/feishu", body, {"Content-Type": "application/json", **headers})
        await self.post("feishu", self._forged(request, all_of_it=True) if way == 3 else request, authentic=way != 3)

    def _forged(self, request: Request, *, all_of_it: bool) -> Request:
        """Changed after it was signed: in a header or, where the signature covers it, in the body."""
        if all_of_it and self.rng.random() < 0.6:
            body = self.mutator.bytes(request.body)
            return Request(request.path, body + b" " * (body == request.body), request.headers, request.query)
        name = self.rng.choice([name for name in request.headers if name != "Content-Type"])
        value = request.headers[name]
        changed = self.rng.choice(("", value[:-1], value + "0", value[1:], value[::-1] + "x", "0", "é", "9" * 200))
        return request.with_headers(**{name.replace("-", "_"): changed})

    # ---- DingTalk

    def dingtalk_data(self) -> dict[str, Any]:
        user = f"s{self.count % 50}"
        return chat_data(f"钉钉{self.count}", base="http://127.0.0.1:9", conversation=f"cid{user}", staff=user)

    async def dingtalk(self) -> None:
        way, data = self.rng.randrange(3), self.dingtalk_data()
        body = written(self.mutator.value(data)).encode() if way == 0 else json.dumps(data).encode()
        request = Request("/dingtalk", self.mutator.bytes(body) if way == 1 else body, signed_headers("fake-secret"))
        await self.post("dingtalk", self._forged(request, all_of_it=False) if way == 2 else request, authentic=way != 2)

    # ---- 公众号

    def wechat_message(self) -> str:
        fields: dict[str, Any] = {"Content": f"微信{self.count}", "MsgId": 7_000_000_000 + self.count}
        kinds = ("text", "text", "image", "voice", "location", "link", "event", "hologram")
        kind = self.rng.choice(kinds)
        if self.rng.random() < 0.5:
            key = self.rng.choice(
                ("Content", "MsgId", "CreateTime", "Event", "EventKey", "Recognition", "FromUserName")
            )
            fields[key] = self.mutator.nasty()
        user = fields.pop("FromUserName", f"o{self.count % 50}")
        if self.rng.random() < 0.3:
            return written({"ToUserName": "gh", "FromUserName": user, "MsgType": kind, "CreateTime": 1, **fields})
        return message_xml(str(user), kind, **{name: str(value) for name, value in fields.items()})

    async def wechat(self) -> None:
        """Safe mode: only the ciphertext is covered."""
        way, stamp, nonce = self.rng.randrange(4), str(int(time.time())), "1320562132"
        message = self.wechat_message().encode("utf-8", "replace")
        encrypted = wechat_encrypt(self.mutator.bytes(message) if way == 0 else message)
        query = {"timestamp": stamp, "nonce": nonce, "msg_signature": wechat_sign(TOKEN, stamp, nonce, encrypted)}
        body = envelope(encrypted).encode()
        if way == 1:
            body = self.mutator.bytes(body)
        request = Request("/wechat", body, query=list(query.items()))
        if way == 2:
            name = self.rng.choice(list(query))
            request = request.with_query(
                **{name: self.rng.choice((None, "", query[name][:-1], query[name] + "1", "é"))}
            )
        # Bytes outside the ciphertext may change and it is authentic still; then it is as good as unchanged.
        await self.post("wechat", request, authentic=way != 2)

    async def wechat_plain(self) -> None:
        stamp, nonce = str(int(time.time())), "1320562132"
        query = {"timestamp": stamp, "nonce": nonce, "signature": wechat_sign(TOKEN, stamp, nonce)}
        message = self.wechat_message().encode("utf-8", "replace")
        body = self.mutator.bytes(message) if self.rng.random() < 0.5 else message
        if self.rng.random() < 0.2:
            query["signature"] = self.rng.choice(("", query["signature"][1:], "0" * 40, "é"))
            await self.post("plain", Request("/wechat/plain", body, query=list(query.items())), authentic=False)
        else:
            await self.post("plain", Request("/wechat/plain", body, query=list(query.items())), authentic=True)

    async def wechat_verification(self) -> None:
        stamp, nonce = str(int(time.time())), "n"
        query: dict[str, str] = {"timestamp": stamp, "nonce": nonce, "signature": wechat_sign(TOKEN, stamp, nonce)}
        name = self.rng.choice([*query, "echostr"])
        query = {**query, "echostr": "e", name: str(self.mutator.nasty())[:2000].encode("utf-8", "replace").decode()}
        request = Request("/wechat", b"", query=list(query.items()), method="GET")
        await self.post("verification", request, authentic=name == "echostr" or query[name] == stamp)

    # ---- the console

    async def console(self) -> None:
        """Any route, with what it takes or nearly so; without the right token nothing but the login is answered."""
        routes = [route for route in self.gateway.app._console.app.router.routes() if route.resource is not None]
        route = self.rng.choice(routes)
        assert route.resource is not None
        method = self.rng.choice((route.method, route.method, "POST", "GET")).replace("*", "GET")
        path = re.sub(r"\{[^}]*\}", lambda _: self._segment(), route.resource.canonical)
        sample: Any = {"user": f"w{self.count % 50}", "text": f"网页{self.count}", "group": None, "agent": None}
        if "chat" not in path:
            sample = {"user": "uwoeww436zpn2", "conversations": ["x"], "token": "t"}
        body = written(self.mutator.value(sample)).encode()
        body = self.mutator.bytes(body) if self.rng.random() < 0.3 else body
        names = ("before", "limit", "q", "user", "channel", "once", "id", "person", "conversation", "max_messages")
        query = [(self.rng.choice(names), self._word()) for _ in range(self.rng.randrange(3))]
        kind = self.rng.choice(KINDS)
        headers = {"Content-Type": kind, "Authorization": f"Bearer {CONSOLE_TOKEN}"}
        known = self.rng.random() < 0.8
        if not known:
            wrong = self.rng.choice(("", "Bearer", "Bearer x", f"Basic {CONSOLE_TOKEN}", f"Bearer {CONSOLE_TOKEN}x"))
            headers["Authorization"] = wrong
        free = not known and (path.startswith("/login") or path.startswith("/static") or path == "/")
        request = Request(path, b"" if method == "GET" else body, headers, query, method)
        await self.post("console", request, authentic=known or free or method == "GET", console=True)

    def _word(self) -> str:
        return str(self.mutator.nasty())[:3000].encode("utf-8", "replace").decode()

    def _segment(self) -> str:
        ids = ("uwoeww436zpn2:web:851959977486:0:general-agent", "x", "..%2f..", "%00", "%ff", "a" * 3000, "日", "1")
        return self.rng.choice(ids)

    # ---- below HTTP

    async def raw(self) -> None:
        """Bytes that are HTTP only nearly."""
        sample = (
            b"POST /feishu HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        console = self.rng.random() < 0.5
        port = self.gateway.console_port if console else self.gateway.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(self.mutator.bytes(sample))
            writer.write_eof()
            async with asyncio.timeout(30):
                line = await reader.readline()
            assert not re.match(rb"HTTP/1\.[01] 5(?!05)", line), line
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def opened(root: Path, model: ModelServer, rng: random.Random, **more: Any) -> AsyncIterator[Doors]:
    """The gateway, answered by the offline model."""
    async with contextlib.AsyncExitStack() as stack:
        feishu, wechat = (
            await stack.enter_async_context(FakeFeishu()),
            await stack.enter_async_context(WeChatPlatform()),
        )
        account = {"app-id": APP_ID, "app-secret": APP_SECRET, "token": TOKEN, "encoding-aes-key": AES_KEY}
        wechat_entry = {"enabled": True, **account, "active-send": "on", "api-base-url": wechat.base}
        over = {
            "models": {"main": {"provider": "demo"}},
            "channels": {
                "feishu": feishu_entry(feishu),
                "dingtalk": {"enabled": True, "mode": "http", "client-id": "d", "client-secret": "fake-secret"},
                "wechat": wechat_entry,
                "plain": {**wechat_entry, "kind": "wechat", "mode": "plain", "active-send": "off"},
                **more,
            },
        }
        gateway = await stack.enter_async_context(Inside(root, model, over))
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        yield Doors(gateway, session, rng)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[InboundMessage]:
    """Every message that a channel handed over; each one can be stored and read again."""
    found: list[InboundMessage] = []
    accept = Intake.accept

    async def seen(self: Intake, message: InboundMessage) -> Admission:
        found.append(message)
        assert from_json(as_json(message)).lane == message.lane
        return await accept(self, message)

    monkeypatch.setattr(Intake, "accept", seen)
    monkeypatch.setattr(passive, "TIMES", passive.Times(hold=0.05, join=0.05))
    return found


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines that speak of an exception nobody thought of."""
    return [
        f"{record.name}: {record.getMessage()} {record.exc_info and record.exc_info[1]!r}"
        for record in caplog.records
        if record.levelno >= logging.ERROR and not _EXPECTED.match(record.getMessage())
    ]


@pytest.mark.timeout(60 + INPUTS // 50)
async def test_every_webhook_and_route(
    tmp_path: Path, model: ModelServer, taken: list[InboundMessage], caplog: pytest.LogCaptureFixture
) -> None:
    print(f"SEED={SEED} INPUTS={INPUTS}")
    caplog.set_level(logging.ERROR)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logging.error("loop: %s", context))
    rng = random.Random(SEED)
    async with opened(tmp_path, model, rng) as doors:
        doors.taken = taken
        ways: list[Callable[[], Awaitable[None]]] = [
            *(doors.feishu, doors.dingtalk, doors.wechat, doors.wechat_plain, doors.console, doors.console),
            *(doors.wechat_verification, doors.raw),
        ]
        memory, begun = 0, time.monotonic()
        for doors.count in range(INPUTS):
            await rng.choice(ways)()
            if doors.count == INPUTS // 5:
                memory = psutil.Process().memory_info().rss >> 20
            del taken[:-1]
        grown = (psutil.Process().memory_info().rss >> 20) - memory
        assert await answers(doors), "it still answers"
    print(f"{time.monotonic() - begun:.0f} s, {grown} MiB more, {dict(sorted(doors.statuses.items()))}")
    assert errors(caplog) == []
    assert grown < GROWTH_MIB


async def answers(doors: Doors) -> bool:
    """Whether an ordinary question is answered."""
    return bool((await doors.gateway.chat("web-user", "我还能问吗")).text)


@pytest.mark.timeout(60 + INPUTS // 100)
async def test_every_long_connection(
    tmp_path: Path,
    model: ModelServer,
    taken: list[InboundMessage],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames changed at any depth; after them the same connection still takes a message."""
    print(f"SEED={SEED} INPUTS={INPUTS}")
    caplog.set_level(logging.ERROR)
    rng = random.Random(SEED + 1)
    monkeypatch.setattr(exchange, "ACK_SECONDS", 60.0)  # a busy machine is no reason to leave
    async with FakeFeishu(app_id="cli_far") as feishu, FakeDingTalk() as ding, FakeWeComBot() as wecom:
        secrets = {"client-id": ding.client_id, "client-secret": ding.client_secret}
        entries = {
            "far": feishu_entry(feishu, "websocket", kind="feishu"),
            "ding": {"kind": "dingtalk", "enabled": True, **secrets, "api-base-url": ding.base},
            "wecom-bot": {"enabled": True, "bot-id": wecom.bot_id, "secret": wecom.secret, "websocket-url": wecom.url},
        }
        async with opened(tmp_path, model, rng, **entries) as doors:
            await feishu.wait_connected()
            feishu.client_config["PingInterval"] = 60
            await ding.wait_connected()
            await until(lambda: wecom.connected)
            for doors.count in range(INPUTS // 4):
                await frame_of_feishu(doors, feishu)
                await frame_of_dingtalk(doors, ding)
                await frame_of_wecom(doors, wecom)
                if doors.count % 50 == 0:  # they are read as fast as they are taken
                    await asyncio.sleep(0.01)
            await all_alive(doors, feishu, ding, wecom, taken)
            assert (feishu.counts["ws"], ding.total_connections, wecom.handshakes) == (1, 1, 1), "never torn down"
    assert errors(caplog) == []


async def frame_of_feishu(doors: Doors, feishu: FakeFeishu) -> None:
    event = doors.feishu_event()
    payload = written(doors.mutator.value(event)).encode()
    headers = {"type": "event", "message_id": str(doors.count), "sum": "1", "seq": "0"}
    if doors.rng.random() < 0.3:
        headers[doors.rng.choice(list(headers))] = str(doors.rng.choice((-1, 2, 10**20, "x", "", "é")))
    data = FeishuFrame(doors.rng.choice((1, 1, 0, 7)), headers, payload).encode()
    await feishu.send_raw(doors.mutator.bytes(data) if doors.rng.random() < 0.5 else data)


async def frame_of_dingtalk(doors: Doors, ding: FakeDingTalk) -> None:
    data, rng = doors.dingtalk_data(), doors.rng
    frame = ding.frame("CALLBACK", BOT_TOPIC, data if rng.random() < 0.5 else doors.mutator.value(data))
    text = written(doors.mutator.value(frame) if rng.random() < 0.5 else frame)
    if rng.random() < 0.3:
        text = doors.mutator.bytes(text.encode()).decode("utf-8", "replace")
    if '"disconnect"' not in text:
        await ding.send_raw(text)


async def frame_of_wecom(doors: Doors, wecom: FakeWeComBot) -> None:
    body = {"msgid": f"m{doors.count}", "chattype": "single", "from": {"userid": f"w{doors.count % 50}"}}
    body |= {"msgtype": "text", "text": {"content": f"企微{doors.count}"}}
    frame = {"cmd": "aibot_msg_callback", "headers": {"req_id": f"r{doors.count}"}, "body": body}
    text = written(doors.mutator.value(frame))
    if doors.rng.random() < 0.3:
        text = doors.mutator.bytes(text.encode()).decode("utf-8", "replace")
    if "disconnected_event" not in text:
        await wecom.raw(text)


async def all_alive(
    doors: Doors, feishu: FakeFeishu, ding: FakeDingTalk, wecom: FakeWeComBot, taken: list[InboundMessage]
) -> None:
    """An ordinary message by each connection is taken, behind all that still waits to be read."""
    before, patience = len(taken), 30 + INPUTS / 500
    ack = await feishu.push(message_event("还在吗", message_id="om_last", app_id="cli_far"), timeout=patience)
    assert ack is not None
    assert ack.code == 200
    number = await ding.say("还在吗", msgId="msg_last")
    await wecom.says("还在吗", msgid="m_last")
    await until(lambda: ding.acks_of(number), timeout=patience)
    last = {"om_last", "msg_last", "m_last"}
    await until(lambda: last <= {message.id for message in taken[before:]}, timeout=patience)


# ---- readers alone

_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_json = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))


@settings(deadline=None)
@given(st.randoms(use_true_random=False), _json)
def test_readers_take_any_json(rng: random.Random, other: Any) -> None:
    """Samples with anything in any place are a message, or none; never an exception."""
    mutator = Mutator(rng)
    mutator.nasty = lambda: copy.deepcopy(other)  # type: ignore[method-assign]
    robot = Robot(entry="d", client_id="c", account="a")
    read_message(mutator.value(chat_data("问", base="http://h", kind=rng.choice("12"))), robot, "f")
    bot = FeishuBot(entry="f", app_id="cli_test", account="a", group_policy="all")
    read_event(mutator.value(message_event("问", chat_type=rng.choice(("p2p", "group")))), bot)
    body = {"msgid": "m", "chattype": "group", "chatid": "c", "from": {"userid": "u"}, "msgtype": "text"}
    frame = decode(written(mutator.value({"cmd": "aibot_msg_callback", "headers": {"req_id": "r"}, "body": body})))
    if frame is not None:
        read_callback(frame, WeComBot(entry="w", account="a", user_account="a", name="助手", run="r"), 1.0)
    stream = read_frame(written(mutator.value(FakeDingTalk.frame("CALLBACK", BOT_TOPIC, {"x": 1}))))
    if stream is not None:
        json.loads(acknowledgement(stream))


@settings(deadline=None)
@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_readers_take_any_bytes(data: bytes, rng: random.Random) -> None:
    """Frames of protobuf and messages of XML: read, or refused as what they are not."""
    sample = FeishuFrame(1, {"type": "event", "message_id": "m"}, b"{}").encode()
    for each in (data, Mutator(rng).bytes(sample), sample + data):
        with contextlib.suppress(FrameError):
            frame = Frame.decode(each)
            assert Frame.decode(frame.encode()) == frame
    for each in (data, Mutator(rng).bytes(message_xml("o1", Content="问", MsgId=1).encode())):
        with contextlib.suppress(BadXml):
            read_wechat(read_fields(each), Account("w", "a"))
