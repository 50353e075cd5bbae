"""Forgetting a person: first all that works for them is ended, then all that is known of them is removed, everywhere."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, runtime_checkable

from channels.channel import Channel
from channels.message import Failed, InboundMessage, Progress, Silent
from gateway.conversation_index import ConversationIndex
from gateway.inbox import Inbox, Stored
from gateway.lane_states import LaneStates
from gateway.lanes import Lanes
from gateway.outbox import Outbox
from gateway.removed import Removed
from gateway.summaries import Summaries
from memory.memory import Memory

log = logging.getLogger("sanqiao.forgetting")


@runtime_checkable
class Remembers(Protocol):
    """A channel that keeps something of persons in memory, beyond the message it is busy with."""

    def forget(self, user: str) -> None:
        """Drops what is remembered of the person with this id."""


class Records:
    """What the workspace and Redis hold of persons."""

    def __init__(self, memory: Memory, inbox: Inbox, index: ConversationIndex, clock: Callable[[], float]) -> None:
        self._memory = memory
        self._inbox = inbox
        self._index = index
        self._clock = clock

    async def ids_of(self, user: str) -> tuple[str, ...]:
        """All ids of the person with this one. Accounts are not linked yet, so there is no other."""
        return (user,)

    async def remove(self, user: str, keep: Stored | None = None) -> tuple[Removed, list[Stored]]:
        """Removes everything of one id but the message `keep`; also gives the messages that had no answer yet.

        Raises StoreError, sqlite3.Error.
        """
        erased, gone = await self._memory.forget(user)
        messages, waiting = await self._inbox.forget(user, self._clock(), keep)
        await self._index.forget(user)
        for conversation in erased.touched:
            if conversation.lane.is_shared:
                self._index.touch(conversation)
        if not await self._inbox.empty_log():
            log.warning("database_log_kept reason=another-reader remedy=它在下次删除或停止时清空")
        removed = Removed(
            conversations=erased.conversations,
            summaries=erased.summaries,
            originals=erased.originals,
            profiles=int(erased.profile),
            turns=erased.turns,
            messages=messages,
            cached=not gone,
        )
        return removed, waiting


class Forgetting:
    """Forgets persons while the gateway runs. Messages of theirs that come meanwhile wait until it is done."""

    def __init__(
        self,
        records: Records,
        *,
        lanes: Lanes,
        outbox: Outbox,
        summaries: Summaries,
        states: LaneStates,
        channels: Mapping[str, Channel],
        text: Callable[[str], str],
    ) -> None:
        self._records = records
        self._lanes = lanes
        self._outbox = outbox
        self._summaries = summaries
        self._states = states
        self._channels = channels
        self._text = text
        self._under_way: dict[str, asyncio.Event] = {}

    async def settled(self, user: str) -> None:
        """Waits while this person is being forgotten."""
        while (done := self._under_way.get(user)) is not None:
            await done.wait()

    async def forget(self, user: str, *, keep: Stored | None = None) -> Removed:
        """Removes every trace of a person, with all ids of theirs, but the message `keep` that asks for it.

        Raises StoreError, sqlite3.Error; then some of it may be gone, and asking again removes the rest.
        """
        removed = Removed()
        for each in await self._records.ids_of(user):
            async with self._alone(each):
                removed += await self._forget(each, keep)
        log.info("forgotten user=%s conversations=%d messages=%d", user, removed.conversations, removed.messages)
        return removed

    @contextlib.asynccontextmanager
    async def _alone(self, user: str) -> AsyncIterator[None]:
        await self.settled(user)
        done = self._under_way[user] = asyncio.Event()
        try:
            yield
        finally:
            del self._under_way[user]
            done.set()

    async def _forget(self, user: str, keep: Stored | None) -> Removed:
        await self._lanes.drop(user)
        unsent = await self._outbox.drop(user)
        await self._summaries.forget(user)
        removed, waiting = await self._records.remove(user, keep)
        self._states.forget(user)
        for stored in waiting:
            self._tell(stored.message, Failed(self._text("forgotten-waiting")))
        for stored in (*waiting, *unsent):
            self._tell(stored.message, Silent())
        for channel in self._channels.values():
            if isinstance(channel, Remembers):
                channel.forget(user)
        return removed

    def _tell(self, message: InboundMessage, event: Progress) -> None:
        channel = self._channels.get(message.entry)
        if channel is not None:
            channel.progress(message, event)
