"""What a person said elsewhere: of direct chats alone, however much they talk in groups."""

import asyncio
from pathlib import Path

from gateway.storage import conversation_index
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.database import Database
from gateway.turns.tool_calls import PastTurns
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory
from tests.gateway.messages import message


async def test_twenty_newer_groups_hide_no_direct_chat(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", conversation_index.SCHEMA)
    await asyncio.to_thread(database.open)
    memory = Memory(tmp_path)
    index = ConversationIndex(database, memory)

    async def said(where: ConversationId, text: str, minute: int) -> None:
        await memory.remember(
            where, [Turn(role=Role.USER, text=text, id="q", at=f"2026-11-30T18:{minute:02}:00.000+08:00")]
        )
        index.touch(where)

    await said(message(chat="oc_direct").lane.with_agent("0"), "期望薪资 25k", 0)
    for n in range(21):
        await said(message(chat=f"oc_{n}", group=True).lane.with_agent("0"), "群里的话", 1 + n)
    found = await PastTurns(memory, index).others(message().lane.with_agent("0"))
    assert [passage.text for passage in found] == ["期望薪资 25k"]
    await memory.close()
    await database.close()
