"""Run as a process of its own: appends to one conversation until it is killed; each append that is done is printed."""

import asyncio
import sys
from pathlib import Path

from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory

AT = "2026-01-05T10:00:00.000+08:00"


async def main(workspace: Path, conversation: ConversationId, prefix: str) -> None:
    memory = Memory(workspace)
    for n in range(1_000_000):
        question = Turn(role=Role.USER, text=f"问 {n}\n" + "上海的岗位 " * (n % 40), id=f"{prefix}-{n}", at=AT)
        answer = Turn(role=Role.ASSISTANT, text=f"答 {n}", id=f"{prefix}-{n}/a", to=question.id, at=AT)
        await memory.remember(conversation, [question])
        print(question.id, flush=True)
        await memory.remember(conversation, [answer])
        print(answer.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), ConversationId.parse(sys.argv[2]), sys.argv[3]))
