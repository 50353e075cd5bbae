"""``/link`` and ``/unlink``: one person says, from both sides, that two accounts are theirs.

A code is given to one account in a direct chat and sent from the other; ``users/{other}.yaml`` then says so. Both may
run twice after a crash and do the same as once.
"""

import asyncio
import logging
from collections.abc import Callable

from gateway.config.texts import Texts
from gateway.forgetting import Forgetting
from gateway.limits import RateLimit
from gateway.storage.link_codes import SECONDS, LinkCodes
from gateway.storage.stored_message import Stored
from memory.memory import Memory

log = logging.getLogger("sanqiao.linking")

_TRIES = 5  # codes that one account may try in a minute


class Linking:
    """Links and unlinks the accounts of whoever asks; never while one of them is being forgotten."""

    def __init__(self, memory: Memory, codes: LinkCodes, forgetting: Forgetting, clock: Callable[[], float]) -> None:
        self._memory = memory
        self._codes = codes
        self._forgetting = forgetting
        self._clock = clock
        self._tries = RateLimit()

    async def link(self, written: str, stored: Stored, texts: Texts) -> str:
        """Gives a code; or, with one, links the two accounts. Returns the text for the user. Raises StoreError."""
        user = stored.message.user
        if stored.message.lane.group:
            await self._codes.revoke(written)  # others have seen it
            return texts.get("link-direct-only")
        if not written:
            code = await self._codes.make(user, self._clock())
            return texts.get("link-code", code=code, minutes=int(SECONDS // 60))
        if not self._tries.allows(user, _TRIES, self._clock()):
            log.warning("too many codes tried user=%s", user)
            return texts.get("link-too-often")
        return texts.get(await self._used(written, stored))

    async def _used(self, written: str, stored: Stored) -> str:
        """Uses a code; the name of the text that says what came of it."""
        user, now = stored.message.user, self._clock()
        async with self._forgetting.held_off():
            other = await self._codes.owner(written, stored.seq, now)
            if other is None:
                return "link-wrong"
            if other == user:
                return "link-self"
            generation = self._memory.generations.now()
            await self._codes.use(written, stored.seq)
            linked = await asyncio.to_thread(self._memory.persons.link, user, other, generation)
        log.info("linked user=%s other=%s new=%s", user, other, linked)
        return "link-done" if linked else "link-already"

    async def unlink(self, stored: Stored, texts: Texts) -> str:
        """Takes this account out of its person. Returns the text for the user. Raises StoreError."""
        if stored.message.lane.group:
            return texts.get("link-direct-only")
        user = stored.message.user
        async with self._forgetting.held_off():
            generation = self._memory.generations.now()
            done = await asyncio.to_thread(self._memory.persons.unlink, user, generation)
        log.info("unlinked user=%s done=%s", user, done)
        return texts.get("unlink-done" if done else "unlink-nothing")
