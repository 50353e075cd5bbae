"""The one door to what was said: remember turns, see the window, find answers, turn pages."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from memory.archive import Newest, SummaryArchive
from memory.backlog import Backlog, FilesStatus, NoShelter, Shelter
from memory.conversation import ConversationId, LaneKey, Role, Turn
from memory.drafting import Draft, Drafter
from memory.erasing import Erased, Eraser, Struck
from memory.errors import StoreError
from memory.generations import Generations, question_name
from memory.mended import Mended
from memory.mending import Mender
from memory.merged import Merged
from memory.overlooked import Overlooked
from memory.person import Links, Persons
from memory.profile import Profile, Profiles
from memory.reading import Reader
from memory.recent import Kept, KeptTail
from memory.redis_link import RedisSettings, RedisStatus
from memory.short_term import ShortTerm
from memory.store import ConversationStore, FileInfo
from memory.summary import Summary, SummarySettings
from memory.tail import NotKept, Tail, Tails
from memory.tokens import forget_texts
from memory.viewing import Viewer, Weigh
from memory.window import Window, WindowSettings
from memory.yamlform import forget_items

log = logging.getLogger("sanqiao.memory")


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the answer to a question needs, as it was when the question was stored; empty where that was not looked up."""

    kept: Kept | None = None
    versions: Newest = field(default_factory=Newest)
    profile: Profile | None = None
    generation: int = 0
    """When it was looked up (see memory.generations): what was forgotten since is in it."""

    def tail(self) -> Tail:
        """The newest turns, without a look at the file. Taking more than were kept raises NotKept."""
        assert self.kept is not None
        return KeptTail(self.kept)


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
        self.persons = Persons(workspace, self.generations)
        self.profiles = Profiles(workspace, self.generations, self.persons)
        self._store = ConversationStore(workspace, durability=durability, generations=self.generations)
        self._archive = SummaryArchive(workspace, sync=durability == "sync")
        self._eraser = Eraser(workspace, self._store.appender, self._archive, self.generations)
        self._mender = Mender(workspace, self._store.appender, self._archive, self.generations)
        on = redis is not None and redis.url.get_secret_value()
        self._short_term = ShortTerm(redis, workspace, self._store) if redis and on else None
        self._backlog = Backlog(self._write, shelter or NoShelter(), self.generations)
        self._viewer = Viewer(self._archive)
        self._drafter = Drafter(self._store, self._archive, self._viewer)
        self._reader = Reader(self._store, self._backlog)

    async def open(self) -> None:
        """Finds out whether Redis is well, where one is set, and who is who; writes what an earlier process could not."""
        if self._short_term is not None:
            await self._short_term.open()
        try:
            await self.read_links()
        except StoreError as error:
            log.error("links not read, accounts stand alone for now reason=%s", error)
        await self._backlog.load()

    async def keep_trying(self, pause: Callable[[], float]) -> None:
        """Writes what waits for its file and deletes what Redis still holds of the forgotten, until it is cancelled.

        Tries are `pause()` seconds apart.
        """
        while True:
            await asyncio.sleep(pause())
            await self._backlog.retry()
            if self._short_term is not None:
                await self._short_term.catch_up()

    def files_well(self) -> bool:
        """Whether every file has taken all that was remembered."""
        return self._backlog.well

    def files(self) -> FilesStatus:
        """How the conversation files are."""
        return replace(self._backlog.status(), set_aside=self._store.appender.set_aside)

    def redis(self) -> RedisStatus:
        """How Redis is."""
        return self._short_term.status() if self._short_term is not None else RedisStatus("off")

    async def remember(self, conversation: ConversationId, turns: Sequence[Turn]) -> list[Turn]:
        """Appends turns in one step; returns what was written: turns not in the file yet, with ordinal and epoch.

        What the file does not take waits, and nothing is returned; what waited is written first, and returned too.
        Raises Forgotten where the person (in a shared group: the `user` of a turn) was forgotten meanwhile.
        """
        return await self._backlog.append(conversation, turns)

    async def ask(self, conversation: ConversationId, question: Turn) -> Ahead:
        """As `remember`, for a turn that is to be answered; what the answer needs is looked up in the same step.

        Only where nothing is in the way: no Redis, nothing that waits for its file, a question that is new.
        """
        if self._short_term is not None:
            await self.remember(conversation, [question])
            return Ahead()
        found: list[Ahead] = []
        generation = self.generations.now()

        def look() -> None:
            kept, user = self._store.recent.get(conversation), conversation.lane.user
            if kept is not None and kept.turns and kept.turns[0].id == question.id:
                with contextlib.suppress(StoreError):
                    newest = self._archive.newest(conversation)
                    found.append(Ahead(kept, newest, self.profiles.read(user), generation))

        async def write(conversation: ConversationId, turns: Sequence[Turn], generation: int) -> list[Turn]:
            return await self._store.append(conversation, turns, generation, look)

        await self._backlog.append(conversation, [question], write)
        return found[0] if found else Ahead()

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

        Whatever was asked to be remembered before is refused from now on. This account only, not those linked to it.
        What fails keeps nothing else from going; asking again removes the rest.
        """
        self.generations.forget(user)
        await self._backlog.forget(user)
        try:
            erased = await self._store.run_long(lambda: self._eraser.erase(user))
        except StoreError:
            await self._out_of_mind(user, ())
            raise
        gone = await self._out_of_mind(user, erased.touched)
        if erased.failure is not None:
            raise erased.failure
        return erased, gone

    async def forget_turn(self, conversation: ConversationId, question: str) -> tuple[Struck, bool]:
        """Replaces a question and all that answers it by tombstones; what of it, and whether Redis holds nothing of it.

        Whatever is asked to be remembered of it is refused from now on. What tells of it elsewhere goes before it does,
        so asking again after a failure removes the rest; once all is gone there is nothing to do.
        """
        self.generations.forget(question_name(conversation, question))
        await self._backlog.forget_turn(conversation, question)
        struck = await self._store.run_long(partial(self._eraser.strike, conversation, question))
        self._store.recent.drop(conversation)
        self._archive.clear()
        forget_items()
        forget_texts()
        return struck, self._short_term is None or await self._short_term.forget(conversation)

    async def _out_of_mind(self, user: str, touched: Sequence[ConversationId]) -> bool:
        """Empties what stands before the files; whether Redis holds nothing any more."""
        for each in (self._store.recent, self._archive):
            each.clear()
        forget_items()
        forget_texts()
        return self._short_term is None or await self._short_term.forget_person(user, touched)

    async def repair(self, conversations: Sequence[ConversationId] = ()) -> list[Mended]:
        """Checks and mends these conversations' files and archives, or all there are; then writes what waited for them."""
        found: list[Mended] = []
        if conversations:
            for conversation in conversations:
                found += await self._store.run_long(partial(self._mender.mend, conversation))
        else:
            for user in await self._store.run_long(self._mender.users):
                found += await self._store.run_long(partial(self._mender.mend_user, user))
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
        ahead: Ahead | None = None,
    ) -> Window:
        """What the model sees before `question`, which may be in the file already, with turns behind it.

        Without a question: what it would see with the next one. `room` is in tokens. With `weigh` the window comes
        with the summary of what is before it, if there is one and it leaves room for the question. `ahead` is what
        `ask` gave a moment ago.
        """
        names = (conversation.lane.user, str(conversation))
        if ahead is not None and ahead.kept is not None and not self.generations.passed(ahead.generation, *names):
            with contextlib.suppress(NotKept):
                return self._viewer.window(
                    conversation, settings, question, room, weigh, tails=ahead.tail, versions=ahead.versions.of_epoch
                )
        owed = self._backlog.turns(conversation)  # before the file is read: what is written meanwhile is seen once

        def build(tails: Tails) -> Window:
            merged = partial(Merged, conversation, owed, tails)
            return self._viewer.window(conversation, settings, question, room, weigh, tails=merged)

        if self._short_term is None:
            return await self._store.run(lambda: build(partial(self._store.backwards, conversation)))
        generation = self.generations.now()
        window = await self._short_term.read(conversation, build)
        await self._unless_forgotten(conversation, generation)
        return window

    async def profile(self, user: str) -> Profile:
        """What is known of a person beside what was said (see memory.profile)."""
        return await self._store.run(partial(self.profiles.read, user))

    async def read_links(self) -> Links:
        """Which accounts are one person, as their files say now (see memory.person)."""
        return await self._store.run(self.persons.refresh)

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
        return await self._store.run(lambda: self._drafter.draft(conversation, window, summary, room, weigh))

    async def archive(
        self, conversation: ConversationId, summary: Summary, *, after: str | None, generation: int | None = None
    ) -> bool:
        """Keeps a summary if nothing has overtaken it; whether it did.

        Overtaken: a reset began another epoch, or `after` is no longer the id of the archive's newest version. Raises
        Forgotten where somebody whose turns it is made of was forgotten since `generation` (None: since this call).
        """
        asked = self.generations.now() if generation is None else generation
        return await self._store.run(lambda: self._drafter.keep(conversation, summary, after, asked))

    async def summarised(self, conversations: Sequence[ConversationId]) -> frozenset[ConversationId]:
        """Those of them that have summaries."""
        return await self._store.run(lambda: frozenset(filter(self._archive.exists, conversations)))

    # ---- answers, pages, files

    async def answer_to(self, conversation: ConversationId, question: str) -> list[Turn]:
        """The turns that answer the user turn with this id, in order; [] if there are none yet, or the file is unreadable."""
        return await self._reader.answer_to(conversation, question)

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn]:
        """A page: the newest `limit` turns with an ordinal below `before` (None: of all), in the file's order."""
        return await self._reader.history(conversation, before, limit)

    async def question(self, conversation: ConversationId, id: str) -> Turn | None:
        """The user turn with this id, wherever in the file it stands; None if there is none."""
        return await self._reader.question(conversation, id)

    async def files_of(self, lane: LaneKey) -> list[ConversationId]:
        """The conversations of this lane that have a file, or something that waits for it; one per agent."""
        return await self._reader.files_of(lane)

    async def scan(self) -> list[FileInfo]:
        """Every conversation file, to rebuild an index from."""
        return await self._store.scan()

    async def info(self, conversation: ConversationId) -> FileInfo | None:
        """One conversation file; None if there is none."""
        return await self._reader.info(conversation)

    async def overlooked(self, conversation: ConversationId, window: Window) -> Overlooked:
        """What this window of its passes over in the file, for admins."""
        visited = sum(len(message.ids) for message in window.messages) + len(window.dropped)
        return await self._store.overlooked(conversation, visited)

    async def reset(self, conversation: ConversationId, id: str, at: str, reason: str = "new") -> None:
        """Begins afresh: nothing before is seen by the model again. Does nothing where there is nothing to end."""
        if not await self._reader.ended(conversation):  # not known: written behind whatever is there
            await self.remember(conversation, [Turn(role=Role.RESET, text=reason, id=id, at=at)])

    async def close(self) -> None:
        """Waits for what runs; what was remembered is on the disk then, or was said to be not."""
        await self._backlog.close()
        await self._store.close()
        if self._short_term is not None:
            await self._short_term.close()
