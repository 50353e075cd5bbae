"""Recovery: what a start finds in the inbox goes on where the process before ended."""

import logging
import sqlite3
from collections.abc import Callable

from gateway.lanes import Work
from gateway.outbox import Outbox
from gateway.pipeline import Pipeline
from gateway.snapshot import Snapshots
from gateway.storage.inbox import Inbox
from gateway.storage.stored_message import Group
from gateway.tracing.trace import Kind, Note
from memory.conversation import LaneKey
from memory.errors import StoreError

log = logging.getLogger("sanqiao.pipeline")


class Recovery:
    """Runs once, before anything new is taken."""

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        pipeline: Pipeline,
        snapshots: Snapshots,
        *,
        clock: Callable[[], float],
        note: Note,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._pipeline = pipeline
        self._snapshots = snapshots
        self._clock = clock
        self._note = note

    async def run(self) -> None:
        """Runs again what was accepted or taken, sends again what was answered; expires what is too old."""
        now = self._clock()
        patience = self._snapshots.now().settings.conversations.answer_after_restart
        for seq, lane in await self._inbox.expire(now - patience, now):
            log.warning("expired seq=%d lane=%s: older than conversations.answer-after-restart", seq, lane)
            outline = await self._inbox.outline(seq)
            if outline is not None and outline.user:
                self._note(outline, Kind.EXPIRED, reason="停得太久，超过 conversations.answer-after-restart")
        told = await self._finish_forgetting()
        for pending in await self._inbox.pending():
            if pending.turn not in told:
                self._outbox.put(pending.turn, pending.stored)
        for group in await self._inbox.taken():
            self._pipeline.lanes.put_rerun(group)
        for lane in await self._inbox.waiting_lanes():
            self._pipeline.lanes.refill(LaneKey.parse(lane))

    async def _finish_forgetting(self) -> set[int]:
        """Forgets whoever asked for it and was not forgotten yet, before anything else is done for them.

        Returns the turns whose answers are on their way. In the end nothing that was deleted is in the database's log.
        """
        told = set()
        for asks in await self._inbox.asking_to_be_forgotten():
            waiting = self._pipeline.intake.examine(asks)
            if waiting.command is not None:
                await self._pipeline.handle(Work(Group((asks,)), waiting.command))
                told.add(asks.seq)
        for user in await self._inbox.marks.all():  # an admin asked, or the account is linked no more
            try:
                await self._pipeline.forgetting.forget(user)
            except (StoreError, sqlite3.Error) as error:
                log.error("not forgotten user=%s reason=%s remedy=请再执行一次 forget --user", user, error)
        if await self._inbox.marks.unclean() and await self._inbox.empty_log():
            await self._inbox.marks.remove([""])
        return told
