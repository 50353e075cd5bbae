"""The driver: so many people at once, each with the next message only after the reply to the last; and what it cost."""

import asyncio
import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench import model
from tests.bench.deliveries import Channel
from tests.bench.meter import Meter, Used
from tests.bench.platform import Platform
from tests.bench.subject import Subject
from tests.bench.wire import Client

TEXT = "帮我看看上海的后端岗位有哪些"
REPLY_SECONDS = 30.0
_DELIVERIES = 3
_tags = itertools.count(random.SystemRandom().getrandbits(16) << 20)


@dataclass(frozen=True)
class Said:
    """One message: its tag, when it was first delivered, acknowledged and replied to (monotonic; None: never)."""

    tag: str
    sent: float
    acked: float | None
    replied: float | None


@dataclass(frozen=True)
class Figures:
    """What one run showed. Times in ms, CPU in ms for each reply, memory in MiB, `rate` in replies a second.

    `overhead` is the time from the first delivery to the reply without what the model took. `requests` is how often
    the model was asked for each reply; `driver` and `others` are the cores that the driver itself took, and whoever
    else was on the machine.
    """

    sent: int
    lost: int
    doubled: int
    unacked: int
    rate: float
    cpu: float
    ack_p50: float
    ack_p99: float
    overhead_p50: float
    overhead_p99: float
    most_at_model: int
    requests: float
    rss_start: float
    rss_peak: float
    driver: float
    others: float


@dataclass
class Stage:
    """All that takes part: the subject, how it is spoken to, and the model."""

    subject: Subject
    channel: Channel
    platform: Platform
    client: Client
    model: Client

    async def say(self, person: str) -> Said:
        """One message, delivered until it is acknowledged, three times at most; returns with its reply or without."""
        tag = f"q{next(_tags):010x}q"
        reply, sent = self.platform.expect(tag), time.monotonic()
        delivering = asyncio.create_task(self._deliver(person, tag))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLY_SECONDS):
                await reply
        if reply.cancelled():
            delivering.cancel()
        acked = await delivering if not delivering.cancelling() else None
        return Said(tag, sent, acked, None if reply.cancelled() else reply.result())

    async def _deliver(self, person: str, tag: str) -> float | None:
        """When it was acknowledged."""
        manners = self.channel.manners
        for pause in (0.0, *[manners.again] * (_DELIVERIES - 1)):
            await asyncio.sleep(pause)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(manners.patience):
                    if await self.channel.deliver(self.platform, self.client, person, tag, f"{tag} {TEXT}"):
                        return time.monotonic()
        return None

    async def warm(self) -> None:
        """The first message, which is not measured: tokens are fetched, connections made. Raises SubjectFailed."""
        await self.channel.ready(self.platform)
        if (await self.say("warm")).replied is None:
            raise await asyncio.to_thread(self.subject.failed, f"no reply by {self.channel.name}")


async def load(stage: Stage, *, people: int, seconds: float, model_seconds: float, settle: float = 1.0) -> Figures:
    """So many people for so long; what is done in the `settle` seconds after that counts too.

    Raises SubjectFailed when not even the first message is answered.
    """
    meter = Meter(stage.subject)
    await stage.warm()
    await model.reset(stage.model, model_seconds)
    stage.platform.replies.clear()
    said: list[Said] = []
    async with meter:
        began = time.monotonic()
        ramp = min(1.0, seconds / 4) / people
        async with asyncio.TaskGroup() as group:
            for slot in range(people):
                group.create_task(_person(stage, slot, began + slot * ramp, began + seconds, said))
        await asyncio.sleep(settle)
        used = meter.used
    return figures(said, await model.told(stage.model), stage.platform.replies, used, began=began)


async def _person(stage: Stage, slot: int, begin: float, end: float, said: list[Said]) -> None:
    await asyncio.sleep(begin - time.monotonic())
    for number in itertools.count():
        if time.monotonic() >= end:
            return
        said.append(await stage.say(stage.channel.manners.person(slot, number)))


def figures(said: Sequence[Said], told: model.Told, replies: Mapping[str, int], used: Used, *, began: float) -> Figures:
    """What these messages show; `replies` counts them by tag."""
    replied = [(each, each.replied) for each in said if each.replied is not None]
    taken = {tag: went - came for tag, (came, went) in told.answered.items()}
    overhead = sorted(1000 * (at - each.sent - taken.get(each.tag, 0.0)) for each, at in replied)
    acks = sorted(1000 * (each.acked - each.sent) for each in said if each.acked is not None)
    last = max((at for _, at in replied), default=began + 1)
    answers = max(1, len(replied))
    return Figures(
        sent=len(said),
        lost=len(said) - len(replied),
        doubled=sum(replies.get(each.tag, 0) > 1 for each, _ in replied),
        unacked=sum(each.acked is None for each in said),
        rate=len(replied) / (last - began),
        cpu=1000 * used.cpu / answers,
        ack_p50=percentile(acks, 0.5),
        ack_p99=percentile(acks, 0.99),
        overhead_p50=percentile(overhead, 0.5),
        overhead_p99=percentile(overhead, 0.99),
        most_at_model=told.most_running,
        requests=told.requests / answers,
        rss_start=used.rss_start,
        rss_peak=used.rss_peak,
        driver=used.driver,
        others=used.others,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; NaN where there are none."""
    if not ordered:
        return float("nan")
    return statistics.median(ordered) if share == 0.5 else ordered[min(len(ordered) - 1, int(len(ordered) * share))]
