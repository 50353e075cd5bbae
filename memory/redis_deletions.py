"""What is to go from Redis: at once where that can be, else within seconds of its being well again.

What is still to go is kept in mind as long as the process runs; after that the keys end with their TTL.
"""

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
SCANNED, STEPS = 1000, 1000
"""Keys that one step looks at, and steps to find all of a person's: a Redis with more than a million keys is not ours
alone, and must not be kept busy for one of us."""

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
        self._conversations: dict[ConversationId, None] = {}
        self._persons: dict[str, None] = {}

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
        owed = tuple(self._conversations)
        if owed:
            await client.delete(*(key for each in owed for key in keys_of(self._prefix, each)))
        for conversation in owed:
            self._conversations.pop(conversation, None)
        return True

    async def _reached(self, client: "Redis") -> bool:
        await client.delete(f"{self._prefix}state:")  # nobody's; only what writes tells that Redis is usable
        return await self.settle(client)

    async def _swept(self, user: str) -> bool:
        """Whether all keys of a person were looked for and deleted; if that cannot be, they are left to their TTL."""
        cursor = 0
        for _ in range(STEPS):
            found = await self._link.use(partial(self._step, user=user, cursor=cursor))
            if found is None:
                return False
            cursor = found
            if cursor in (0, _REFUSED):
                break
        self._persons.pop(user, None)
        if cursor:
            reason = "不能用 SCAN，请允许这个用户用" if cursor == _REFUSED else "键太多，请给网关单独一个库"
            log.warning("redis_keys_left user=%s: 按会话文件找到的已删除，其余要等到期：%s", user, reason)
        return not cursor

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


def _owe(owed: dict[_Key, None], key: _Key) -> None:
    owed[key] = None
    if len(owed) > OWED:
        del owed[next(iter(owed))]
