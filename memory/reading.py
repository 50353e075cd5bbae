"""What was said, from the conversation files and from what still waits to be written to them."""

import logging
from dataclasses import replace
from functools import partial
from itertools import islice

from memory.backlog import Backlog
from memory.conversation import ConversationId, LaneKey, Role, Turn
from memory.conversation_file import path_of
from memory.errors import StoreClosed, StoreError, typed_errors
from memory.merged import Merged
from memory.store import ConversationStore, FileInfo

log = logging.getLogger("sanqiao.memory")


class Reader:
    """Answers, pages and listings. Every coroutine may raise StoreError."""

    def __init__(self, store: ConversationStore, backlog: Backlog) -> None:
        self._store = store
        self._backlog = backlog

    async def answer_to(self, conversation: ConversationId, question: str) -> list[Turn]:
        """The turns that answer the user turn with this id, in order; [] if there are none yet, or the file is unreadable."""
        waiting = [turn for turn in self._backlog.turns(conversation) if turn.to == question]
        try:
            return [*await self._store.answer_to(conversation, question), *waiting]
        except StoreClosed:
            raise
        except StoreError as error:
            log.error("answer_not_looked_up path=%s error=%s", path_of(conversation), error)
            return waiting

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn]:
        """A page: the newest `limit` turns with an ordinal below `before` (None: of all), in the file's order."""
        owed = self._backlog.turns(conversation)
        if not owed:
            return await self._store.history(conversation, before, limit)

        def waiting() -> list[Turn]:
            with Merged(conversation, owed, partial(self._store.backwards, conversation)) as tail:
                ids = {turn.id for turn in owed}
                return [turn for turn in islice(tail, len(owed)) if turn.id in ids][::-1]

        shown = [turn for turn in await self._store.run(waiting) if before is None or turn.n < before]
        try:
            page = await self._store.history(conversation, before, limit)
        except StoreClosed:
            raise
        except StoreError:
            page = []
        known = {turn.id for turn in page}
        return [*page, *(turn for turn in shown if turn.id not in known)][-limit:]

    async def question(self, conversation: ConversationId, id: str) -> Turn | None:
        """The user turn with this id, wherever in the file it stands."""
        for turn in self._backlog.turns(conversation):
            if turn.role is Role.USER and turn.id == id:
                return turn

        def look() -> Turn | None:
            tail = self._store.backwards(conversation, unlimited=True)
            with typed_errors(path_of(conversation)), tail:
                return next((turn for turn in tail if turn.role is Role.USER and turn.id == id), None)

        return await self._store.run(look)

    async def files_of(self, lane: LaneKey) -> list[ConversationId]:
        """The conversations of this lane that have a file, or something that waits for it; one per agent."""
        return list(dict.fromkeys([*await self._store.files_of(lane), *self._backlog.of_lane(lane)]))

    async def info(self, conversation: ConversationId) -> FileInfo | None:
        """One conversation file; None if there is none."""
        owed = self._backlog.turns(conversation)
        try:
            info = await self._store.info(conversation)
        except StoreError:
            if not owed:
                raise
            info = None
        if not owed:
            return info
        info = info or FileInfo(id=conversation, turns=0, last="", bytes=0)
        more = sum(turn.role is not Role.RESET for turn in owed)
        return replace(info, turns=info.turns + more, last=owed[-1].at)

    async def ended(self, conversation: ConversationId) -> bool:
        """Whether nothing was said since the last reset, if that can be known."""
        owed = self._backlog.turns(conversation)
        try:
            last = owed[-1] if owed else await self._store.last(conversation)
        except StoreClosed:
            raise
        except StoreError:
            return False
        return last is None or last.role is Role.RESET
