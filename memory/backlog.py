"""What could not be written into its conversation's file yet: kept in order, written once the file takes it.

So a disk that fails costs no answer. The turns wait in memory and, if the shelter takes them, where a restart finds
them. Both are bounded: over the bound the oldest turns of the conversation that owes most are given up, with an error
line for each loss and a count in the status.
"""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from memory.conversation import ConversationId, LaneKey, Turn
from memory.conversation_file import path_of
from memory.ending import clean
from memory.errors import StoreBusy, StoreClosed, StoreError, StoreFull, StoreUnavailable
from memory.generations import Forgotten, Generations
from memory.yamlform import write_item

log = logging.getLogger("sanqiao.memory")

MOST_IDS = 400
"""Ids of one conversation's turns that wait, a merged turn having many. So few that a repeat of all of them, with what
was appended behind them, is recognised by `ending.KNOWN_IDS`."""
TOTAL_BYTES = 64 << 20
ONE_TRY = 5.0
"""Seconds that the first try takes at most when the gateway starts, and the last one when it stops."""

Write = Callable[[ConversationId, Sequence[Turn], int], Awaitable[list[Turn]]]
"""Appends turns that were asked for in a generation (see memory.generations). Raises StoreError."""


class ShelterFailed(Exception):
    """The shelter could not do what it was asked; the message says why."""


class Shelter(Protocol):
    """Where turns outlive the process until their file takes them. Every method may raise ShelterFailed."""

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        """Keeps turns behind those it has; an id it has already stays as it is."""

    async def remove(self, conversation: ConversationId, ids: Sequence[str]) -> None:
        """Removes the turns with these ids."""

    async def load(self) -> list[tuple[ConversationId, Turn]]:
        """All turns it has, in the order in which they were kept."""

    async def forget(self, user: str) -> None:
        """Removes what is a person's, what they said in shared groups, and what answers it."""


class NoShelter:
    """Turns end with the process."""

    async def keep(self, conversation: ConversationId, turns: Sequence[Turn]) -> None:
        raise ShelterFailed("不在网关中运行，没有 gateway.db")

    async def remove(self, conversation: ConversationId, ids: Sequence[str]) -> None:
        """Has none."""

    async def load(self) -> list[tuple[ConversationId, Turn]]:
        """Has none."""
        return []

    async def forget(self, user: str) -> None:
        """Has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesStatus:
    """How the conversation files are: ``ok`` or ``failing``, and what an admin should do.

    `waiting` turns of `conversations` conversations are not in their files yet, `unsheltered` of them only in memory;
    `lost` were given up since the start. `set_aside`: how many originals (torn, damaged, changed by a person) went to the
    quarantine since then.
    """

    state: str = "ok"
    waiting: int = 0
    conversations: int = 0
    unsheltered: int = 0
    lost: int = 0
    set_aside: int = 0
    remedy: str = ""


@dataclass(slots=True)
class _Owed:
    turn: Turn
    bytes: int
    sheltered: bool = False


@dataclass(slots=True)
class _Debt:
    """What one conversation's file is owed, by id, and why; `bytes` and `ids` in all."""

    error: StoreError
    owed: dict[str, _Owed] = field(default_factory=dict)
    bytes: int = 0
    ids: int = 0

    def add(self, turn: Turn, *, sheltered: bool = False) -> None:
        """Puts a turn behind the others, if it is not among them."""
        if turn.id not in self.owed:
            owed = self.owed[turn.id] = _Owed(turn, len(write_item(turn)), sheltered)
            self.bytes += owed.bytes
            self.ids += len(_ids(turn))

    def take(self, id: str) -> _Owed | None:
        """Takes a turn out; None if it is not there."""
        owed = self.owed.pop(id, None)
        if owed is not None:
            self.bytes -= owed.bytes
            self.ids -= len(_ids(owed.turn))
        return owed


def _remedy(error: StoreError) -> str:
    if isinstance(error, StoreFull):
        return "磁盘或配额已满；请清理空间，之后会自动补写"
    if isinstance(error, StoreBusy):
        return "会话文件被另一个进程占用；请检查是否有两个网关，之后会自动补写"
    return "有会话文件无法写入；日志里有路径，请检查文件类型、权限和磁盘，之后会自动补写"


