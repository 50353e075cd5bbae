"""What a process of its own does until it is killed: appends, summarises and repairs at the same time."""

import asyncio
import logging
import random
from multiprocessing.connection import Connection
from pathlib import Path

from memory.conversation import ConversationId, Role, ToolCall, Turn
from memory.memory import Memory
from memory.summary import Summary

AT = "2026-01-05T10:00:00.000+08:00"
CONVERSATIONS = tuple(
    ConversationId.parse(f"uu3r7qbo6l6i3:feishu:b759cea3338c:0:{agent}") for agent in ("general-agent", "job-agent")
)
NASTY = (
    "off",
    "12:30",
    "- user: |",
    "a\r\nb",
    "  先空两格\n",
    "\u2028",
    "---\n...",
    "\ud83d半个",
    "尾\n\n",
    "x" * 30_000,
)


def keep_until_killed(workspace: Path, prefix: str, seed: int, told: Connection) -> None:
    """Sends (what, id) once it is said to be stored."""
    logging.disable()
    asyncio.run(_keep(workspace, prefix, random.Random(seed), told))


async def _keep(workspace: Path, prefix: str, rng: random.Random, told: Connection) -> None:
    memory = Memory(workspace)
    await asyncio.gather(
        *(_append(memory, conversation, prefix, rng, told) for conversation in CONVERSATIONS),
        _summarise(memory, prefix, told),
        _repair(memory, rng),
    )


async def _append(
    memory: Memory, conversation: ConversationId, prefix: str, rng: random.Random, told: Connection
) -> None:
    for n in range(1_000_000):
        name = f"{prefix}-{n}-{conversation.agent}"
        text = f"问 {n}\n{rng.choice(NASTY)}" if rng.random() < 0.5 else rng.choice(NASTY)
        calls = (ToolCall("c1", "search", '{"城市": "上海"}'),)
        round_ = [
            [Turn(role=Role.USER, text=text, id=name, at=AT, name="张三\n")],
            [
                Turn(role=Role.ASSISTANT, text="", id=f"{name}/c", to=name, at=AT, tool_calls=calls),
                Turn(role=Role.TOOL, text=rng.choice(NASTY), id=f"{name}/t", to=name, at=AT, call="c1"),
            ],
            [Turn(role=Role.ASSISTANT, text=f"答 {text}", id=f"{name}/a", to=name, at=AT, model="m")],
        ]
        for turns in round_:
            await memory.remember(conversation, turns)
            if memory.files().waiting:
                told.send(("waiting", memory.files().remedy))
            for turn in turns:
                told.send((str(conversation), turn.id))


async def _summarise(memory: Memory, prefix: str, told: Connection) -> None:
    """Versions that reach ever further, as far as the file they are of."""
    conversation = CONVERSATIONS[0]
    while True:
        newest = next(iter(await memory.history(conversation, None, 1)), None)
        if newest is not None and newest.n >= 0:
            last = await asyncio.to_thread(memory._archive.last_id, conversation)
            text = f"摘要到 {newest.n}\n" + "要点 " * 500
            summary = Summary(text=text, id=f"s-{prefix}-{newest.n}", epoch=newest.epoch, through=newest.n, at=AT)
            if summary.id != last and await memory.archive(conversation, summary, after=last):
                told.send(("summary", summary.id))
        await asyncio.sleep(0.001)


async def _repair(memory: Memory, rng: random.Random) -> None:
    while True:
        await memory.repair()
        await asyncio.sleep(rng.random() * 0.02)
