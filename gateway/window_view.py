"""The window as admins see it: what would be sent with the next question, and what not, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents.tool_loop import spec_tokens
from agents.wire import sent_arguments, sent_text
from gateway.snapshot import Snapshot
from gateway.turns.room import room_of
from memory.conversation import ConversationId, Role
from memory.memory import Memory
from memory.overlooked import Overlooked
from memory.tokens import message_tokens
from memory.window import Window, WindowMessage, WindowSettings

_LAST_TURNS = 10
_LINES_TOLD = 5
_ROLES = {"user": "用户", "assistant": "助手", "tool": "工具", "reset": "重置"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The next request of one conversation without its question: the settings it follows, the system message, the window.

    The window's texts are as the model's server gets them. All numbers are tokens. `system_tokens` is the system message
    without its summary, `output` what the model keeps for its answer, `context` all that it takes.
    """

    conversation: ConversationId
    settings: WindowSettings
    model: str
    system: str
    window: Window
    system_tokens: int
    tool_tokens: int
    output: int
    context: int
    overlooked: Overlooked = field(default_factory=Overlooked)

    @property
    def total(self) -> int:
        """What the request takes of the model's context."""
        return self.system_tokens + self.window.summary_tokens + self.tool_tokens + self.window.tokens

    @property
    def passed_over(self) -> list[str]:
        """What the window passes over in its file."""
        return passed_over(self.overlooked.lines, self.overlooked.repeats, str(self.conversation))

    @property
    def free(self) -> int:
        """What is left for the question."""
        return max(self.context - self.output - self.total, 0)


async def inspect_window(
    conversation: ConversationId,
    snapshot: Snapshot,
    memory: Memory,
    entry: str = "",
    over: Mapping[str, int] | None = None,
) -> Inspection | None:
    """The window with the next question; None for a conversation without a file or without its agent.

    `entry` is the channel entry it goes through; without it, one of its channel. `over` takes the place of keys of
    WindowSettings ("what if"). Raises ValueError for values these cannot have.
    """
    if conversation.agent not in snapshot.agents or await memory.info(conversation) is None:
        return None
    agent = snapshot.agents.get(conversation.agent)
    context = snapshot.context(agent, entry or snapshot.entry_of(conversation.lane.channel))
    settings = WindowSettings(**{**dict(context.window), **over}) if over else context.window
    room = await room_of(snapshot, agent, conversation, await _speaker(conversation, memory), memory)
    weigh = room.weigh if context.summary.enabled else None
    window = await memory.window(conversation, settings, question=None, room=room.tokens, weigh=weigh)
    model = snapshot.model(agent).settings
    return Inspection(
        conversation=conversation,
        settings=settings,
        model="demo" if model.provider == "demo" else model.model,
        system=room.system_with(window.summary.text) if window.summary else room.system,
        window=replace(window, messages=tuple(map(_as_sent, window.messages))),
        system_tokens=message_tokens(room.system),
        tool_tokens=spec_tokens(room.tools),
        output=model.max_output_tokens,
        context=model.context_tokens,
        overlooked=await memory.overlooked(conversation, window),
    )


def _as_sent(message: WindowMessage) -> WindowMessage:
    calls = tuple(
        replace(call, id=sent_text(call.id), name=sent_text(call.name), arguments=sent_arguments(call.arguments))
        for call in message.tool_calls
    )
    call = message.call and sent_text(message.call)
    return replace(message, content=sent_text(message.content), tool_calls=calls, call=call)


async def window_view(
    conversation: ConversationId, snapshot: Snapshot, memory: Memory, entry: str = ""
) -> dict[str, Any] | None:
    """The form of ``window --json``; None where there is nothing to inspect."""
    inspection = await inspect_window(conversation, snapshot, memory, entry)
    return as_json(inspection) if inspection else None


def as_json(inspection: Inspection) -> dict[str, Any]:
    """The form of ``window --json``."""
    window = inspection.window
    dropped: list[dict[str, Any]] = [
        {"id": drop.id, "role": drop.role, "stage": drop.stage, "reason": drop.reason} for drop in window.dropped
    ]
    if window.not_read_before:
        dropped.append({"stage": "not-read", "before": window.not_read_before})
    summary = window.summary
    return {
        "conversation": str(inspection.conversation),
        "system": {"text": inspection.system, "tokens": inspection.system_tokens + window.summary_tokens},
        "summary": {"text": summary.text, "through": summary.through} if summary else None,
        "messages": _messages(window),
        "dropped": dropped,
        "gap": window.gap,
        "file": {
            "unreadable_lines": list(inspection.overlooked.lines),
            "repeats": inspection.overlooked.repeats,
        },
        "tokens": {
            "system": inspection.system_tokens,
            "summary": window.summary_tokens,
            "recall": 0,
            "tools": inspection.tool_tokens,
            "window": window.tokens,
            "total": inspection.total,
            "budget": inspection.settings.max_tokens,
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
    lines += passed_over(view["file"]["unreadable_lines"], view["file"]["repeats"], view["conversation"])
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


def passed_over(lines: Sequence[int], repeats: int, conversation: str) -> list[str]:
    """What the window passes over in its file, in sentences for admins."""
    sentences = []
    if lines:
        where = "、".join(map(str, lines[:_LINES_TOLD])) + ("……" if len(lines) > _LINES_TOLD else "")
        sentences.append(
            f"文件读到的部分里有 {len(lines)} 处读不出来（第 {where} 行起），模型看不到；请运行 repair {conversation}"
        )
    if repeats:
        sentences.append(f"文件读到的部分里有 {repeats} 条是重复的，只算一次")
    return sentences


def _one_line(text: str, most: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "……"
