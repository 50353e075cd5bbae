"""``recall``: what the same person said in other direct chats with us; only in direct chats, only when asked for."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from agents.tools.tool import Arguments, BadArguments, CallContext, Passage, Tool, ToolError

SHOWN = 6
_MOST = 400
_LEAST = 0.34
_LOOKED_AT = 4_000


async def _run(context: CallContext, arguments: Arguments) -> str:
    if context.conversation.lane.group:
        raise ToolError("群聊里不能查对方的其他对话，请对方私聊")
    query = str(arguments.get("query") or "").strip()
    if not query:
        raise BadArguments("请写 query：要找的内容，例如“期望薪资”")
    passages = await context.past.others(context.conversation)
    best = await asyncio.to_thread(_best, query, passages)
    if not best:
        return "其他私聊里没有找到相关的内容。"
    return json.dumps([_shown(each) for each in best], ensure_ascii=False)


def _best(query: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages most like what is looked for, best first, the newest first among equals."""
    wanted = _pairs(query)
    scored = [(_likeness(wanted, each.text[:_LOOKED_AT]), -place, each) for place, each in enumerate(passages)]
    found = sorted((each for each in scored if each[0] >= _LEAST), reverse=True, key=lambda each: each[:2])
    return [each for _, _, each in found[:SHOWN]]


def _shown(passage: Passage) -> dict[str, str]:
    text = passage.text if len(passage.text) <= _MOST else passage.text[:_MOST] + "…"
    return {"at": passage.at[:16], "speaker": passage.speaker, "text": text}


def _likeness(wanted: Counter[str], text: str) -> float:
    """How much of what is looked for stands in the text, by pairs of characters."""
    there = _pairs(text)
    return sum(min(count, there[pair]) for pair, count in wanted.items()) / max(sum(wanted.values()), 1)


def _pairs(text: str) -> Counter[str]:
    seen = "".join(each for each in text.casefold() if each.isalnum())
    return Counter(seen[at : at + 2] for at in range(len(seen) - 1)) or Counter([seen])


RECALL = Tool(
    name="recall",
    description="查同一个人在其他私聊（别的智能体、别的会话、关联的账号）里说过的内容。对方提到以前在别处说过、而这里看不到时调用",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "要找的内容，用对方可能说过的词"}},
        "required": ["query"],
    },
    run=_run,
    repeatable=True,
    direct_only=True,
)
