"""公众号 for the suite, with 客服消息: safe and plain mode."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pytest

from channels import calls
from channels.wechat import active
from tests.channels.conformance.platform import Payload, Request, Webhook, ago, flipped
from tests.platforms.tcp_proxy import TcpProxy
from tests.platforms.wechat_platform import (
    AES_KEY,
    APP_ID,
    APP_SECRET,
    SEND,
    TOKEN,
    WeChatPlatform,
    encrypt,
    envelope,
    message_xml,
    sign,
)

NONCE = "1320562132"


class _WeChat(Webhook):
    kind = "wechat"
    secrets = ("app-id", "app-secret", "token")
    part_bytes = 2048
    safe = True

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.fake = await stack.enter_async_context(WeChatPlatform(safe=self.safe))
            self.proxy = await stack.enter_async_context(TcpProxy(int(self.fake.base.rpartition(":")[2])))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def entry(self) -> dict[str, Any]:
        secrets = {"app-id": APP_ID, "app-secret": APP_SECRET, "token": TOKEN, "encoding-aes-key": AES_KEY}
        mode = "safe" if self.safe else "plain"
        return {"enabled": True, "mode": mode, "active-send": "on", **secrets, "api-base-url": self.proxy.base}

    def message(self, text: str, number: str, user: str = "u1") -> Payload:
        digits = str(7_000_000_000_000_000_000 + sum(ord(each) * 131**at for at, each in enumerate(number)) % 10**9)
        return message_xml(user, Content=text, MsgId=int(digits))

    def request(self, payload: Payload, at: float | None = None) -> Request:
        stamp = str(int(ago(0) if at is None else at))
        if not self.safe:
            return Request("/wechat", payload.encode(), query=list(self._query(stamp).items()))
        encrypted = encrypt(payload)
        return self._encrypted(encrypted, stamp)

    def _query(self, stamp: str, *covered: str) -> dict[str, str]:
        given = {"signature": sign(TOKEN, stamp, NONCE), "timestamp": stamp, "nonce": NONCE, "openid": "u1"}
        if covered:
            given |= {"encrypt_type": "aes", "msg_signature": sign(TOKEN, stamp, NONCE, *covered)}
        return given

    def _encrypted(self, encrypted: str, stamp: str) -> Request:
        return Request("/wechat", envelope(encrypted).encode(), query=list(self._query(stamp, encrypted).items()))

    def forgeries(self) -> Mapping[str, Request]:
        forged = self.message("伪造", "forged")
        right, name = self.request(forged), "msg_signature" if self.safe else "signature"
        query = dict(right.query)
        moved = {"timestamp": query["timestamp"] + NONCE[0], "nonce": NONCE[1:]}
        back = {"timestamp": query["timestamp"][:-1], "nonce": query["timestamp"][-1] + NONCE}
        return {
            "wrong signature": right.with_query(**{name: "0" * 40}),
            "no signature": right.with_query(**{name: None}),
            "empty signature": right.with_query(**{name: ""}),
            "signature not ASCII": right.with_query(**{name: "é" * 40}),
            "no query": Request("/wechat", right.body),
            "signed with an empty token": right.with_query(**{name: sign("", query["timestamp"], NONCE)}),
            "stale": self.request(forged, ago(700)),
            "from the future": self.request(forged, ago(-700)),
            "timestamp no number": right.with_query(timestamp="x"),
            "digit moved to the timestamp": right.with_query(**moved),
            "digit moved to the nonce": right.with_query(**back),
            "a parameter twice": Request("/wechat", right.body, query=[*right.query, ("timestamp", "1")]),
            "the signature twice": Request("/wechat", right.body, query=[*right.query, (name, query[name])]),
            "over the limit": Request("/wechat", b"x" * (70 << 10), query=right.query),
        }

    def events(self) -> Sequence[Payload]:
        return (
            message_xml("u1", "event", Event="LOCATION", Latitude="1", Longitude="2"),
            message_xml("u1", "event", Event="VIEW", EventKey="https://h"),
            message_xml("u1", "event", Event="user_hologram_event"),
            message_xml("u1", "event"),
            message_xml("u1", "text", FromUserName=None, Content="x", MsgId=1),
            "<xml><a></xml>",
            "",
        )

    def unreadable(self) -> Sequence[Payload]:
        return (
            message_xml("u1", "hologram", MsgId=7100000000000000001),
            message_xml("u1", "image", PicUrl="http://h", MediaId="m", MsgId=7100000000000000002),
            message_xml("u1", "text", Content="\u200b", MsgId=7100000000000000003),
        )

    def answers(self) -> list[str]:
        return [call.text for call in self.fake.sent]

    @property
    def tries(self) -> int:
        return len(self.fake.of(SEND))

    def fail_next(self, how: str) -> None:
        self.fake.errors.append({"limited": 45011, "busy": -1, "refused": 40003}[how])

    def hurry(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(active, "_LIMITED_SECONDS", 0.2)

    def impatient(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(calls, "TRY_SECONDS", 0.5)

    def expire_tokens(self) -> None:
        self.fake._tokens += 1

    def hang_next(self) -> None:
        self.fake.delay = 0.8
        asyncio.get_running_loop().call_later(0.6, setattr, self.fake, "delay", 0.0)

    def cut_next(self) -> None:
        self.proxy.cuts = 1


class WeChatSafe(_WeChat):
    name = "wechat-safe"
    secrets = (*_WeChat.secrets, "encoding-aes-key")

    def forgeries(self) -> Mapping[str, Request]:
        forged, stamp = self.message("伪造", "forged"), str(int(ago(0)))
        encrypted = encrypt(forged)
        right = self._encrypted(encrypted, stamp)
        return {
            **super().forgeries(),
            # B05: `signature` covers no body.
            "only the signature of plain mode": right.with_query(msg_signature=None),
            "the signature of plain mode instead": right.with_query(msg_signature=sign(TOKEN, stamp, NONCE)),
            "plain body": Request("/wechat", forged.encode(), query=list(self._query(stamp).items())),
            "plain body with all parameters": Request("/wechat", forged.encode(), query=right.query),
            "one byte changed": Request("/wechat", flipped(right.body), query=right.query),
            "another receiver": self._encrypted(encrypt(forged, receiver="wxother"), stamp),
            # B06
            "another key": self._encrypted(encrypt(forged, key="b" * 43), stamp),
            "no base64": self._encrypted("%%%", stamp),
            "too short": self._encrypted("AAAA", stamp),
        }


class WeChatPlain(_WeChat):
    name = "wechat-plain"
    safe = False
