"""What a process of its own does until it is killed: appends to one conversation and tells what is stored."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory

AT = "2026-01-05T10:00:00.000+08:00"


def append_until_killed(workspace: Path, conversation: ConversationId, prefix: str, told: Connection) -> None:
    """Sends the id of each turn once `remember` has returned."""
    asyncio.run(_append(workspace, conversation, prefix, told))


async def _append(workspace: Path, conversation: ConversationId, prefix: str, told: Connection) -> None:
    memory = Memory(workspace)
    for n in range(1_000_000):
        question = Turn(role=Role.USER, text=f"问 {n}\n" + "上海的岗位 " * (n % 40), id=f"{prefix}-{n}", at=AT)
        answer = Turn(role=Role.ASSISTANT, text=f"答 {n}", id=f"{prefix}-{n}/a", to=question.id, at=AT)
        for turn in (question, answer):
            await memory.remember(conversation, [turn])
            told.send(turn.id)
