"""Replies: what a person sees while a turn runs, and its answer, which is recorded before it is sent."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from channels.channel import Channel
from channels.message import Progress, Silent
from gateway.logs import log_failure
from gateway.outbox import Outbox
from gateway.route import LaneState
from gateway.snapshot import Snapshots
from gateway.storage.inbox import Inbox
from gateway.storage.lane_states import LaneStates
from gateway.storage.stored_message import Group, State, Stored
from gateway.storage.token_use import Meter

log = logging.getLogger("sanqiao.pipeline")


class Replies:
    """The way out: to the inbox first, then to the channel and the outbox."""

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        channels: Mapping[str, Channel],
        *,
        states: LaneStates,
        snapshots: Snapshots,
        clock: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._channels = channels
        self._states = states
        self._snapshots = snapshots
        self._clock = clock

    async def finish(
        self,
        group: Group,
        state: State,
        text: str,
        event: Progress,
        lane: LaneState | None = None,
        *,
        meter: Meter | None = None,
    ) -> None:
        """Records the answer with its parts in one step, tells the channel, hands the parts to the outbox.

        Once begun it is done to its end, also where the lane's work is ended meanwhile: what is recorded is told.
        """
        finishing = asyncio.create_task(self._finished(group, state, text, event, lane, meter=meter))
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            await asyncio.wait([finishing])
            raise

    async def _finished(
        self,
        group: Group,
        state: State,
        text: str,
        event: Progress,
        lane: LaneState | None,
        *,
        meter: Meter | None,
    ) -> None:
        stored = group.newest
        parts = self._parts(stored.message.entry, text)
        now = self._clock()
        spent = meter.spent(stored.message.user, self._snapshots.now().day(now)) if meter else None
        recorded = await self._inbox.finish(group, state, parts, now, lane, spent=spent)
        if not recorded and state is State.ANSWERED:
            self.tell(group, Silent())  # it was forgotten meanwhile, and nothing of its answer is said any more
            return
        if lane is not None:
            self._states.keep(stored.message.lane, lane)
        self.tell(group, event)
        if parts:
            self._outbox.put(group.turn, stored, parts)
        else:
            self.tell(group, Silent())

    def _parts(self, entry: str, text: str) -> list[str]:
        channel = self._channels.get(entry)
        if channel is None or not text.strip():
            return []
        return channel.parts(text, self._snapshots.now().texts.get("more-parts"))

    def tell(self, group: Group, event: Progress) -> None:
        """Tells the channel of each message of the group."""
        for stored in group.stored:
            self.tell_one(stored, event)

    def tell_one(self, stored: Stored, event: Progress) -> None:
        """Tells the channel of this message."""
        channel = self._channels.get(stored.message.entry)
        try:
            if channel:
                channel.progress(stored.message, event)
        except Exception as error:  # border of one channel: what is shown is never worth an answer
            log_failure(log, f"progress failed entry={stored.message.entry}", error)

    async def drop(self, turns: Collection[int]) -> None:
        """Sends nothing more of these turns' answers; who waits for one is told that nothing comes."""
        for stored in await self._outbox.drop_turns(turns):
            self.tell_one(stored, Silent())
