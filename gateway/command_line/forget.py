"""``forget``: every trace of one person is removed; through the running gateway where one owns the workspace."""

import asyncio
import re
import sys
import time
from pathlib import Path

from gateway.command_line.running import NotDone, ask_running
from gateway.config.live_settings import LiveSettings
from gateway.forgetting import Records
from gateway.removed import Removed
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.gateway_db import gateway_db
from gateway.storage.inbox import Inbox
from gateway.storage.owed_turns import OwedTurns
from gateway.tracing.traces import TRACES, Traces
from gateway.workspace_lock import WorkspaceBusy, WorkspaceLock
from memory.conversation import PERSON
from memory.errors import StoreError
from memory.memory import Memory

_SECONDS = 120.0


async def forget(live: LiveSettings, workspace: Path, user: str) -> int:
    """Removes all of a person and prints what; returns the exit code: 1 where there was nothing."""
    if not re.fullmatch(PERSON, user):
        print(f"{user} 不是用户的编号；应为 u 和 12 个小写字母或数字，用 conversations 查看", file=sys.stderr)
        return 2
    lock = WorkspaceLock(workspace)
    try:
        await asyncio.to_thread(lock.acquire)
    except WorkspaceBusy:
        return await _through_gateway(live, workspace, user)
    try:
        removed = await _directly(live, workspace, user)
    except StoreError as error:
        print(f"没能全部删除：{error}；排除原因后再运行一次", file=sys.stderr)
        return 2
    finally:
        lock.release()
    return _told(user, str(removed), bool(removed))


async def _directly(live: LiveSettings, workspace: Path, user: str) -> Removed:
    """Raises StoreError, sqlite3.Error, OSError."""
    settings = live.current.memory
    database = gateway_db(workspace)
    shelter = OwedTurns(database)
    memory = Memory(workspace, durability=settings.durability, redis=settings.redis, shelter=shelter)
    traces = Traces(workspace / TRACES, settings=lambda: live.current.trace, mask=str, clock=time.time)
    try:
        await asyncio.to_thread(database.open)
        await memory.open()
        await traces.open()
        records = Records(memory, Inbox(database), ConversationIndex(database, memory), traces.forget)
        removed = Removed()
        ids = await records.ids_of(user)
        for place, each in enumerate(ids, 1):
            removed += (await records.remove(each, then=ids[place:]))[0]
        return removed
    finally:
        await traces.close()
        await memory.close()
        await database.close()


async def _through_gateway(live: LiveSettings, workspace: Path, user: str) -> int:
    try:
        answer = await ask_running(live, workspace, "/api/forget", {"user": user}, seconds=_SECONDS)
    except NotDone as problem:
        print(problem, file=sys.stderr)
        return 2
    return _told(user, str(answer["removed"]), bool(answer["found"]))


def _told(user: str, removed: str, found: bool) -> int:
    print(f"{user}：已删除 {removed}" if found else f"{user}：{removed}")
    return 0 if found else 1
