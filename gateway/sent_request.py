"""A request as it was sent, made again from its trace (ids) and the conversation's file (texts)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.model import ChatMessage, ModelRequest, ModelSettings, ToolSpec
from agents.prompt import quoted_window
from agents.wire import Dialect, body
from gateway.tracing.frames import Frame, checksum
from gateway.tracing.trace import Kind, SeenMessage, SeenWindow, Step, Trace
from gateway.tracing.traces import Traces
from gateway.turns.tool_calls import rounds_of
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory
from memory.speaker import voiced
from memory.tokens import shortened
from memory.window import UNANSWERED, WindowMessage

_ROUNDS = 64
"""The most turns a question and its rounds of tool calls are."""
_NEWEST, _MOST = 500, 20_000
"""How many of the newest turns are looked through where the question's place is not known; between them the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """What a model was sent: the messages, the system message first, and the tools it was offered.

    `exact`: to the byte what was sent then. Otherwise the file has changed since (or somebody was forgotten), and it is
    what the file gives now; `missing` are the ids of turns no longer found. `seen` is the window as it was.
    """

    model: str
    at: float
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...]
    temperature: float | None
    exact: bool
    missing: tuple[str, ...]
    seen: SeenWindow

    def body(self) -> dict[str, object]:
        """The JSON body as a server that takes every key was sent it, but for its bound on the answer."""
        request = ModelRequest(messages=self.messages, temperature=self.temperature, tools=self.tools)
        return body(request, ModelSettings(model=self.model), Dialect())


async def request_as_sent(trace: Trace, traces: Traces, memory: Memory) -> SentRequest | None:
    """The last request made for this message; None where none was, or its system message is kept no longer.

    Raises StoreError, sqlite3.Error.
    """
    step = next((each for each in reversed(trace.steps) if each.window is not None), None)
    if step is None or step.window is None or not trace.conversation:
        return None
    frame = await traces.frame(step.window.frame)
    if frame is None:
        return None
    turns = await _turns(ConversationId.parse(trace.conversation), step.window, memory)
    asked = [each for each in trace.steps if each.kind is Kind.MODEL and each.at >= step.at]
    return rebuilt(step, frame, turns, asked[-1] if asked else None)


async def _turns(conversation: ConversationId, seen: SeenWindow, memory: Memory) -> list[Turn]:
    """The stretch of the file that holds window, question and answer."""
    pages: list[tuple[int | None, int]] = [(None, _NEWEST), (_ROUNDS, _ROUNDS), (None, _MOST)]
    if seen.first is not None and seen.first >= 0:
        count = sum(len(each.ids) for each in seen.messages) + len(seen.dropped) + _ROUNDS
        pages.insert(0, (seen.first + count, count))
    found: list[Turn] = []
    for before, limit in pages:  # where the ordinals say nothing, the question is looked for from the end
        found = await memory.history(conversation, before, limit)
        if any(turn.id == seen.question for turn in found):
            break
    return found


def rebuilt(step: Step, frame: Frame, turns: Sequence[Turn], asked: Step | None) -> SentRequest:
    """The request of a ``window`` step; `asked` is the last ``model`` step after it. Needs ``step.window``."""
    seen = step.window
    assert seen is not None
    by_id = {turn.id: turn for turn in turns}
    question = by_id.get(seen.question)
    window = [_message(each, by_id, seen.longest) for each in seen.messages]
    system, past = frame.system, [ChatMessage(each.role, each.content, each.tool_calls, each.call) for each in window]
    if frame.history == "text":
        quoted = quoted_window(window)
        system, past = "\n\n".join(filter(None, (system, quoted))), []
    base = (ChatMessage("system", system), *past, ChatMessage(Role.USER, voiced(question) if question else ""))
    wanted = [*(id_ for each in seen.messages for id_ in each.ids), seen.question]
    messages = base + _rounds(turns, seen.question, _fact(asked, "messages") - len(base))
    return SentRequest(
        model=str(asked.facts.get("model", "")) if asked else "",
        at=asked.at if asked else step.at,
        messages=messages,
        tools=frame.tools if asked is None or asked.facts.get("tools") else (),
        temperature=frame.temperature,
        exact=checksum(ModelRequest(messages=base)) == seen.checksum,
        missing=tuple(id_ for id_ in wanted if id_ not in by_id),
        seen=seen,
    )


def _fact(step: Step | None, name: str) -> int:
    value = step.facts.get(name) if step else None
    return value if isinstance(value, int) else 0


def _rounds(turns: Sequence[Turn], question: str, count: int) -> tuple[ChatMessage, ...]:
    """The first `count` messages of the rounds of tool calls made for this question."""
    if count <= 0:
        return ()
    rounds = rounds_of([turn for turn in turns if turn.to == question])
    return tuple(message for round_ in rounds for message in round_.messages())[:count]


def _message(seen: SeenMessage, turns: Mapping[str, Turn], longest: int) -> WindowMessage:
    """One message of the window, as `memory.window` makes it of its turns."""
    if not seen.ids:
        return WindowMessage(role=Role.ASSISTANT, content=UNANSWERED, ids=(), tokens=seen.tokens)
    found = [turns[id_] for id_ in seen.ids if id_ in turns]
    texts = [shortened(voiced(turn), longest)[0] for turn in found]
    last = found[-1] if found else None
    return WindowMessage(
        role=seen.role,
        content="\n\n".join(filter(None, texts)) if len(texts) > 1 else "".join(texts),
        ids=seen.ids,
        tokens=seen.tokens,
        shortened=seen.shortened,
        tool_calls=last.tool_calls if last else (),
        call=last.call if last else None,
    )
