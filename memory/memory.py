"""The one door to what was said: remember turns, see the window, find answers, turn pages."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from memory.appending import path_of
from memory.archive import SummaryArchive
from memory.backlog import Backlog, FilesStatus, NoShelter, Shelter
from memory.conversation import ConversationId, LaneKey, Role, Turn
from memory.erasing import Erased, Eraser
from memory.errors import StoreClosed, StoreError, typed_errors
from memory.generations import Generations
from memory.mended import Mended
from memory.mending import Mender
from memory.merged import Merged
from memory.profile import Profile, Profiles
from memory.redis_link import RedisSettings, RedisStatus
from memory.short_term import ShortTerm, Tail, Tails
from memory.speaker import voiced
from memory.store import ConversationStore, FileInfo
from memory.summary import Standing, Summary, SummarySettings, due, reaching, target
from memory.tail import MAX_ITEMS
from memory.tokens import forget_texts, message_tokens
from memory.window import Window, WindowSettings, build_window
from memory.yamlform import forget_items

log = logging.getLogger("sanqiao.memory")

Weigh = Callable[[str], int]
"""How many tokens a summary's text takes in the request."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a summary is to be made of: the version before it and the turns since, oldest first, up to ordinal `upto`.

    `turns` may go on behind `upto`. `after` is the id of the archive's newest version of any epoch, `reason` why the
    summary is due, `generation` when the turns were read (see memory.generations).
    """

    epoch: int
    previous: Summary | None
    turns: Sequence[Turn]
    upto: int
    after: str | None
    reason: str
    generation: int = 0


class Memory:
    """Conversations as the gateway uses them. Every coroutine may raise StoreError.

    What a file does not take waits in the backlog and is seen all the same: `remember` and `window` raise for no disk.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        durability: str = "sync",
        redis: RedisSettings | None = None,
        shelter: Shelter | None = None,
    ) -> None:
        self.generations = Generations()
        self.profiles = Profiles(workspace, self.generations)
        self._store = ConversationStore(workspace, durability=durability, generations=self.generations)
        self._archive = SummaryArchive(workspace, sync=durability == "sync")
        self._eraser = Eraser(workspace, self._store.appender, self._archive, self.generations)
        self._mender = Mender(workspace, self._store.appender, self._archive, self.generations)
        on = redis is not None and redis.url.get_secret_value()
        self._short_term = ShortTerm(redis, workspace, self._store) if redis and on else None
        self._backlog = Backlog(self._write, shelter or NoShelter(), self.generations)

    async def open(self) -> None:
        """Finds out whether Redis is well, where one is set; writes what an earlier process could not."""
        if self._short_term is not None:
            await self._short_term.open()
        await self._backlog.load()

    async def keep_trying(self, pause: Callable[[], float]) -> None:
        """Writes what waits for its file, `pause()` seconds apart, until it is cancelled."""
        await self._backlog.keep_trying(pause)

    def files_well(self) -> bool:
        """Whether every file has taken all that was remembered."""
        return self._backlog.well

    def files(self) -> FilesStatus:
        """How the conversation files are."""
        return self._backlog.status()

    def redis(self) -> RedisStatus:
        """How Redis is."""
        return self._short_term.status() if self._short_term is not None else RedisStatus("off")

    async def remember(self, conversation: ConversationId, turns: Sequence[Turn]) -> list[Turn]:
        """Appends turns in one step; returns what was written: turns not in the file yet, with ordinal and epoch.

        What the file does not take waits, and nothing is returned; what waited is written first, and returned too.
        Raises Forgotten where the person (in a shared group: the `user` of a turn) was forgotten meanwhile.
        """
        return await self._backlog.append(conversation, turns)

    async def _write(self, conversation: ConversationId, turns: Sequence[Turn], generation: int) -> list[Turn]:
        if self._short_term is None:
            return await self._store.append(conversation, turns, generation)
        before = await self._short_term.stamp(conversation)
        written = await self._store.append(conversation, turns, generation)
        await self._short_term.appended(conversation, before, written)
        await self._unless_forgotten(conversation, generation)
        return written

    async def _unless_forgotten(self, conversation: ConversationId, generation: int) -> None:
        """Takes out of Redis again what was put there from a file that is gone by now."""
        forgotten = self.generations.passed(generation, conversation.lane.user, str(conversation))
        if self._short_term is not None and forgotten:
            await self._short_term.forget(conversation)

    async def forget(self, user: str) -> tuple[Erased, bool]:
        """Removes all that is known of a person; what of it, and whether Redis holds nothing of theirs any more.

        Whatever was asked to be remembered before is refused from now on. The person's id only, not those linked to it.
        """
        self.generations.forget(user)
        await self._backlog.forget(user)
        erased = await self._store.run(lambda: self._eraser.erase(user))
        forget_items()
        forget_texts()
        gone = True
        if self._short_term is not None:
            for conversation in erased.touched:
                gone = await self._short_term.forget(conversation) and gone
        return erased, gone

    async def repair(self, conversations: Sequence[ConversationId] = ()) -> list[Mended]:
        """Checks and mends these conversations' files and archives, or all there are; then writes what waited for them."""
        found: list[Mended] = []
        if conversations:
            for conversation in conversations:
                found += await self._store.run(partial(self._mender.mend, conversation))
        else:
            for user in await self._store.run(self._mender.users):
                found += await self._store.run(partial(self._mender.mend_user, user))
        await self._backlog.retry()
        return found

    async def window(
        self,
        conversation: ConversationId,
        settings: WindowSettings,
        *,
        question: Turn | None,
        room: int,
        weigh: Weigh | None = None,
    ) -> Window:
        """What the model sees before `question`, which may be in the file already, with turns behind it.

        Without a question: what it would see with the next one. `room` is in tokens. With `weigh` the window comes
        with the summary of what is before it, if there is one and it leaves room for the question.
        """

        owed = self._backlog.turns(conversation)  # before the file is read: what is written meanwhile is seen once

        def build(tails: Tails) -> Window:
            merged = partial(Merged, conversation, owed, tails)
            return self._window(conversation, settings, question, room, weigh, tails=merged)

        if self._short_term is None:
            return await self._store.run(lambda: build(self._file(conversation)))
        generation = self.generations.now()
        window = await self._short_term.read(conversation, build)
        await self._unless_forgotten(conversation, generation)
        return window

    def _file(self, conversation: ConversationId) -> Tails:
        return partial(self._store.backwards, conversation)

    def _window(
        self,
        conversation: ConversationId,
        settings: WindowSettings,
        question: Turn | None,
        room: int,
        weigh: Weigh | None,
        *,
        tails: Tails,
    ) -> Window:
        with typed_errors(path_of(conversation)):
            if question is not None:
                with tails() as tail:
                    if any(question.id in (turn.id, *turn.ids) for turn in tail):
                        return self._beside(conversation, tail, settings, question=question, room=room, weigh=weigh)
            with tails() as tail:
                return self._beside(conversation, tail, settings, question=question, room=room, weigh=weigh)

    def _beside(
        self,
        conversation: ConversationId,
        tail: Tail,
        settings: WindowSettings,
        *,
        question: Turn | None,
        room: int,
        weigh: Weigh | None,
    ) -> Window:
        """The window over the turns `tail` still has, with the summary of what is before it."""
        text = voiced(question) if question is not None else None
        newest, turns = _numbered(tail)
        if weigh is None or newest is None:
            return _told(build_window(turns, question=text, settings=settings, room=room), tail)
        with self._archive.versions(conversation, newest.epoch, newest=newest.n) as versions:
            latest = next(versions, None)
            weight = weigh(latest.text) if latest else 0
            if latest and (0 if text is None else message_tokens(text)) > room - weight:
                latest = None  # the question comes first
            left = room - weight if latest else room
            window = _told(build_window(turns, question=text, settings=settings, room=left), tail)
            if latest is None:
                return window
            chosen = reaching(chain((latest,), versions), window.first) or latest
        if window.tokens + window.question_tokens + weigh(chosen.text) > room:
            chosen = latest
        return window.with_summary(chosen, weigh(chosen.text))

    async def profile(self, user: str) -> Profile:
        """What is known of a person beside what was said (see memory.profile)."""
        return await self._store.run(partial(self.profiles.read, user))

    # ---- summaries

    async def draft(
        self,
        conversation: ConversationId,
        window: WindowSettings,
        summary: SummarySettings,
        *,
        room: int,
        weigh: Weigh,
    ) -> Draft | None:
        """What is to be summarised now; None when no summary is due. `room` and `weigh` are those of `window`."""
        if self._backlog.turns(conversation):
            return None  # their ordinals are not known for certain yet
        generation = self.generations.now()
        draft = await self._store.run(lambda: self._draft(conversation, window, summary, room, weigh))
        return draft and replace(draft, generation=generation)

    def _draft(
        self, conversation: ConversationId, window: WindowSettings, summary: SummarySettings, room: int, weigh: Weigh
    ) -> Draft | None:
        next_window = self._window(conversation, window, None, room, weigh, tails=self._file(conversation))
        standing = self._standing(conversation, next_window, summary)
        reason = due(standing, summary) if standing else ""
        if standing is None or not reason:
            return None
        turns, upto = self._uncovered(conversation, standing), target(standing, summary)
        if not turns or turns[0].n > upto:
            return None
        return Draft(
            epoch=standing.epoch,
            previous=standing.last,
            turns=turns,
            upto=upto,
            after=self._archive.last_id(conversation),
            reason=reason,
        )

    def _uncovered(self, conversation: ConversationId, standing: Standing) -> tuple[Turn, ...]:
        """The oldest turns since the reset that no summary covers."""
        exact = standing.last is not None or standing.epoch == 0
        before = standing.after + 1 + MAX_ITEMS if exact else None  # a long history is passed over unread
        turns: deque[Turn] = deque(maxlen=MAX_ITEMS)
        tail = self._store.backwards(conversation, before=before, unlimited=True)
        with typed_errors(path_of(conversation)), tail:
            for turn in tail:
                if turn.role is Role.RESET or turn.n <= standing.after:
                    break
                turns.appendleft(turn)  # the newest ones go, where there are too many
        return tuple(turns)

    def _standing(self, conversation: ConversationId, window: Window, settings: SummarySettings) -> Standing | None:
        """None for a conversation without turns since its reset, or with such as have no ordinal yet."""
        with typed_errors(path_of(conversation)), self._store.backwards(conversation) as tail:
            newest = next(tail, None)
            if newest is None or newest.n < 0 or newest.role is Role.RESET:
                return None
            base, rounds, enough = newest.epoch - 1, 0, settings.keep + settings.every_messages
            for read, turn in enumerate(chain((newest,), tail)):
                if turn.role is Role.RESET:
                    base = turn.n
                    break
                if rounds >= settings.after_turns and read > enough:
                    break
                rounds += turn.role is Role.USER
        last = self._archive.summary_for(conversation, None, newest.epoch, newest=newest.n)
        gap = window.left_out(last.through if last else None)
        return Standing(
            epoch=newest.epoch, newest=newest.n, base=base, rounds=rounds, first=window.first, gap=gap, last=last
        )

    async def archive(
        self, conversation: ConversationId, summary: Summary, *, after: str | None, generation: int | None = None
    ) -> bool:
        """Keeps a summary if nothing has overtaken it; whether it did.

        Overtaken: a reset began another epoch, or `after` is no longer the id of the archive's newest version. Raises
        Forgotten where somebody whose turns it is made of was forgotten since `generation` (None: since this call).
        """
        asked = self.generations.now() if generation is None else generation
        return await self._store.run(lambda: self._keep(conversation, summary, after, asked))

    def _keep(self, conversation: ConversationId, summary: Summary, after: str | None, generation: int) -> bool:
        with self.generations.writing(generation, conversation.lane.user, str(conversation)):
            with typed_errors(path_of(conversation)), self._store.backwards(conversation) as tail:
                newest = next(tail, None)
            if newest is None or newest.epoch != summary.epoch:
                return False
            return self._archive.append(conversation, summary, after=after)

    # ---- answers, pages, files

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
            with Merged(conversation, owed, self._file(conversation)) as tail:
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

    async def files_of(self, lane: LaneKey) -> list[ConversationId]:
        """The conversations of this lane that have a file, or something that waits for it; one per agent."""
        return list(dict.fromkeys([*await self._store.files_of(lane), *self._backlog.of_lane(lane)]))

    async def scan(self) -> list[FileInfo]:
        """Every conversation file, to rebuild an index from."""
        return await self._store.scan()

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

    async def reset(self, conversation: ConversationId, id: str, at: str, reason: str = "new") -> None:
        """Begins afresh: nothing before is seen by the model again. Does nothing where there is nothing to end."""
        try:
            owed = self._backlog.turns(conversation)
            last = owed[-1] if owed else await self._store.last(conversation)
            ended = last is None or last.role is Role.RESET
        except StoreClosed:
            raise
        except StoreError:
            ended = False  # not known, so it is written behind whatever is there
        if not ended:
            await self.remember(conversation, [Turn(role=Role.RESET, text=reason, id=id, at=at)])

    async def close(self) -> None:
        """Waits for what runs; what was remembered is on the disk then, or was said to be not."""
        await self._backlog.close()
        await self._store.close()
        if self._short_term is not None:
            await self._short_term.close()


def _numbered(tail: Tail) -> tuple[Turn | None, Iterator[Turn]]:
    """The newest turn with an ordinal since the last reset, and all the turns that `tail` still had."""
    read: list[Turn] = []
    for turn in tail:
        read.append(turn)
        if turn.role is Role.RESET:
            break
        if turn.n >= 0:
            return turn, chain(read, tail)
    return None, chain(read, tail)


def _told(window: Window, tail: Tail) -> Window:
    """The window, told where reading stopped at its limits."""
    if tail.capped and tail.last is not None and window.not_read_before is None:
        return window.unread_from(tail.last)
    return window
