"""Housekeeping: what is done from time to time, whether anybody writes or not."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.logs import log_failure
from gateway.shelf import InboxShelf
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.inbox import Inbox
from memory.memory import Memory

log = logging.getLogger("sanqiao.app")

_KEEP_IDS_SECONDS = 48 * 3600.0  # the longest redelivery known is Feishu's, 7.1 h after the first try
_HOUSEKEEPING_SECONDS = 3600.0
_WRITE_AGAIN_SECONDS = 5.0
_LINKS_SECONDS = 2.0
_LINKS_REST = 49.0
"""How many times as long as a look at the links took there is none."""


class Housekeeping:
    """Its tasks never end; one that fails is logged and tried again."""

    def __init__(
        self,
        inbox: Inbox,
        shelf: InboxShelf,
        index: ConversationIndex,
        memory: Memory,
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._inbox = inbox
        self._shelf = shelf
        self._index = index
        self._memory = memory
        self._clock = clock
        self._rng = rng

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run beside everything else."""
        return [self._tidy(), self._write_again(), self._read_links()]

    async def _tidy(self) -> None:
        """Forgets ended messages that no platform repeats any more; brings the index in line with the files."""
        while True:
            try:
                await self._shelf.clear_old()
                await self._inbox.purge(self._clock() - _KEEP_IDS_SECONDS)
                await self._index.refresh()
            except Exception as error:  # border of a background task
                log_failure(log, "housekeeping failed", error)
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)

    async def _read_links(self) -> None:
        """Takes over what admins write into persons' files about who is who; at most a fiftieth of the time."""
        while True:
            began = time.monotonic()
            try:
                await self._memory.read_links()
            except Exception as error:  # border of a background task
                log_failure(log, "links not read", error)
            await asyncio.sleep(max(_LINKS_SECONDS, _LINKS_REST * (time.monotonic() - began)))

    async def _write_again(self) -> None:
        """Writes into conversation files what they could not take before."""
        while True:
            try:
                await self._memory.keep_trying(lambda: _WRITE_AGAIN_SECONDS * (0.5 + self._rng.random()))
            except Exception as error:  # border of a background task
                log_failure(log, "writing again failed", error)
