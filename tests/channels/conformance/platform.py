"""What the suite asks of a platform: deliver a message as it does, show what people see, forge, break."""

import abc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import aiohttp
import pytest

from tests.platforms.tcp_proxy import TcpProxy
from tests.scenarios.gateway import Gateway

Payload = Any
"""One message or event, in the platform's own form."""


@dataclass(frozen=True)
class Request:
    """One HTTP request of a platform that delivers by webhook."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Sequence[tuple[str, str]] = ()
    method: str = "POST"

    def with_query(self, **over: str | None) -> "Request":
        """With these parameters instead; None takes one out."""
        kept = [(name, value) for name, value in self.query if name not in over]
        return replace(self, query=[*kept, *((name, value) for name, value in over.items() if value is not None)])

    def with_headers(self, **over: str | None) -> "Request":
        """With these headers instead (``X_A`` is ``X-A``); None takes one out."""
        given = {name.replace("_", "-"): value for name, value in over.items()}
        lower = {name.lower() for name in given}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in lower}
        return replace(self, headers={**kept, **{name: value for name, value in given.items() if value is not None}})

    async def send(self, gateway: Gateway) -> tuple[int, str]:
        """Status and body of the answer; (0, "") when the connection was cut instead."""
        timeout = aiohttp.ClientTimeout(total=50)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    self.method, gateway.url(self.path), params=self.query, data=self.body, headers=self.headers
                ) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return 0, ""


class Platform(abc.ABC):
    """One platform in one mode. `async with`, then `entry` is what the config takes."""

    name: ClassVar[str]
    kind: ClassVar[str]
    secrets: ClassVar[tuple[str, ...]]
    """Keys of the entry without which nothing could be authentic."""
    part_bytes: ClassVar[int]
    """What one message may hold."""
    idempotent: ClassVar[bool] = False
    """Whether a part sent twice is seen once."""
    token_expires: ClassVar[bool] = True
    proxy: TcpProxy
    """Between the gateway and the platform."""

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(self, *exc: object) -> None: ...

    @abc.abstractmethod
    def entry(self) -> dict[str, Any]:
        """What stands under `channels` for it."""

    async def connected(self) -> None:  # noqa: B027 - a webhook has nothing to wait for
        """Returns when messages can be delivered."""

    @abc.abstractmethod
    def message(self, text: str, number: str, user: str = "u1") -> Payload:
        """A person's direct message; `number` tells it from others."""

    def by_token(self, text: str, number: str) -> Payload:
        """A direct message whose answer needs the access token."""
        return self.message(text, number)

    @abc.abstractmethod
    async def deliver(self, gateway: Gateway, payload: Payload) -> bool:
        """Delivers once; whether it was acknowledged (always True where the protocol knows no acknowledgement)."""

    @abc.abstractmethod
    def events(self) -> Sequence[Payload]:
        """What is no message to the bot: other events, odd shapes."""

    @abc.abstractmethod
    def unreadable(self) -> Sequence[Payload]:
        """Messages of kinds nobody knows, which get a fixed answer."""

    def own(self) -> Sequence[Payload]:
        """What the bot itself, or another, said."""
        return ()

    @abc.abstractmethod
    def answers(self) -> list[str]:
        """What people see, in order."""

    @property
    @abc.abstractmethod
    def tries(self) -> int:
        """How many calls that send something arrived."""

    # ---- broken

    @abc.abstractmethod
    def fail_next(self, how: str) -> None:
        """The next send ends ``limited``, ``busy`` or, for good, ``refused``."""

    @abc.abstractmethod
    def hurry(self, patch: pytest.MonkeyPatch) -> None:
        """Pauses of this channel are short."""

    @abc.abstractmethod
    def impatient(self, patch: pytest.MonkeyPatch) -> None:
        """This channel waits for no answer long."""

    def expire_tokens(self) -> None:
        """Every access token is refused from now on."""
        raise NotImplementedError

    @abc.abstractmethod
    def hang_next(self) -> None:
        """The next send is not answered in time."""

    @abc.abstractmethod
    def cut_next(self) -> None:
        """The next send is taken, and the connection breaks before its answer."""


class Webhook(Platform):
    """A platform that posts what happens."""

    @abc.abstractmethod
    def request(self, payload: Payload, at: float | None = None) -> Request:
        """As the platform would send it, at `at` (unix seconds; None: now)."""

    @abc.abstractmethod
    def forgeries(self) -> Mapping[str, Request]:
        """By name, requests that the platform never made; all of messages that say 「伪造」."""

    async def deliver(self, gateway: Gateway, payload: Payload) -> bool:
        status, _ = await self.request(payload).send(gateway)
        return status == 200


def ago(seconds: float) -> float:
    """Unix seconds."""
    return time.time() - seconds


def flipped(body: bytes) -> bytes:
    """The body with one byte in its middle changed."""
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
