"""The chat-completions format: a request → the JSON body; the server's chunks (or one whole answer) → text and calls.

https://platform.openai.com/docs/api-reference/chat, and what compatible servers make of it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from agents.model import ChatMessage, ModelRequest, ModelSettings, OddAnswer, TokenUsage
from memory.conversation import ToolCall
from memory.sanitise import disarmed, storable

# How servers say that a model takes no tools: Ollama, vLLM without --enable-auto-tool-choice, those that do not know
# the key. A complaint about the messages of a tool run is none of these.
_NO_TOOLS = re.compile(
    r"not support (?:tool|function)|tool choice requires|tool-call-parser|tools?\W+(?:is|are) not supported"
    r"|(?:unrecognized|unknown|unsupported|unexpected|extra)\b[^.{}]{0,60}\btools\b",
    re.IGNORECASE,
)
# Not any word that holds it: a server that complains of "seedream" says nothing about the key.
_NO_SEED = re.compile(r"\bseed\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which keys a server takes; learned from its refusals."""

    usage_in_stream: bool = True
    temperature: bool = True
    seed: bool = True
    output_key: str = "max_tokens"
    tools: bool = True

    def after_refusal(self, reason: str) -> Self | None:
        """What to send instead, when the server's `reason` names a key that can be done without; else None."""
        if self.usage_in_stream and ("stream_options" in reason or "include_usage" in reason):
            return replace(self, usage_in_stream=False)
        if self.output_key == "max_tokens" and "max_completion_tokens" in reason:
            return replace(self, output_key="max_completion_tokens")
        if self.temperature and "temperature" in reason:
            return replace(self, temperature=False)
        if self.seed and _NO_SEED.search(reason):
            return replace(self, seed=False)
        if self.tools and _NO_TOOLS.search(reason):
            return replace(self, tools=False)
        return None


def body(request: ModelRequest, settings: ModelSettings, dialect: Dialect) -> dict[str, object]:
    """The JSON body of one streamed request; every text in it can be encoded.

    Outside of the system message, which quotes what is not its own (see agents.prompt), no text holds a control token.
    """
    made: dict[str, object] = {
        "model": settings.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        dialect.output_key: settings.max_output_tokens,
    }
    if dialect.usage_in_stream:
        made["stream_options"] = {"include_usage": True}
    if request.temperature is not None and dialect.temperature:
        made["temperature"] = request.temperature
    if request.seed is not None and dialect.seed:
        made["seed"] = request.seed
    if request.tools and dialect.tools:
        made["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": disarmed(tool.description),
                    "parameters": json.loads(disarmed(_without_escapes(tool.parameters))),
                },
            }
            for tool in request.tools
        ]
    return made


def _message(message: ChatMessage) -> dict[str, object]:
    made: dict[str, object] = {"role": str(message.role)}
    made["content"] = storable(message.content) if message.role == "system" else sent_text(message.content)
    if message.tool_calls:
        made["content"] = made["content"] or None
        made["tool_calls"] = [
            {
                "id": sent_text(call.id),
                "type": "function",
                "function": {"name": sent_text(call.name), "arguments": sent_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.call is not None:
        made["tool_call_id"] = sent_text(message.call)
    return made


def sent_text(text: str) -> str:
    """A text of a user or an answer as the model's server gets it."""
    return disarmed(storable(text))


def sent_arguments(written: str) -> str:
    """The arguments of a past call as the model's server gets them.

    What was no JSON object goes as an empty one, since strict templates parse it.
    """
    try:
        sound = isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        return "{}"
    shown = _without_escapes(written)
    return sent_text(shown) if disarmed(shown) != shown else storable(written)


def _without_escapes(written: str) -> str:
    """JSON text in which no escape hides a control token from us, as it would not from a template that parses it."""
    return json.dumps(json.loads(written), ensure_ascii=False) if "\\" in written else written


class _CallPieces:
    """One tool call while its pieces come in."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""


class AnswerReader:
    """Puts the chunks of one answer together. A whole answer is one chunk with `message` in the place of `delta`."""

    def __init__(self) -> None:
        self.finish = ""
        self.usage: TokenUsage | None = None
        self.started = False
        self._calls: dict[int, _CallPieces] = {}

    def add(self, chunk: object) -> str:
        """The text a chunk brings, mostly some characters, often none. Raises OddAnswer for what is no chunk."""
        if not isinstance(chunk, dict):
            raise OddAnswer("the model's server sent something else than a chat completion")
        self._count(chunk.get("usage"))
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return ""
        self.started = True
        choice = choices[0]
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish = finish
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return ""
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            self._take_call(piece)
        return _text(delta.get("content"))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls as far as they have come; a call that the server gave no id gets one."""
        return tuple(
            ToolCall(storable(call.id) or f"call_{n}", storable(call.name), storable(call.arguments) or "{}")
            for n, call in enumerate(self._calls.values())
            if call.name
        )

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int) and isinstance(completion, int):
            self.usage = TokenUsage(prompt, completion)

    def _take_call(self, piece: object) -> None:
        if not isinstance(piece, dict):
            return
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._calls.setdefault(self._index(piece), _CallPieces())
        call.id = call.id or _text(piece.get("id"))
        call.name = call.name or _text(function.get("name"))
        arguments = function.get("arguments")
        # Some servers send the arguments as an object instead of JSON text.
        call.arguments += json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else _text(arguments)

    def _index(self, piece: Mapping[str, object]) -> int:
        """Which call a piece belongs to; without an index: an id that is not the last call's begins a new one."""
        index = piece.get("index")
        if isinstance(index, int):
            return index
        if not self._calls:
            return 0
        last = max(self._calls)
        return last + 1 if piece.get("id") not in (None, "", self._calls[last].id) else last


def _text(value: object) -> str:
    """A content as text: also of a list of text parts, as some servers send it."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""
