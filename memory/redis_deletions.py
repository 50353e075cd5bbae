"""What is to go from Redis: at once where that can be, else within seconds of its being well again.

What is still to go is kept in mind as long as the process runs; after that the keys end with their TTL.
"""

import asyncio
import logging
import re
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from memory.conversation import ConversationId
from memory.redis_link import RedisLink

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("sanqiao.memory")

OWED = 10_000
"""How many deletions are kept in mind; beyond that the oldest is left to its TTL."""
SCANNED = 1000
"""Keys that one step of a search looks at."""
SEARCH = 3.0
"""Seconds that the search for one person's keys may take: enough for a million of them. A Redis with many more is not
ours alone."""

_KINDS = ("memory", "state")
_REFUSED = -1

_Key = TypeVar("_Key")
_GLOB = re.compile(r"[\\*?\[\]]")


def keys_of(prefix: str, conversation: ConversationId) -> tuple[str, str]:
    """The keys of a conversation's list and of what stands beside it."""
    memory, state = _KINDS
    return f"{prefix}{memory}:{conversation}", f"{prefix}{state}:{conversation}"


class Deletions:
    """Deletes keys of ours. No method raises for anything that Redis does but `settle`."""

    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._conversations: dict[ConversationId, object] = {}
        self._persons: dict[str, object] = {}

    async def conversation(self, conversation: ConversationId) -> bool:
        """Deletes what is held of it; whether that is done. If not, it is before anything else is written."""
        _owe(self._conversations, conversation)
        return bool(await self._link.attempt(self.settle))

    async def person(self, user: str, conversations: Collection[ConversationId] = ()) -> bool:
        """Deletes all keys with a person's id, whatever files there are, and these conversations'; whether that is done."""
        for conversation in conversations:
            _owe(self._conversations, conversation)
        _owe(self._persons, user)
        return await self.catch_up()

    async def catch_up(self) -> bool:
        """Deletes what is still to be deleted; whether all of it is gone."""
        if not (self._conversations or self._persons):
            return True
        if not await self._link.attempt(self._reached):
            return False
        return all([await self._swept(user) for user in tuple(self._persons)])

    async def settle(self, client: "Redis") -> bool:
        """Deletes what is to go and known by its name. Raises RedisError."""
        owed = dict(self._conversations)
        if owed:
            await client.delete(*(key for each in owed for key in keys_of(self._prefix, each)))
        for conversation, debt in owed.items():
            _paid(self._conversations, conversation, debt)
        return True

    async def _reached(self, client: "Redis") -> bool:
        await client.delete(f"{self._prefix}state:")  # nobody's; only what writes tells that Redis is usable
        return await self.settle(client)

    async def _swept(self, user: str) -> bool:
        """Whether all keys of a person were looked for and deleted; if that cannot be, they are left to their TTL."""
        debt, reason = self._persons.get(user), "键太多，请给网关单独一个库"
        try:
            async with asyncio.timeout(SEARCH):
                cursor = await self._searched(user)
                if cursor is None:
                    return False
                reason = "不能用 SCAN，请允许这个用户用" if cursor == _REFUSED else ""
        except TimeoutError:
            pass
        _paid(self._persons, user, debt)
        if reason:
            log.warning("redis_keys_left user=%s: 按会话文件找到的已删除，其余要等到期：%s", user, reason)
        return not reason

    async def _searched(self, user: str) -> int | None:
        """The last cursor: 0 behind the last key, _REFUSED where searching is; None where Redis fails."""
        cursor = 0
        while True:
            found = await self._link.use(partial(self._step, user=user, cursor=cursor))
            if found in (None, 0, _REFUSED):
                return found
            cursor = found

    async def _step(self, client: "Redis", *, user: str, cursor: int) -> int:
        """Looks at some keys from `cursor` on; the next cursor, 0 after the last one. Raises RedisError."""
        from redis.exceptions import ResponseError

        prefix = _GLOB.sub(r"\\\g<0>", self._prefix)
        try:
            following, keys = await client.scan(cursor, match=f"{prefix}*:{user}:*", count=SCANNED)
        except ResponseError:  # no right to, or a proxy that does not know the command
            return _REFUSED
        ours = tuple(f"{self._prefix}{kind}:{user}:".encode() for kind in _KINDS)
        theirs = [key for key in keys if isinstance(key, bytes) and key.startswith(ours)]
        if theirs:
            await client.delete(*theirs)
        return int(following)


def _owe(owed: dict[_Key, object], key: _Key) -> None:
    owed[key] = object()
    if len(owed) > OWED:
        del owed[next(iter(owed))]


def _paid(owed: dict[_Key, object], key: _Key, debt: object) -> None:
    """Strikes off this debt, not one that was made since."""
    if owed.get(key) is debt:
        owed.pop(key, None)
