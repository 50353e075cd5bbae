"""Answers as replies to deliveries: each is held a while, and what comes too late waits for the next contact.

The platform waits 5 s for a reply, then delivers again, three times in all (developers.weixin.qq.com, 公众号 › 被动回复).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from channels.channel import Accept, SendDeferred, Shelf, ShelvedPart, Texts
from channels.message import Admission, Answered, Failed, InboundMessage, Joined, Part, Progress, Routed, Silent
from channels.wechat.exchange import Exchange, Offer, Person, key
from channels.wechat.reply import PASSIVE_BYTES, Words, compose, parts, with_hint
from memory.conversation import LaneKey

_log = logging.getLogger("sanqiao.channels.wechat")

FETCH_WORDS = frozenset(
    [
        "继续",
        "繼續",
        "接着",
        "接着说",
        "然后呢",
        "更多",
        "还有吗",
        "好了吗",
        "查看",
        "查看回复",
        "获取结果",
        "下一条",
        "下一页",
        "1",
        "１",
        "continue",
        "more",
        "next",
    ]
)
"""A message of just this, in any case and with any full stop, fetches what waits, if something does."""

_MOST_PEOPLE = 5000
_MOST_HELD = 2000
_DELIVERIES = 3

Write = Callable[[str], Awaitable[bool]]
"""Writes a reply ("" for one without text); whether it went out."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long a delivery is held, how long a part that is there waits for the own answer, between looks."""

    hold: float = 4.5
    join: float = 4.0
    look: float = 0.02


TIMES = Times()
"""Below the platform's 5 s."""


