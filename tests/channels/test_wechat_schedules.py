"""Random schedules of deliveries, answers, fetch words and lost replies: every answer is seen, once."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from channels.channel import SendDeferred, ShelvedPart
from channels.message import Admission, InboundMessage, Joined, Part, Routed, Silent
from channels.wechat.events import Account, read_message
from channels.wechat.passive import Passive, Times
from gateway.config.texts import Texts
from memory.conversation import LaneKey
from tests.virtual_time import run_virtually

TIMES = Times(hold=0.04, join=0.03, look=0.002)
_PEOPLE = ("oA", "oB", "oC")


@dataclass
class World:
    """A gateway, a platform and people that behave at random; `seen` are the replies people read, by message id."""

    rng: random.Random
    now: Callable[[], float]
    seen: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    made: dict[str, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    shelf: dict[LaneKey, list[ShelvedPart]] = field(default_factory=lambda: defaultdict(list))
    lanes: dict[LaneKey, "asyncio.Queue[InboundMessage]"] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    workers: list["asyncio.Task[None]"] = field(default_factory=list)
    sayings: list["asyncio.Task[None]"] = field(default_factory=list)
    turns: int = 0

    def __post_init__(self) -> None:
        self.passive = Passive(self.accept, self, Texts().get, now=self.now, times=TIMES)

    async def pause(self, longest: float = 0.004) -> None:
        await asyncio.sleep(self.rng.random() * longest)

    # ---- the gateway

    async def accept(self, message: InboundMessage) -> Admission:
        await self.pause()
        if message.id in self.accepted:
            return Admission.DUPLICATE
        self.accepted.add(message.id)
        if message.lane not in self.lanes:
            self.lanes[message.lane] = asyncio.Queue()
            self.workers.append(asyncio.create_task(self.work(self.lanes[message.lane])))
        self.lanes[message.lane].put_nowait(message)
        return Admission.ACCEPTED

    async def waiting(self, lane: LaneKey) -> list[ShelvedPart]:
        await self.pause()
        return list(self.shelf[lane])

    async def fetched(self, part: ShelvedPart) -> None:
        await self.pause()
        for lane in self.shelf.values():
            if part in lane:
                lane.remove(part)

    async def answered(self, message: InboundMessage) -> str | None:
        return None

    async def work(self, lane: "asyncio.Queue[InboundMessage]") -> None:
        """One lane: takes what waits as one turn, answers it, sends the answer."""
        while True:
            group = [await lane.get()]
            while not lane.empty() and self.rng.random() < 0.7:
                group.append(lane.get_nowait())
            newest = group[-1]
            for older in group[:-1]:
                self.passive.progress(older, Joined(newest.id))
            self.passive.progress(newest, Routed("a", "b"))
            await self.pause(self.rng.choice((0.005, 0.05, 0.2)))
            if self.rng.random() < 0.1:
                self.passive.progress(newest, Silent())
            else:
                await self.send(newest)
            for _ in group:
                lane.task_done()

    async def send(self, message: InboundMessage) -> None:
        self.turns += 1
        parts = [f"«{self.turns}.{number}»" for number in range(self.rng.choice((1, 1, 1, 3)))]
        self.made[message.platform_user].append(parts)
        for number, text in enumerate(parts):
            await self.pause()
            part = Part(message=message, text=text, number=number, total=len(parts), key=text)
            try:
                await self.passive.send(part)
            except SendDeferred:
                await self.pause(0.01)
                rest = range(number, len(parts))
                self.shelf[message.lane] += [
                    ShelvedPart(self.turns, each, len(parts), parts[each], message.id) for each in rest
                ]
                return

    # ---- people and the platform

    def on_shelf(self, user: str) -> list[ShelvedPart]:
        """What waits for this person."""
        return self.shelf[_message(user, "", "").lane]

    async def say(self, user: str, text: str, number: str) -> None:
        """One message: delivered up to three times, now and then overlapping; some replies are lost on the way."""
        message = _message(user, text, number)

        async def write(reply: str) -> bool:
            await self.pause(0.002)
            if self.rng.random() < 0.15:
                return False
            self.seen[message.id].append(reply)
            return True

        for _ in range(3):
            delivery = asyncio.create_task(self.passive.contact(message, write, hold=True))
            if self.rng.random() < 0.1:
                await asyncio.gather(delivery, self.passive.contact(message, write, hold=True))
            await delivery
            if self.seen[message.id]:
                return

    async def talk(self, user: str, count: int) -> None:
        for number in range(count):
            text = self.rng.choice(("问", "问", "继续", "1"))
            saying = asyncio.create_task(self.say(user, text, str(number)))
            if self.rng.random() < 0.6:
                await saying
            else:
                await self.pause(0.03)
                self.sayings.append(saying)


def _message(user: str, text: str, number: str) -> InboundMessage:
    fields = {"FromUserName": user, "MsgType": "text", "Content": text, "MsgId": number}
    message = read_message(fields, Account("wechat", "wx1"))
    assert message is not None
    return message


@pytest.mark.parametrize("seed", range(100))
def test_every_answer_is_seen_once(seed: int) -> None:
    rng = random.Random(seed)
    run_virtually(_every_answer_is_seen_once(seed, rng), rng, stall=rng.choice((0.0, 0.01, 0.1)))


async def _every_answer_is_seen_once(seed: int, rng: random.Random) -> None:
    world = World(rng, now=asyncio.get_running_loop().time)
    await asyncio.gather(*(world.talk(user, 25) for user in _PEOPLE))
    await asyncio.gather(*world.sayings)
    for queue in list(world.lanes.values()):
        await queue.join()
    for user in _PEOPLE:
        number = 0
        while world.on_shelf(user):
            number += 1
            await world.say(user, "继续", f"fetch-{number}")
            assert number < 300
    for worker in world.workers:
        worker.cancel()
    await asyncio.gather(*world.workers, return_exceptions=True)

    assert not any(world.shelf.values())
    assert world.passive._held == 0
    for user in _PEOPLE:
        replies = {number: set(texts) for number, texts in world.seen.items() if number.startswith(f"{user}:")}
        everything = "\n".join(text for texts in replies.values() for text in texts)
        for parts in world.made[user]:
            counts = [everything.count(part) for part in parts]
            assert counts == [1] * len(parts), (seed, user, parts, counts)
        others = [part for other in _PEOPLE if other != user for parts in world.made[other] for part in parts]
        assert not any(part in everything for part in others), "another person's"
    assert world.turns > 20
