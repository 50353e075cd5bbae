"""The conversation files: appended to one write at a time, read from the end, listed from the folders."""

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from memory.appending import Appender
from memory.conversation import ConversationId, InvalidId, LaneKey, Role, Turn
from memory.conversation_file import FOLDER, path_of
from memory.errors import StoreBusy, StoreClosed, StoreError, typed_errors
from memory.folder import open_file, opened_folder
from memory.generations import Forgotten, Generations, Held
from memory.overlooked import Overlooked, overlooked
from memory.recent import Kept, Recent, RecentTail, stamp_of
from memory.steps import Steps, at_once
from memory.tail import Backwards, Tail, read_range, whole
from memory.workers import Together, Workers

log = logging.getLogger("sanqiao.memory")

DURABILITIES = ("sync", "batch", "none")
BATCH = 0.05
"""Seconds within which an append of durability ``batch`` is put on the disk."""

LONG = 8
"""Threads for what may take seconds: rewriting, reading whole files, waiting for another process."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One conversation file: its id, number of turns (reset marks are none), time of the last item (ISO 8601, "" if
    unknown), bytes.
    """

    id: ConversationId
    turns: int
    last: str
    bytes: int


class ConversationStore:
    """All conversation files of one workspace. Coroutines belong to one event loop; the rest to worker threads."""

    def __init__(
        self,
        workspace: Path,
        *,
        durability: str = "sync",
        threads: int = 2,
        generations: Generations | None = None,
    ) -> None:
        if durability not in DURABILITIES:
            raise ValueError(f"durability: {durability!r} is none of {', '.join(DURABILITIES)}")
        self._workspace = workspace
        self._durability = durability
        self.recent = Recent()
        self.appender = Appender(workspace, sync=durability == "sync", recent=self.recent)
        self.generations = generations or Generations()
        self._workers = Workers(threads, "conversation-files")
        self._long = Workers(LONG, "conversation-files-long")
        self._appends = Together("conversation-appends")
        self._appending: set[asyncio.Task[list[Turn]]] = set()
        self._locks: weakref.WeakValueDictionary[ConversationId, asyncio.Lock] = weakref.WeakValueDictionary()
        self._unsynced: set[ConversationId] = set()
        self._syncing: asyncio.Task[None] | None = None
        self._closed = False

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Runs `work` in the store's threads; once begun it goes on to its end even if the caller is cancelled.

        Raises StoreClosed once the store is closed.
        """
        if self._closed:
            raise self._is_closed()
        return await self._workers.run(work)

    async def run_long(self, work: Callable[[], _Result]) -> _Result:
        """As `run`, for work that may take seconds: it keeps no message of others waiting."""
        if self._closed:
            raise self._is_closed()
        return await self._long.run(work)

    def _is_closed(self) -> StoreClosed:
        return StoreClosed(f"会话文件已关闭（{self._workspace}）；网关正在停止")

    # ---- writing

    async def append(
        self,
        conversation: ConversationId,
        turns: Sequence[Turn],
        generation: int | None = None,
        behind: Callable[[], None] | None = None,
    ) -> list[Turn]:
        """Appends `turns` in one write; returns those that were written, with ordinal and epoch.

        `behind` is run behind the write in the same thread; it must not raise.

        Left out are turns whose id is among the file's newest ones. Returns when they are as durable as `durability`
        says: ``sync`` on the disk, ``batch`` within `BATCH` seconds, ``none`` when the system likes. Raises
        StoreError; then none of them is in the file. Cancelled, they may or may not be in it. Raises Forgotten where
        the conversation's person was forgotten since `generation` (None: since this call), or in a shared one whoever a
        turn names as `user`; and where the question of a turn was, however long ago.
        """
        if not turns:
            return []
        if self._closed:
            raise self._is_closed()
        asked = self.generations.now() if generation is None else generation
        task = asyncio.create_task(
            self._append_in_turn(conversation, partial(self._append, conversation, turns, asked, behind))
        )
        self._appending.add(task)
        task.add_done_callback(self._appending.discard)
        written = await asyncio.shield(task)  # whoever gives up leaves the next one waiting for what is being written
        if self._unsynced and not self._closed and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.create_task(self._sync_soon())
        return written

    async def _append_in_turn(
        self, conversation: ConversationId, append: Callable[..., Steps[list[Turn]]]
    ) -> list[Turn]:
        lock = self._locks.setdefault(conversation, asyncio.Lock())
        async with lock:
            try:
                return await self._appends.run_steps(partial(append, wait=False))
            except (Held, StoreBusy):  # somebody else has the folder or the file, or it takes long
                return await self._long.run(lambda: at_once(append(wait=True)))

    def _append(
        self,
        conversation: ConversationId,
        turns: Sequence[Turn],
        generation: int,
        behind: Callable[[], None] | None,
        *,
        wait: bool,
    ) -> Steps[list[Turn]]:
        speakers = {turn.user for turn in turns if turn.user}
        with self.generations.writing(generation, conversation.lane.user, *speakers, wait=wait):
            if self.generations.struck(conversation, turns):
                raise Forgotten("这一轮已应要求删除，不再写入")
            written = yield from self.appender.appending(conversation, turns, wait=wait)
        if written and self._durability == "batch":
            self._unsynced.add(conversation)
        if behind is not None:
            behind()
        return written

    async def _sync_soon(self) -> None:
        """Puts on the disk what was appended meanwhile; owned by the store, awaited by `close`."""
        while self._unsynced:
            await asyncio.sleep(BATCH)
            await self._workers.run(self._sync_all)

    def _sync_all(self) -> None:
        while self._unsynced:
            conversation = self._unsynced.pop()
            try:
                self.appender.sync(conversation)
            except StoreError as error:
                log.error("file_not_synced path=%s error=%s", path_of(conversation), error)

    async def close(self) -> None:
        """Waits for what runs, and puts on the disk what is not there yet. Calls after it raise StoreClosed."""
        self._closed = True
        if self._syncing is not None:
            await self._syncing
        if self._appending:
            await asyncio.wait(self._appending)
        await asyncio.to_thread(self._appends.join)
        await asyncio.to_thread(self._workers.join)
        await asyncio.to_thread(self._long.join)
        await asyncio.to_thread(self._sync_all)

    # ---- reading, in worker threads

    def backwards(self, conversation: ConversationId, *, before: int | None = None, unlimited: bool = False) -> Tail:
        """The turns, newest first; none if there is no file. Close it (context manager). Raises StoreError.

        `before` passes over turns whose ordinal is not below it. `unlimited` reads on to the file's start.
        """
        if before is None and not unlimited:
            return RecentTail(self.recent, conversation, self._kept(conversation), lambda: self._open(conversation))
        fd = self._open(conversation)
        try:
            return Backwards(fd, limited=not unlimited, before=before)
        except BaseException:
            if fd is not None:
                os.close(fd)
            raise

    def _kept(self, conversation: ConversationId) -> Kept | None:
        """What is kept of the file, if that is still the same. By its inode it is the one that was opened safely."""
        kept = self.recent.get(conversation)
        if kept is not None:
            with contextlib.suppress(OSError):
                if stamp_of(os.stat(self._path(conversation), follow_symlinks=False)) == kept.stamp:
                    return kept
        return None

    def _path(self, conversation: ConversationId) -> str:
        return f"{self._workspace}/{path_of(conversation)}"

    def full(self, conversation: ConversationId) -> list[Turn]:
        """Every turn in order, by reading the whole file: for repairs and tests. Raises StoreError."""
        with typed_errors(path_of(conversation)):
            fd = self._open(conversation)
            if fd is None:
                return []
            try:
                return whole(read_range(fd, os.fstat(fd).st_size, 0))
            finally:
                os.close(fd)

    def _open(self, conversation: ConversationId) -> int | None:
        where = opened_folder(self._workspace, FOLDER, conversation.lane.user)
        with typed_errors(path_of(conversation)), contextlib.suppress(FileNotFoundError), where as folder:
            return open_file(folder, conversation.file_name, os.O_RDONLY)
        return None

    # ---- reading, from the event loop

    async def history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn]:
        """The newest `limit` turns with an ordinal below `before` (None: of all), in the file's order.

        Raises StoreError.
        """
        return await self.run_long(lambda: self._history(conversation, before, limit))

    def _history(self, conversation: ConversationId, before: int | None, limit: int) -> list[Turn]:
        page: list[Turn] = []
        with typed_errors(path_of(conversation)), self.backwards(conversation, before=before, unlimited=True) as tail:
            while len(page) < limit and (turn := next(tail, None)) is not None:
                page.append(turn)
        if any(turn.n < 0 for turn in page):  # a person's file, not adopted yet: its ordinals are its places
            turns = [replace(turn, n=n) for n, turn in enumerate(self.full(conversation))]
            return [turn for turn in turns if before is None or turn.n < before][-limit:]
        return page[::-1]

    async def answer_to(self, conversation: ConversationId, question: str) -> list[Turn]:
        """The turns that belong to the user turn with this id, in order; [] if none stands in the file's tail.

        Raises StoreError.
        """
        return await self.run(lambda: self._answer_to(conversation, question))

    def _answer_to(self, conversation: ConversationId, question: str) -> list[Turn]:
        found: list[Turn] = []
        with typed_errors(path_of(conversation)), self.backwards(conversation) as tail:
            for turn in tail:
                if turn.to == question:
                    found.append(turn)
                elif turn.role is Role.USER and question in (turn.id, *turn.ids):
                    break
        return found[::-1]

    async def last(self, conversation: ConversationId) -> Turn | None:
        """The newest turn; None without a file or a readable turn. Raises StoreError."""
        return await self.run(lambda: self._last(conversation))

    def _last(self, conversation: ConversationId) -> Turn | None:
        with typed_errors(path_of(conversation)), self.backwards(conversation) as tail:
            return next(tail, None)

    # ---- listing

    async def info(self, conversation: ConversationId) -> FileInfo | None:
        """What `scan` tells of one conversation; None without a file. Raises StoreError."""
        return await self.run(lambda: self._info(conversation))

    def _info(self, conversation: ConversationId) -> FileInfo | None:
        fd = self._open(conversation)
        if fd is None:
            return None
        with typed_errors(path_of(conversation)):
            size = os.fstat(fd).st_size
            with Backwards(fd) as tail:
                last = next(tail, None)
        if last is not None and last.n >= 0 and last.epoch >= 0:
            turns = max(0, last.n + 1 - last.epoch)
        else:
            turns = sum(turn.role is not Role.RESET for turn in self.full(conversation))
        return FileInfo(id=conversation, turns=turns, last=last.at if last else "", bytes=size)

    async def overlooked(self, conversation: ConversationId, turns: int) -> Overlooked:
        """What of the file a reader of its newest `turns` passes over. Raises StoreError."""
        return await self.run_long(lambda: self._overlooked(conversation, turns))

    def _overlooked(self, conversation: ConversationId, turns: int) -> Overlooked:
        with typed_errors(path_of(conversation)):
            fd = self._open(conversation)
            if fd is None:
                return Overlooked()
            try:
                return overlooked(fd, turns)
            finally:
                os.close(fd)

    async def files_of(self, lane: LaneKey) -> list[ConversationId]:
        """The conversations of this lane that have a file, one per agent, by name. Raises StoreError."""
        ids = await self.run(lambda: self._of_user(lane.user))
        return [found for found in ids if found.lane == lane]

    async def scan(self) -> list[FileInfo]:
        """Every conversation file; one that cannot be read is left out and logged. Raises StoreError."""
        users = await self.run_long(self._users)
        found: list[FileInfo] = []
        for user in users:
            found.extend(await self.run_long(partial(self._infos, user)))
        return found

    def _users(self) -> list[str]:
        where = opened_folder(self._workspace, FOLDER)
        with typed_errors(FOLDER), contextlib.suppress(FileNotFoundError), where as folder:
            return sorted(os.listdir(folder))
        return []

    def _of_user(self, user: str) -> list[ConversationId]:
        where = opened_folder(self._workspace, FOLDER, user)
        no_folder = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with typed_errors(f"{FOLDER}/{user}"), no_folder, where as folder:
            return list(_ids(user, sorted(os.listdir(folder))))
        return []

    def _infos(self, user: str) -> list[FileInfo]:
        found: list[FileInfo] = []
        try:
            conversations = self._of_user(user)
        except StoreError as error:
            log.error("folder_not_listed path=%s/%s error=%s", FOLDER, user, error)
            return found
        for conversation in conversations:
            try:
                info = self._info(conversation)
            except StoreError as error:
                log.error("file_not_listed path=%s error=%s", path_of(conversation), error)
                continue
            if info is not None:
                found.append(info)
        return found


def _ids(user: str, names: Sequence[str]) -> Iterator[ConversationId]:
    """The conversations whose files these are; other names (editors' backups …) are none."""
    for name in names:
        with contextlib.suppress(InvalidId):
            yield ConversationId.of_file(user, name)