class Passive:
    """The replies of one account. `now` counts seconds."""

    def __init__(
        self, accept: Accept, shelf: Shelf, texts: Texts, *, now: Callable[[], float], times: Times | None = None
    ) -> None:
        self._accept = accept
        self._shelf = shelf
        self._texts = texts
        self._now = now
        self._times = times or TIMES
        self._people: OrderedDict[LaneKey, Person] = OrderedDict()
        self._held = 0
        self._closed = False

    def close(self) -> None:
        """Lets go of every delivery that is held, unanswered."""
        self._closed = True
        for person in self._people.values():
            for exchange in person.exchanges.values():
                exchange.change()

    async def contact(self, message: InboundMessage, write: Write, *, hold: bool) -> bool:
        """Answers one delivery of a message; False: it must end without an answer, so that it is delivered again.

        Unless `hold`, its own answer goes another way, and the reply is what waits, if anything. Raises GatewayClosed.
        """
        arrived = self._now()
        person = self._person(message.lane)
        exchange = person.exchange(message.id)
        exchange.deliveries += 1
        number = exchange.deliveries
        exchange.open += 1  # before the shelf is looked at: what comes meanwhile is offered to this delivery
        self._held += 1
        try:
            await self._prepare(person, exchange, message)
            text = await self._reply(person, exchange, number, arrived, hold)
            if text is None:
                return False
            if await write(text):
                await self._wrote(person, exchange, text)
            return True
        finally:
            self._held -= 1
            exchange.open -= 1
            if not exchange.open:
                person.release(exchange)

    # ---- one delivery

    async def _prepare(self, person: Person, exchange: Exchange, message: InboundMessage) -> None:
        """Has the message stored, unless it only fetches, and takes the oldest part that waits."""
        if exchange.reply is not None:
            return
        promised = person.promised(self._now())
        if exchange.fetch is None and (exchange.accepted or not _is_fetch_word(message)):
            exchange.fetch = False
        if exchange.fetch is None:
            waiting = await self._waiting(person)
            if exchange.fetch is None:
                exchange.fetch = bool(waiting or exchange.first or promised)
        duplicate = False
        if not exchange.fetch and not exchange.accepted:
            duplicate = await self._accept(message) is Admission.DUPLICATE and not exchange.accepted
            exchange.accepted = True
        waiting = await self._waiting(person)
        if any(part.message_id == message.id for part in waiting):
            exchange.ended = True
        elif duplicate:
            await self._answered_before(person, exchange, message)
        self._claim(person, exchange, waiting)

    def _claim(self, person: Person, exchange: Exchange, waiting: Sequence[ShelvedPart]) -> None:
        """The oldest part that waits comes first in this reply, and what waits behind it before an answer of its own."""
        if not waiting or not exchange.receptive:
            return
        if exchange.first is not None:
            exchange.follow()
            return
        part = waiting[0]
        person.claimed.add(key(part))
        exchange.first = Offer(Words(part.text, len(waiting) > 1), part)

    async def _answered_before(self, person: Person, exchange: Exchange, message: InboundMessage) -> None:
        """A message of before a restart: what it was answered then is its answer now."""
        text = await self._shelf.answered(message)
        if text is not None and exchange.reply is None:
            pieces = self.parts(text, "")
            more = "more" if len(pieces) > 1 else ""
            person.give_back(exchange)  # another delivery may have taken something from the shelf meanwhile
            exchange.reply = with_hint(pieces[0], more, self._texts) if pieces else ""
            exchange.end()

    async def _waiting(self, person: Person) -> list[ShelvedPart]:
        """What lies on the shelf, or was about to, and is not being given out by another delivery."""
        while True:
            shelved = await self._shelf.waiting(person.lane)
            if not person.shelving((part.message_id for part in shelved), self._now()):
                return [part for part in shelved if key(part) not in person.claimed]
            await asyncio.sleep(self._times.look)

    async def _reply(self, person: Person, exchange: Exchange, number: int, arrived: float, hold: bool) -> str | None:
        """The text to write, once it is there; None for none in time."""
        while exchange.reply is None:
            if self._closed:
                return None
            if exchange.shelf:
                exchange.shelf = False
                self._claim(person, exchange, await self._waiting(person))
                continue
            first, own, now = exchange.first, exchange.own, self._now()
            if own is None and first is None and self._is_over(person, exchange):
                exchange.reply = ""
                break
            patience = self._times.hold if first is None else self._times.join
            left = arrived + patience - now if hold and self._held <= _MOST_HELD else 0.0
            alone = first and (exchange.fetch or exchange.ended or first.words.more or left <= 0)
            if own or alone:
                self._compose(person, exchange, hold)
                break
            if left <= 0:
                return self._unready(person, exchange, number, hold)
            await exchange.changes(left)
        return exchange.reply

    def _is_over(self, person: Person, exchange: Exchange) -> bool:
        """Whether nothing will come that this delivery could wait for."""
        return not person.promised(self._now()) if exchange.fetch else exchange.ended

    def _compose(self, person: Person, exchange: Exchange, hold: bool) -> None:
        first, own = exchange.first, exchange.own
        coming = hold and not exchange.fetch and not exchange.ended
        reply = compose(first.words if first else None, own.words if own else None, coming=coming, texts=self._texts)
        exchange.reply = reply.text
        if own is not None and not reply.with_own:
            exchange.own = None
            own.settle(False)
        elif own is None and coming:
            person.promise(exchange.id, self._now())

    def _unready(self, person: Person, exchange: Exchange, number: int, hold: bool) -> str | None:
        """Nothing is there: this delivery ends unanswered, or the last of them says that the answer follows."""
        if not hold:
            exchange.reply = ""
        elif number >= _DELIVERIES or self._held > _MOST_HELD:
            if not exchange.fetch:
                person.promise(exchange.id, self._now())
            return self._texts("later")
        return exchange.reply

    async def _wrote(self, person: Person, exchange: Exchange, text: str) -> None:
        """A delivery got `text`: where that is the reply, and not just word of it, what is in it has arrived."""
        if exchange.reply != text:
            return
        offers = [offer for offer in (exchange.first, exchange.own) if offer is not None]
        exchange.first = exchange.own = None
        for offer in offers:
            offer.settle(True)
        for offer in offers:
            if offer.shelved is not None:
                await self._shelf.fetched(offer.shelved)
                person.claimed.discard(key(offer.shelved))

    # ---- what the gateway says

    def parts(self, text: str, notice: str, limit: int = PASSIVE_BYTES) -> list[str]:
        """An answer as plain texts that each fit one reply of at most `limit` bytes."""
        return parts(text, notice, limit, self._texts)

    async def send(self, part: Part) -> None:
        """Gives a part to an open delivery; returns when it was written. Raises SendDeferred where there is none."""
        number = part.message.id
        person = self._person(part.message.lane)
        offered = person.offer(number, Words(part.text, part.number + 1 < part.total))
        written = False
        if offered is not None:
            exchange, offer = offered
            assert offer.written is not None
            try:
                written = await offer.written
            finally:
                if exchange.first is offer:
                    exchange.first = None
                if exchange.own is offer:
                    exchange.own = None
        if not written:
            self.defer(part.message)
            raise SendDeferred("it waits for the next contact")
        self.sent(part)

    def sent(self, part: Part) -> None:
        """A part reached the person; the next one, if there is one, is on its way: who asks for it now asks for that."""
        self.done(part.message)
        if part.number + 1 < part.total:
            self._person(part.message.lane).promise(part.message.id, self._now())

    def defer(self, message: InboundMessage) -> None:
        """The rest of the answer to this message goes to the shelf."""
        self._person(message.lane).shelve(message.id, self._now())
        self.done(message)

    def done(self, message: InboundMessage, instead: str = "") -> None:
        """No more is given to the deliveries of this message; its answer may come with that to `instead`."""
        person = self._person(message.lane)
        exchange = person.exchanges.get(message.id)
        if exchange is not None:
            exchange.end()
        person.keep(message.id, instead)

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Ends the deliveries of a message that gets no answer of its own; knows a turn that a restart began again."""
        match event:
            case Joined(into):
                self._person(message.lane).join(message.id)
                self.done(message, into)
            case Silent():
                self.done(message)
            case Answered() | Failed() if message.lane in self._people:
                self._people[message.lane].over(message.id)
            case Routed():
                person = self._person(message.lane)
                if message.id not in person.exchanges and not person.joined(message.id):
                    person.promise(message.id, self._now())

    def forget(self, user: str) -> None:
        """Drops the replies that are remembered for a person; a delivery that is open now still gets its own."""
        for lane in [lane for lane in self._people if lane.user == user]:
            self._people[lane].forget()
            if not self._people[lane].busy:
                del self._people[lane]

    def _person(self, lane: LaneKey) -> Person:
        person = self._people.get(lane)
        if person is None:
            person = self._people[lane] = Person(lane)
            self._forget()
        self._people.move_to_end(lane)
        return person

    def _forget(self) -> None:
        """Forgets those who were quiet for longest; nobody with an open delivery."""
        surplus = len(self._people) - _MOST_PEOPLE
        if surplus > 0:
            quiet = (lane for lane, person in list(self._people.items())[:-1] if not person.busy)
            for lane in [lane for lane, _ in zip(quiet, range(surplus), strict=False)]:
                del self._people[lane]


def _is_fetch_word(message: InboundMessage) -> bool:
    return message.notice is None and message.text.strip().rstrip("。.!！?？~～ ").casefold() in FETCH_WORDS
