"""The short-term store: the newest turns of conversations in Redis, beside the files and never instead of them.

Beside each list stands the state of the file it was made of. What does not fit this state, is damaged or does not
reach far enough back is read from the file, and written anew. So a window over Redis is the window over the file.
"""

import contextlib
import math
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memory.conversation import ConversationId, Turn
from memory.conversation_file import FOLDER
from memory.errors import StoreError
from memory.folder import open_file, opened_folder
from memory.redis_deletions import Deletions, keys_of
from memory.redis_link import RedisLink, RedisSettings, RedisStatus
from memory.redis_list import START, UNKNOWN, Damaged, Listing, Stamp, State, chained
from memory.store import ConversationStore
from memory.tail import MAX_BYTES, Chunks, NotKept, Tails, pieces, sound_size
from memory.yamlform import write_item

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.client import Pipeline

LONGEST = 128
"""Turns a list holds. The longest window of a shipped preset has 40 messages; with the 32 turns that are looked at for
repeats beyond it, half of this list is left for acknowledgements, tool turns and the first round that no longer fits.
A longer window is read from the file."""

_Result = TypeVar("_Result")


async def _results(pipe: "Pipeline") -> list[Any]:
    """What the commands gave; None where a key holds something else than we put there. Raises RedisError."""
    found = await pipe.execute(raise_on_error=False)
    for each in found:
        if isinstance(each, Exception) and not str(each).startswith("WRONGTYPE"):
            raise each
    return [None if isinstance(each, Exception) else each for each in found]


