"""What a channel is to the gateway, and the errors a send may end in."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from aiohttp import web
from pydantic import Field

from channels.message import Admission, InboundMessage, Part, Progress
from memory.conversation import LaneKey
from memory.settings import SettingsModel

Accept = Callable[[InboundMessage], Awaitable[Admission]]
"""Stores a message durably; returns after the commit. Only then may the platform be told that it was received.

Raises GatewayClosed while the gateway takes none.
"""


Texts = Callable[[str], str]
"""The fixed text of that name, as the config has it now."""


class EntrySettings(SettingsModel):
    """What every entry under `channels` takes, whatever its kind."""

    enabled: bool = False
    kind: str = ""
    account_alias: str = ""
    agent: str = ""
    group_policy: str = Field("mention", pattern="^(mention|all|off)$")
    dm_policy: str = Field("open", pattern="^(open|allowlist|off)$")
    allow_from: tuple[str, ...] = ()
    proxy: str = Field("", repr=False)

    def complete(self, needed: Mapping[str, str], found_at: str) -> Self:
        """An entry that is off may be unfinished; one that is on names all it needs at once.

        `needed` are the keys with what is written there, `found_at` is where an admin finds them (Chinese). Raises
        ValueError.
        """
        missing = [key for key, value in needed.items() if not value.strip()]
        if self.enabled and missing:
            raise ValueError(f"缺少 {'、'.join(missing)}；请在{found_at}复制后填写")
        return self


def route_path(kind: str, name: str) -> str:
    """The path on the public listener of an entry of this kind: that of the kind, or one more for further accounts."""
    return f"/{kind}" if name == kind else f"/{kind}/{name}"


@dataclass(frozen=True, slots=True)
class Health:
    """How a channel is: `ok`, a short detail for admins (Chinese, no secret), and since when (unix seconds)."""

    ok: bool
    detail: str
    since: float


class SendError(Exception):
    """A part could not be sent. The message is for logs: no secret, no text of a user."""


class SendFailed(SendError):
    """Network, time-out, 5xx: the same part may be sent again later."""


class SendUncertain(SendFailed):
    """No answer came after the part went out, and the platform has no key by which it would know a repeat."""


class SendLimited(SendError):
    """The platform asks to wait `retry_after` seconds before the same part is sent again."""

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class SendRefused(SendError):
    """The platform will never take this part (left the group, recalled, no right …); trying again is useless."""


class SendDeferred(SendError):
    """Nothing can be sent now, but the person's next contact can fetch it: the part goes to the shelf."""


@dataclass(frozen=True, slots=True)
class ShelvedPart:
    """One part on the shelf, of the turn that answers the message `message_id`."""

    turn: int
    number: int
    total: int
    text: str
    message_id: str


class Shelf(Protocol):
    """Parts that wait for the person's next contact, lane by lane, on disk, for 24 hours from when the message came."""

    async def waiting(self, lane: LaneKey) -> list[ShelvedPart]:
        """The parts of this lane, oldest first."""

    async def fetched(self, part: ShelvedPart) -> None:
        """The part reached the person."""

    async def answered(self, message: InboundMessage) -> str | None:
        """The whole answer that this message (or the turn it joined) got before; None if there is none (yet)."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route of the public listener."""

    method: str
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]


class Channel(Protocol):
    """One entry under `channels`, from start to stop. Implementations need no base class."""

    @property
    def name(self) -> str:
        """The entry's name in the config."""

    @property
    def repeatable(self) -> bool:
        """Whether a part that is sent twice under one key is shown once: the platform knows the key."""

    def parts(self, text: str, notice: str) -> list[str]:
        """An answer (markdown) as the texts this platform is sent one after the other; none is empty.

        `notice` ends the last one where the platform's number of parts does not hold the whole answer.
        """

    def routes(self) -> Sequence[Route]:
        """Routes on the public listener; none unless this entry is in a webhook mode."""

    def apply(self, settings: EntrySettings) -> None:
        """Takes over what of its entry may change while it runs: the group policy; the rest needs a restart."""

    async def run(self) -> None:
        """Receives until cancelled (a long connection, background refresh); a webhook channel may just return."""

    async def send(self, part: Part) -> str:
        """Sends one part; returns the platform's id of it, or "". Raises SendError.

        Each wait for the platform is bounded; the caller ends a call that takes longer in all than it likes.
        """

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Told what happens to `message` while it is handled; must not block. Most channels ignore it."""

    async def stop_receiving(self) -> None:
        """Takes no more events: sockets closed, so that the platform delivers elsewhere or later. Sending still works."""

    async def close(self) -> None:
        """Releases everything. Called once, last."""

    def health(self) -> Health:
        """How the channel is, truthfully."""