class Backlog:
    """Writes turns, or keeps them until they can be written. Belongs to one event loop; `turns` may be called anywhere."""

    def __init__(self, write: Write, shelter: Shelter, generations: Generations) -> None:
        self._write = write
        self._shelter = shelter
        self._generations = generations
        self._debts: dict[ConversationId, _Debt] = {}
        self._settled: dict[ConversationId, list[str]] = {}
        self._locks: weakref.WeakValueDictionary[ConversationId, asyncio.Lock] = weakref.WeakValueDictionary()
        self._lost = 0
        self._shelter_fails = False

    async def append(
        self, conversation: ConversationId, turns: Sequence[Turn], write: Write | None = None
    ) -> list[Turn]:
        """Writes `turns` behind what waits, all in one step; returns what was written, without `turns` if they wait.

        `write` is used in the place of the backlog's own. Raises Forgotten, and StoreClosed.
        """
        if not turns:
            return []
        generation = self._generations.now()
        async with self._lock(conversation):
            while True:
                waiting = self.turns(conversation)
                try:
                    written = await self._attempt(conversation, (*waiting, *turns), generation, write or self._write)
                except StoreClosed:
                    raise
                except StoreError as error:
                    struck = self._generations.struck(conversation, turns)
                    if struck or self._generations.passed(generation, *_names(conversation, turns)):
                        raise Forgotten("资料已应要求删除，不再写入") from error
                    if isinstance(error, Forgotten):
                        continue  # of somebody or something else that waited, and does not any more
                    self._put(conversation, turns, error)
                    await self._keep(conversation)
                    return []
                if waiting:
                    await self._settle(conversation, waiting)
                return written

    async def _attempt(
        self, conversation: ConversationId, turns: Sequence[Turn], generation: int, write: Write
    ) -> list[Turn]:
        debt = self._debts.get(conversation)
        if debt is not None and isinstance(debt.error, StoreBusy):
            raise debt.error  # each try may take seconds: `retry` makes them
        return await write(conversation, turns, generation)

    def _lock(self, conversation: ConversationId) -> asyncio.Lock:
        return self._locks.setdefault(conversation, asyncio.Lock())

    # ---- what waits

    def turns(self, conversation: ConversationId) -> tuple[Turn, ...]:
        """What waits for this conversation's file, oldest first; without ordinals."""
        debt = self._debts.get(conversation)
        return tuple(each.turn for each in tuple(debt.owed.values())) if debt else ()

    def of_lane(self, lane: LaneKey) -> Iterator[ConversationId]:
        """The conversations of this lane for which something waits."""
        return (conversation for conversation in self._debts if conversation.lane == lane)

    @property
    def well(self) -> bool:
        """Whether nothing waits."""
        return not self._debts

    def status(self) -> FilesStatus:
        """How the files are."""
        owed = [each for debt in self._debts.values() for each in debt.owed.values()]
        newest = next(reversed(self._debts.values()), None)
        return FilesStatus(
            state="failing" if newest else "ok",
            waiting=len(owed),
            conversations=len(self._debts),
            unsheltered=sum(not each.sheltered for each in owed),
            lost=self._lost,
            remedy=_remedy(newest.error) if newest else "",
        )

    def _put(self, conversation: ConversationId, turns: Sequence[Turn], error: StoreError) -> None:
        debt = self._debts.get(conversation)
        if debt is None:
            debt = self._debts[conversation] = _Debt(error)
            log.error("file_failing path=%s error=%s", path_of(conversation), error)
        debt.error = error
        for turn in map(clean, turns):
            debt.add(turn)
        while debt.ids > MOST_IDS and len(debt.owed) > 1:
            self._give_up(conversation)
        while sum(each.bytes for each in self._debts.values()) > TOTAL_BYTES:
            self._give_up(max(self._debts, key=lambda each: self._debts[each].bytes))

    def _give_up(self, conversation: ConversationId) -> None:
        debt = self._debts[conversation]
        oldest = next(iter(debt.owed))
        given_up = debt.take(oldest)
        if given_up and given_up.sheltered:
            self._settled.setdefault(conversation, []).append(oldest)
        self._lost += 1
        log.error("turn_lost path=%s turn=%s waiting=%d: 等待写入的太多", path_of(conversation), oldest, len(debt.owed))

    # ---- the shelter

    async def load(self) -> None:
        """Takes up what an earlier process left in the shelter, and tries to write it."""
        try:
            left = await self._shelter.load()
        except ShelterFailed as error:
            log.error("shelter_not_read error=%s", error)
            return
        for conversation, turn in left:
            debt = self._debts.setdefault(conversation, _Debt(StoreError("上次停止前未能写入")))
            debt.add(turn, sheltered=True)
        await self._retry_briefly()

    async def _retry_briefly(self) -> None:
        try:
            async with asyncio.timeout(ONE_TRY):
                await self.retry()
        except TimeoutError:
            log.warning("files_still_failing waiting=%d", self.status().waiting)

    async def _keep(self, conversation: ConversationId) -> None:
        """Puts into the shelter what is not in it yet."""
        await self._clear(conversation)
        debt = self._debts.get(conversation)  # after the wait: the person may have been forgotten meanwhile
        new = [each for each in debt.owed.values() if not each.sheltered] if debt else []
        if new and await self._sheltering(self._shelter.keep(conversation, [each.turn for each in new])):
            for each in new:
                each.sheltered = True

    async def _clear(self, conversation: ConversationId) -> None:
        """Takes out of the shelter what need not be in it any more, sooner or later."""
        ids = self._settled.pop(conversation, [])
        if not ids:
            return
        removed = False
        try:
            removed = await self._sheltering(self._shelter.remove(conversation, ids))
        finally:
            if not removed:
                self._settled.setdefault(conversation, []).extend(ids)

    async def _sheltering(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except ShelterFailed as error:
            if not self._shelter_fails:
                log.error("shelter_failing error=%s: 未写入文件的对话只在内存里", error)
            self._shelter_fails = True
            return False
        self._shelter_fails = False
        return True

    # ---- once the file takes it

    async def _settle(self, conversation: ConversationId, written: Sequence[Turn]) -> None:
        debt = self._debts.get(conversation)
        if debt is None:  # forgotten meanwhile
            return
        done = [owed for turn in written if (owed := debt.take(turn.id)) is not None]
        sheltered = [each.turn.id for each in done if each.sheltered]
        if sheltered:
            self._settled.setdefault(conversation, []).extend(sheltered)
        if not debt.owed:
            del self._debts[conversation]
            log.warning("file_well path=%s written=%d", path_of(conversation), len(done))
        await self._clear(conversation)

    async def retry(self) -> None:
        """Tries to write all that waits, each conversation by itself."""
        for conversation in tuple(self._debts):
            await self._try(conversation)
        for conversation in tuple(self._settled):
            await self._clear(conversation)

    async def _try(self, conversation: ConversationId) -> None:
        async with self._lock(conversation):
            waiting, generation = self.turns(conversation), self._generations.now()
            if not waiting:
                self._debts.pop(conversation, None)
                return
            try:
                await self._write(conversation, waiting, generation)
            except StoreClosed:
                raise
            except StoreError as error:  # Forgotten too: then nothing waits any more
                if (debt := self._debts.get(conversation)) is not None:
                    debt.error = error
                await self._keep(conversation)
            else:
                await self._settle(conversation, waiting)

    async def close(self) -> None:
        """Tries a last time; what is then neither in its file nor in the shelter ends with the process, loudly."""
        await self._retry_briefly()
        for conversation in tuple(self._debts):
            await self._keep(conversation)
        for conversation, debt in self._debts.items():
            lost = sum(not each.sheltered for each in debt.owed.values())
            if lost:
                log.error("turns_lost path=%s turns=%d error=%s", path_of(conversation), lost, debt.error)
            else:
                log.warning("turns_kept path=%s turns=%d: 下次启动时补写", path_of(conversation), len(debt.owed))

    # ---- forgetting

    async def forget(self, user: str) -> None:
        """Drops what waits of a person, also in shared groups: at once in memory, then in the shelter.

        Raises StoreUnavailable where the shelter fails.
        """
        for conversation, debt in tuple(self._debts.items()):
            own = conversation.lane.user == user
            asked = {name for each in debt.owed.values() if each.turn.user == user for name in _ids(each.turn)}
            for name, each in tuple(debt.owed.items()):
                if own or each.turn.user == user or each.turn.to in asked:
                    debt.take(name)
            if not debt.owed:
                del self._debts[conversation]
        try:
            await self._shelter.forget(user)
        except ShelterFailed as error:
            raise StoreUnavailable(f"待写入的对话未能删除：{error}；请检查磁盘后再试") from error

    async def forget_turn(self, conversation: ConversationId, question: str) -> None:
        """Drops a question that waits, and what waits to answer it. Raises StoreUnavailable where the shelter fails."""
        debt = self._debts.get(conversation)
        theirs = [turn.id for turn in self.turns(conversation) if question in (turn.id, turn.to)]
        if debt is None or not theirs:
            return
        for name in theirs:
            debt.take(name)
        if not debt.owed:
            del self._debts[conversation]
        try:
            await self._shelter.remove(conversation, theirs)
        except ShelterFailed as error:
            raise StoreUnavailable(f"待写入的对话未能删除：{error}；请检查磁盘后再试") from error


def _ids(turn: Turn) -> tuple[str, ...]:
    return (turn.id, *turn.ids)


def _names(conversation: ConversationId, turns: Sequence[Turn]) -> set[str]:
    return {conversation.lane.user, *(turn.user for turn in turns if turn.user)}
