"""What is known of one person's recent messages: deliveries held open, replies given, answers promised.

One event loop; nothing here awaits but `Exchange.changes`, so each method is one step.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from channels.channel import ShelvedPart
from channels.wechat.reply import Words
from memory.conversation import LaneKey

_MOST_EXCHANGES = 10
_MOST_JOINED = 50
_PROMISE_SECONDS = 600.0
_SHELVING_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Offer:
    """Words for a reply. Either they lie on the shelf, or a `send` waits for `written`: whether they were written."""

    words: Words
    shelved: ShelvedPart | None = None
    written: "asyncio.Future[bool] | None" = None

    def settle(self, written: bool) -> None:
        """Tells the one who waits."""
        if self.written is not None and not self.written.done():
            self.written.set_result(written)


@dataclass(slots=True, eq=False)
class Exchange:
    """One message, by its id, with all its deliveries: each gets the same reply.

    `open`: how many deliveries are held now. `fetch`: it only fetches; None while that is undecided. `ended`: no
    answer of its own will come any more. `shelf`: something comes to the shelf that its reply may begin with. `reply`:
    what was written, "" for none.
    """

    id: str
    deliveries: int = 0
    open: int = 0
    fetch: bool | None = None
    accepted: bool = False
    ended: bool = False
    first: Offer | None = None
    own: Offer | None = None
    shelf: bool = False
    reply: str | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def receptive(self) -> bool:
        """Whether a delivery is open that has no reply yet."""
        return self.open > 0 and self.reply is None

    def change(self) -> None:
        """Wakes the deliveries that are held."""
        self._changed.set()

    async def changes(self, seconds: float) -> None:
        """Waits for the next change, `seconds` at most."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def follow(self) -> None:
        """More waits behind its `first`, and comes before an answer of its own."""
        if self.first is not None:
            self.first.words = replace(self.first.words, more=True)
            self.change()

    def end(self) -> None:
        """No answer of its own will come any more."""
        self.ended = True
        self.change()


@dataclass(slots=True, eq=False)
class Person:
    """One person's exchanges. `claimed`: parts of the shelf that an open delivery gives out."""

    lane: LaneKey
    exchanges: "OrderedDict[str, Exchange]" = field(default_factory=OrderedDict)
    claimed: set[tuple[int, int]] = field(default_factory=set)
    _promised: dict[str, float] = field(default_factory=dict)
    _shelving: dict[str, float] = field(default_factory=dict)
    _joined: dict[str, None] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """Whether a delivery is open."""
        return any(exchange.open for exchange in self.exchanges.values())

    def exchange(self, number: str) -> Exchange:
        """The exchange of that message id; old ones are forgotten."""
        if number not in self.exchanges:
            closed = [each.id for each in self.exchanges.values() if not each.open]
            for old in closed[: max(0, len(self.exchanges) + 1 - _MOST_EXCHANGES)]:
                del self.exchanges[old]
            self.exchanges[number] = Exchange(number)
        return self.exchanges[number]

    def forget(self) -> None:
        """Drops every exchange that no delivery is open for, and every promise of an answer."""
        for old in [each.id for each in self.exchanges.values() if not each.open]:
            del self.exchanges[old]
        self._promised.clear()
        self._shelving.clear()

    def offer(self, number: str, words: Words) -> tuple[Exchange, Offer] | None:
        """Offers a part of the answer to the message `number` to its open delivery, or to one that only fetches.

        One that waits for an answer of its own is told that this comes to the shelf: who waited for its reply to be
        written would keep that answer from coming.
        """
        own = self.exchanges.get(number)
        offer = Offer(words, written=asyncio.get_running_loop().create_future())
        if own is not None and own.receptive and own.own is None:
            own.own = offer
            own.change()
            return own, offer
        others = [each for each in self.exchanges.values() if each.receptive and each is not own]
        free = [each for each in others if each.first is None]
        fetching = next((each for each in reversed(free) if each.fetch), None)
        if fetching is not None:
            fetching.first = offer
            fetching.change()
            return fetching, offer
        if free:
            free[-1].shelf = True
            free[-1].change()
        else:
            for each in others:
                each.follow()
        return None

    def release(self, exchange: Exchange) -> None:
        """No delivery of the exchange is open any more: a reply that did not get through is made anew, of what is there then."""
        if exchange.first or exchange.own:
            exchange.reply = None
        self.give_back(exchange)

    def give_back(self, exchange: Exchange) -> None:
        """What the exchange was offered is not in its reply."""
        for offer in (exchange.first, exchange.own):
            if offer is not None:
                offer.settle(False)
                if offer.shelved is not None:
                    self.claimed.discard(key(offer.shelved))
        exchange.first = exchange.own = None

    # ---- promises

    def promise(self, number: str, now: float) -> None:
        """The person was told, or must assume, that the answer to this message follows."""
        self._promised[number] = now

    def keep(self, number: str, instead: str = "") -> None:
        """The answer to this message is there, or will come with that to the message `instead`."""
        made = self._promised.pop(number, None)
        if instead and made is not None:
            self._promised[instead] = made
        for exchange in self.exchanges.values():
            if exchange.fetch:
                exchange.change()

    def promised(self, now: float) -> bool:
        """Whether an answer is promised and still being made."""
        self._promised = {each: made for each, made in self._promised.items() if made > now - _PROMISE_SECONDS}
        return bool(self._promised)

    # ---- messages that became one turn with newer ones

    def join(self, number: str) -> None:
        """This message gets no answer of its own: what its turn does is promised to the newest message."""
        while len(self._joined) >= _MOST_JOINED:
            del self._joined[next(iter(self._joined))]
        self._joined[number] = None

    def over(self, number: str) -> None:
        """Its turn is over."""
        self._joined.pop(number, None)

    def joined(self, number: str) -> bool:
        """Whether this message became one turn with newer ones."""
        return number in self._joined

    # ---- parts on their way to the shelf

    def shelve(self, number: str, now: float) -> None:
        """A part of the answer to this message is about to lie on the shelf."""
        self._shelving[number] = now

    def shelving(self, seen: Iterable[str], now: float) -> bool:
        """Whether parts that should lie on the shelf are not seen there yet."""
        shown = set(seen)
        since = now - _SHELVING_SECONDS
        self._shelving = {each: at for each, at in self._shelving.items() if each not in shown and at > since}
        return bool(self._shelving)


def key(part: ShelvedPart) -> tuple[int, int]:
    """What tells a part on the shelf from the others."""
    return part.turn, part.number