class ShortTerm:
    """Newest turns in Redis. No method raises for anything that Redis does."""

    def __init__(self, settings: RedisSettings, workspace: Path, store: ConversationStore) -> None:
        self._prefix = settings.prefix
        self._ttl = math.ceil(settings.ttl * 1000)
        self._workspace = workspace
        self._store = store
        self._link = RedisLink(settings)
        self._deletions = Deletions(self._link, settings.prefix)

    async def open(self) -> None:
        """Finds out whether Redis is well."""
        await self._link.attempt(lambda client: client.delete(f"{self._prefix}state:"))

    async def close(self) -> None:
        """Closes the connections."""
        await self._link.close()

    def status(self) -> RedisStatus:
        """How Redis is."""
        return self._link.status()

    # ---- the file's side

    async def stamp(self, conversation: ConversationId) -> Stamp | None:
        """The file before an append; None without one, or while Redis is left alone. Raises StoreUnavailable."""
        return await self._store.run(lambda: self._stamp(conversation)) if self._link.due else None

    def _stamp(self, conversation: ConversationId) -> Stamp | None:
        with contextlib.suppress(OSError), opened_folder(self._workspace, FOLDER, conversation.lane.user) as folder:
            return Stamp.of(os.stat(conversation.file_name, dir_fd=folder, follow_symlinks=False))
        return None

    def _after(self, conversation: ConversationId, before: Stamp, written: Sequence[Turn]) -> Stamp | None:
        """The file after an append; None if something else than this happened to it."""
        after = self._stamp(conversation)
        if after is None or before.inode != after.inode:
            return None
        return after if after.size == before.size + sum(len(write_item(turn)) for turn in written) else None

    def _newest(self, conversation: ConversationId) -> Listing | None:
        """What Redis is to hold; None without a file. Its stamp is older than what was read, never younger."""
        with contextlib.suppress(OSError), opened_folder(self._workspace, FOLDER, conversation.lane.user) as folder:
            fd = open_file(folder, conversation.file_name, os.O_RDONLY)
            try:
                stamp = Stamp.of(os.fstat(fd))
                sound = sound_size(fd, stamp.size)
                chunks = Chunks(fd, sound, max_items=LONGEST, max_bytes=MAX_BYTES // 2)
                read = list(pieces(chunks, filled=sound < stamp.size))
            finally:
                os.close(fd)
            turns = [piece.turn for piece in reversed(read) if piece.turn is not None]
            elements, crc = chained(turns, UNKNOWN if chunks.capped else START)
            start = min((piece.offset for piece in read), default=sound) if chunks.capped else 0
            return Listing(elements, State(stamp.size, stamp.mtime_ns, start, crc))
        return None

    # ---- writing

    async def appended(self, conversation: ConversationId, before: Stamp | None, written: Sequence[Turn]) -> None:
        """Takes over what was just appended to the file that was as `before`."""
        if not written or not self._link.due:
            return
        with contextlib.suppress(StoreError):  # closed since the append, which counts
            if not (before and self._link.usable and await self._extended(conversation, before, written)):
                await self._rewrite(conversation)

    async def _extended(self, conversation: ConversationId, before: Stamp, written: Sequence[Turn]) -> bool:
        """Whether the list was of the file before the append, and now is of the file after it. Raises StoreError."""
        after = await self._store.run(lambda: self._after(conversation, before, written))
        if after is None:
            return False
        return bool(await self._link.use(lambda client: self._extend(client, conversation, before, after, written)))

    async def _extend(
        self, client: "Redis", conversation: ConversationId, before: Stamp, after: Stamp, written: Sequence[Turn]
    ) -> bool:
        """Adds to the list, if that is of the file before; whether it did."""
        turns, beside = self._keys(conversation)
        async with client.pipeline(transaction=False) as pipe:
            pipe.get(beside)
            (found,) = await _results(pipe)
        known = State.read(found)
        if known is None or not known.fits(before):
            return False
        elements, crc = chained(written, known.crc)
        state = State(after.size, after.mtime_ns, known.start, crc)
        async with client.pipeline(transaction=True) as pipe:
            pipe.rpush(turns, *elements)
            pipe.ltrim(turns, -LONGEST, -1)
            pipe.pexpire(turns, self._ttl)
            pipe.set(beside, state.json(), px=self._ttl)
            pushed, *_ = await _results(pipe)
        return pushed is not None

    async def _rewrite(self, conversation: ConversationId) -> None:
        """Writes the list whole, from the file if there is one. Raises StoreError."""
        listing = await self._store.run(lambda: self._newest(conversation)) if self._link.due else None
        if listing is not None:
            await self._link.attempt(lambda client: self._put(client, conversation, listing))

    async def _put(self, client: "Redis", conversation: ConversationId, listing: Listing) -> None:
        await self._deletions.settle(client)
        turns, beside = self._keys(conversation)
        async with client.pipeline(transaction=True) as pipe:
            pipe.delete(turns)
            if listing.elements:
                pipe.rpush(turns, *listing.elements)
                pipe.pexpire(turns, self._ttl)
            pipe.set(beside, listing.state.json(), px=self._ttl)
            await _results(pipe)

    # ---- reading

    async def read(self, conversation: ConversationId, reader: Callable[[Tails], _Result]) -> _Result:
        """What `reader` makes of the turns, in a worker thread: from Redis, else from the file, which is written back.

        Raises what `reader` raises.
        """
        kept = await self._kept(conversation)
        as_long_as_can_be = False
        if kept is not None:
            try:
                return await self._store.run(lambda: reader(kept.tail))
            except NotKept as reason:
                as_long_as_can_be = len(kept.elements) >= LONGEST and not isinstance(reason, Damaged)
        result = await self._store.run(lambda: reader(partial(self._store.backwards, conversation)))
        if self._link.usable and not as_long_as_can_be:
            with contextlib.suppress(StoreError):  # closed since it was read
                await self._rewrite(conversation)
        return result

    async def _kept(self, conversation: ConversationId) -> Listing | None:
        """What Redis holds of the file as it is now."""
        stamp = await self._store.run(lambda: self._stamp(conversation)) if self._link.usable else None
        if stamp is None:
            return None
        listing = await self._link.use(lambda client: self._listing(client, conversation))
        return listing if listing is not None and listing.state.fits(stamp) else None

    async def _listing(self, client: "Redis", conversation: ConversationId) -> Listing | None:
        turns, beside = self._keys(conversation)
        async with client.pipeline(transaction=True) as pipe:
            pipe.get(beside)
            pipe.lrange(turns, 0, -1)
            found, elements = await _results(pipe)
        state = State.read(found)
        return None if state is None or elements is None else Listing(elements, state)

    # ---- forgetting

    async def forget(self, conversation: ConversationId) -> bool:
        """Deletes what Redis holds of it; whether that is done. If not, it is done before anything else is written."""
        return await self._deletions.conversation(conversation)

    async def forget_person(self, user: str, conversations: Collection[ConversationId]) -> bool:
        """Deletes all that Redis holds under a person's id, and of these conversations; whether that is done.

        If not, `catch_up` does it, as long as the process runs; after that it ends with its TTL.
        """
        return await self._deletions.person(user, conversations)

    async def catch_up(self) -> None:
        """Deletes what could not be deleted so far, if Redis is well or may be again."""
        await self._deletions.catch_up()

    def _keys(self, conversation: ConversationId) -> tuple[str, str]:
        return keys_of(self._prefix, conversation)
