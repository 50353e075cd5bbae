"""Forgetting a person: first all that works for them is ended, then all that is known of them is removed, everywhere."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from channels.channel import Channel
from channels.message import Failed, InboundMessage, Progress, Silent
from gateway.lanes import Lanes
from gateway.outbox import Outbox
from gateway.removed import Removed
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.inbox import Inbox
from gateway.storage.lane_states import LaneStates
from gateway.storage.stored_message import Group, Pending, Stored
from gateway.turns.summaries import Summaries
from memory.conversation import LaneKey
from memory.errors import StoreError
from memory.memory import Memory

log = logging.getLogger("sanqiao.forgetting")


@runtime_checkable
class Remembers(Protocol):
    """A channel that keeps something of persons in memory, beyond the message it is busy with."""

    def forget(self, user: str) -> None:
        """Drops what is remembered of the person with this id."""


ForgetTraces = Callable[[str, Sequence[LaneKey]], Awaitable[int]]
"""Removes a person's traces; the lanes are the shared ones in which they spoke. Raises sqlite3.Error."""


class Records:
    """What the workspace and Redis hold of persons."""

    def __init__(
        self, memory: Memory, inbox: Inbox, index: ConversationIndex, forget_traces: ForgetTraces | None = None
    ) -> None:
        self._memory = memory
        self._forget_traces = forget_traces
        self._inbox = inbox
        self._index = index
        self._left_marked: set[str] = set()
        self._bytes_left = True  # those before the start, perhaps

    async def ids_of(self, user: str) -> tuple[str, ...]:
        """All ids of the person with this one, which is the last: broken off, asking again for it finds the rest.

        Raises StoreError.
        """
        return (await self._memory.read_links()).ids_of(user)[::-1]

    async def remove(
        self, user: str, keep: Stored | None = None, then: Sequence[str] = ()
    ) -> tuple[Removed, list[Stored]]:
        """Removes everything of one id but the message `keep`; also gives the messages that had no answer yet.

        A mark stands until nothing is left, of this id and those that are to be removed `then`: a process that ends in
        the midst finishes at its next start. With the last id the database is written anew, if anything was removed
        since that was done. Raises StoreError, sqlite3.Error; then some of it may be gone, and the
        marks are, at the latest with `unmark`.
        """
        ids = (user, *then)
        try:
            await self._inbox.marks.put(ids)
            removed, waiting = await self._remove(user, keep)
        except (StoreError, sqlite3.Error):
            self._bytes_left = True
            self._left_marked.update(ids)
            with contextlib.suppress(sqlite3.Error):
                await self.unmark(*ids)
            raise
        self._left_marked.discard(user)
        self._bytes_left = self._bytes_left or bool(removed)
        if self._bytes_left and not then:
            await self._empty_log()
        return removed, waiting

    async def unmark(self, *ids: str) -> None:
        """Removes the marks that a failure left: whoever asked was told of it. Raises sqlite3.Error."""
        left = self._left_marked.intersection(ids)
        if left:
            await self._inbox.marks.remove(left)
            self._left_marked -= left

    async def _empty_log(self) -> None:
        self._bytes_left, emptied = False, False  # what another removes meanwhile counts as left
        try:
            with contextlib.suppress(sqlite3.Error):
                emptied = await self._inbox.empty_log()
        finally:
            self._bytes_left = self._bytes_left or not emptied
        if not emptied:
            log.warning("database_bytes_kept remedy=下次删除或启动时再清空")

    async def broken_off(self, user: str) -> tuple[list[Pending], list[Group]]:
        """What is still in the inbox of a person's unsent answers, and of the turns that were begun."""
        unsent = [each for each in await self._inbox.pending() if each.stored.message.user == user]
        begun = [each for each in await self._inbox.taken() if each.newest.message.user == user]
        return unsent, begun

    async def _remove(self, user: str, keep: Stored | None) -> tuple[Removed, list[Stored]]:
        erased, gone = await self._memory.forget(user)
        await self._index.forget(user)
        if self._forget_traces is not None:
            await self._forget_traces(user, [each.lane for each in erased.touched if each.lane.is_shared])
        messages, waiting = await self._inbox.forget(user, keep)
        for conversation in erased.touched:
            if conversation.lane.is_shared:
                self._index.touch(conversation)
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
    """Forgets persons while the gateway runs. Messages of theirs that come meanwhile wait until it is done.

    While a person is being forgotten the lanes are closed to them; what is in the inbox when they open again goes on.
    """

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
        self._beginning = asyncio.Lock()

    async def settled(self, user: str) -> None:
        """Waits while this person is being forgotten.

        Raises sqlite3.Error while a mark cannot be removed: what is accepted now must not be deleted by the next start.
        """
        await self._others_done(user)
        await self._records.unmark(user)

    async def _others_done(self, user: str) -> None:
        while (done := self._under_way.get(user)) is not None:
            await done.wait()

    async def forget(self, user: str, *, keep: Stored | None = None) -> Removed:
        """Removes every trace of a person, with all ids of theirs, but the message `keep` that asks for it.

        Raises StoreError, sqlite3.Error; then some of it may be gone, what was under way goes on, and asking again
        removes the rest.
        """
        removed = Removed()
        async with self._alone(user) as ids:
            async with self._closed_to(ids):
                unsent = {each: await self._outbox.drop(each) for each in ids}
                for place, each in enumerate(ids, 1):
                    try:
                        removed += await self._forget(each, keep, ids[place:], unsent[each])
                    except (StoreError, sqlite3.Error):
                        for left in ids[place - 1 :]:
                            await self._take_up_again(left)
                        raise
            if len(ids) > 1:
                await self._records.ids_of(user)  # reads the links anew: who comes back is new, and alone
        log.info("forgotten user=%s conversations=%d messages=%d", user, removed.conversations, removed.messages)
        return removed

    @contextlib.asynccontextmanager
    async def held_off(self) -> AsyncIterator[None]:
        """Meanwhile nobody is being forgotten: who is linked to whom may be changed."""
        async with self._beginning:
            while self._under_way:
                await next(iter(self._under_way.values())).wait()
            yield

    @contextlib.asynccontextmanager
    async def _alone(self, user: str) -> AsyncIterator[Sequence[str]]:
        """Keeps the person's accounts to this forgetting; all ids of theirs, in the order in which they are to go."""
        done = asyncio.Event()
        async with self._beginning:
            ids = await self._records.ids_of(user)
            for each in ids:
                await self._others_done(each)
            self._under_way |= dict.fromkeys(ids, done)
        try:
            yield ids
        finally:
            for each in ids:
                del self._under_way[each]
            done.set()

    @contextlib.asynccontextmanager
    async def _closed_to(self, ids: Sequence[str]) -> AsyncIterator[None]:
        """Nothing works for any account of a person: one would write what they share after it was removed."""
        async with contextlib.AsyncExitStack() as closed:
            for each in ids:
                await closed.enter_async_context(self._lanes.closed_to(each))
                await closed.enter_async_context(self._summaries.closed_to(each))
            yield

    async def _forget(self, user: str, keep: Stored | None, then: Sequence[str], unsent: Sequence[Stored]) -> Removed:
        removed, waiting = await self._records.remove(user, keep, then)
        self._states.forget(user)
        for stored in waiting:
            self._tell(stored.message, Failed(self._text("forgotten-waiting")))
        for stored in (*waiting, *unsent):
            self._tell(stored.message, Silent())
        for channel in self._channels.values():
            if isinstance(channel, Remembers):
                channel.forget(user)
        return removed

    async def _take_up_again(self, user: str) -> None:
        """What was ended for a person who cannot be forgotten now goes on, as after a restart."""
        try:
            unsent, begun = await self._records.broken_off(user)
        except sqlite3.Error as error:
            log.error("left in the inbox until the next start user=%s reason=%s", user, error)
            return
        for pending in unsent:
            self._outbox.put(pending.turn, pending.stored)
        for group in begun:
            self._lanes.put_rerun(group)

    def _tell(self, message: InboundMessage, event: Progress) -> None:
        channel = self._channels.get(message.entry)
        if channel is not None:
            channel.progress(message, event)
