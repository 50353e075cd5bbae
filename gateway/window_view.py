"""The window as admins see it: what would be sent with the next question, and what not, and why."""

from typing import Any

from agents.tool_loop import spec_tokens
from gateway.room import room_of
from gateway.snapshot import Snapshot
from memory.conversation import ConversationId, Role
from memory.memory import Memory
from memory.tokens import message_tokens
from memory.window import Window

_LAST_TURNS = 10
_ROLES = {"user": "用户", "assistant": "助手", "tool": "工具", "reset": "重置"}


async def window_view(
    conversation: ConversationId, snapshot: Snapshot, memory: Memory, entry: str = ""
) -> dict[str, Any] | None:
    """The form of ``window --json``; None for a conversation without a file or without its agent.

    `entry` is the channel entry it goes through; without it, one of its channel.
    """
    if conversation.agent not in snapshot.agents or await memory.info(conversation) is None:
        return None
    agent = snapshot.agents.get(conversation.agent)
    context = snapshot.context(agent, entry or snapshot.entry_of(conversation.lane.channel))
    room = await room_of(snapshot, agent, conversation, await _speaker(conversation, memory), memory)
    weigh = room.weigh if context.summary.enabled else None
    window = await memory.window(conversation, context.window, question=None, room=room.tokens, weigh=weigh)
    dropped: list[dict[str, Any]] = [
        {"id": drop.id, "role": drop.role, "stage": drop.stage, "reason": drop.reason} for drop in window.dropped
    ]
    if window.not_read_before:
        dropped.append({"stage": "not-read", "before": window.not_read_before})
    summary = window.summary
    system = room.system_with(summary.text) if summary else room.system
    alone, tools = message_tokens(room.system), spec_tokens(room.tools)
    return {
        "conversation": str(conversation),
        "system": {"text": system, "tokens": alone + window.summary_tokens},
        "summary": {"text": summary.text, "through": summary.through} if summary else None,
        "messages": _messages(window),
        "dropped": dropped,
        "gap": window.gap,
        "tokens": {
            "system": alone,
            "summary": window.summary_tokens,
            "recall": 0,
            "tools": tools,
            "window": window.tokens,
            "total": alone + window.summary_tokens + tools + window.tokens,
            "budget": context.window.max_tokens,
        },
    }


async def _speaker(conversation: ConversationId, memory: Memory) -> str | None:
    """Who asked last, as far as their name is known."""
    turns = await memory.history(conversation, None, _LAST_TURNS)
    return next((turn.name for turn in reversed(turns) if turn.role is Role.USER), None)


def _messages(window: Window) -> list[dict[str, Any]]:
    messages = []
    for message in window.messages:
        shown: dict[str, Any] = {
            "role": message.role,
            "content": message.content,
            "ids": list(message.ids),
            "tokens": message.tokens,
            "shortened": message.shortened,
        }
        if message.tool_calls:
            shown["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
            ]
        if message.call:
            shown["call"] = message.call
        messages.append(shown)
    return messages


def as_text(view: dict[str, Any]) -> str:
    """The same for a terminal: kept turns in order, then each dropped turn with stage and reason."""
    tokens = view["tokens"]
    lines = [
        f"会话 {view['conversation']}",
        f"系统提示 {tokens['system']} tokens；窗口 {tokens['window']} / {tokens['budget']} tokens，"
        f"{len(view['messages'])} 条；不在窗口也不在摘要中的 {view['gap']} 条",
    ]
    if view["summary"]:
        lines.append(f"摘要 {tokens['summary']} tokens，到第 {view['summary']['through']} 条为止：")
        lines += [f"  > {line}" for line in view["summary"]["text"].splitlines()]
    lines += ["", "模型会看到："]
    for message in view["messages"]:
        cut = f"，省略 {message['shortened']}" if message["shortened"] else ""
        lines.append(f"  [{_ROLES[message['role']]} {message['tokens']} tokens{cut}] {_one_line(message['content'])}")
    lines += ["", "不会看到："] if view["dropped"] else []
    for drop in view["dropped"]:
        if drop["stage"] == "not-read":
            lines.append(f"  更早的内容未读取（早于 {drop['before']}）")
        else:
            lines.append(
                f"  [{_ROLES[drop['role']]} {_one_line(drop['id'])}] {drop['stage']}：{_one_line(drop['reason'])}"
            )
    return "\n".join(lines)


def _one_line(text: str, most: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "……"
