"""``repair``: every conversation and archive file is checked and mended; through the running gateway if there is one."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway import logs
from gateway.command_line.running import NotDone, ask_running
from gateway.command_line.terminal_text import printable
from gateway.config.live_settings import LiveSettings
from gateway.config.sections import LogSettings
from gateway.storage.gateway_db import gateway_db
from gateway.storage.owed_turns import OwedTurns
from gateway.workspace_lock import WorkspaceBusy, WorkspaceLock
from memory.conversation import ConversationId, InvalidId
from memory.errors import StoreError
from memory.memory import Memory
from memory.mended import Mended, report

_SECONDS = 3600.0


async def repair(live: LiveSettings, workspace: Path, names: Sequence[str]) -> int:
    """Mends the named conversations, or all; returns the exit code: 1 if anything was lost."""
    conversations = []
    for name in names:
        try:
            conversations.append(ConversationId.parse(name))
        except InvalidId:
            print(f"{name} 不是会话编号；用 conversations 查看有哪些会话", file=sys.stderr)
            return 2
    logs.configure(LogSettings(level="error", format=live.current.log.format))  # what was done is printed
    lock = WorkspaceLock(workspace)
    try:
        await asyncio.to_thread(lock.acquire)
    except WorkspaceBusy:
        return await _through_gateway(live, workspace, names)
    try:
        found = await _directly(live, workspace, conversations)
    except StoreError as error:
        print(f"没能检查：{error}", file=sys.stderr)
        return 2
    finally:
        lock.release()
    print(printable("\n".join(report(found, every=bool(conversations)))))
    return int(any(each.lost for each in found))


async def _directly(live: LiveSettings, workspace: Path, conversations: Sequence[ConversationId]) -> list[Mended]:
    """Raises StoreError, sqlite3.Error, OSError."""
    database = gateway_db(workspace)
    memory = Memory(workspace, durability=live.current.memory.durability, shelter=OwedTurns(database))
    try:
        await asyncio.to_thread(database.open)
        await memory.open()
        return await memory.repair(conversations)
    finally:
        await memory.close()
        await database.close()


async def _through_gateway(live: LiveSettings, workspace: Path, names: Sequence[str]) -> int:
    body = {"conversations": list(names)}
    try:
        answer = await ask_running(live, workspace, "/api/repair", body, seconds=_SECONDS)
    except NotDone as problem:
        print(problem, file=sys.stderr)
        return 2
    print(printable("\n".join(answer["lines"])))
    return int(answer["lost"])
