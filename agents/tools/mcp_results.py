"""What MCP servers send → what a model is told: tools with bounded descriptions and schemas, results as text."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memory.sanitise import speakable

MOST_TOOLS = 128
"""The most tools of one server that are looked at; OpenAI takes no more in a request."""
MOST_DESCRIPTION = 1_000
MOST_SCHEMA = 16_000
"""The most characters of a tool's description, which is cut, and of its schema, without which it is not offered."""
MOST_TEXT = 100_000
"""The most characters of a result that are put together; the tool loop tells the model far fewer."""
_MOST_NAME = 128


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server describes it; `parameters` is a JSON Schema of an object.

    `repeatable`: the server says that calling it again changes nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    repeatable: bool = False


def remote_tool(
    name: str, description: str | None, schema: Mapping[str, object], *, repeatable: bool = False
) -> RemoteTool | None:
    """The tool as it may be offered; None for one whose name or schema is beyond all bounds."""
    if not name or len(name) > _MOST_NAME:
        return None
    parameters = {"properties": {}} | {key: value for key, value in schema.items() if key != "$schema"}
    parameters["type"] = "object"
    try:
        if len(json.dumps(parameters, ensure_ascii=False)) > MOST_SCHEMA:
            return None
    except (ValueError, TypeError, RecursionError):
        return None
    told = speakable(description or "").strip() or name
    if len(told) > MOST_DESCRIPTION:
        told = told[: MOST_DESCRIPTION - 1] + "…"
    return RemoteTool(name, told, parameters, repeatable)


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a result: its kind as MCP names it, and its text, where it has one."""

    kind: str
    text: str = ""


_SHOWN_AS = {"image": "（图片，无法显示）", "audio": "（音频，无法播放）", "resource": "（文件，无法显示）"}


def result_text(pieces: Iterable[Piece], structured: object = None) -> str:
    """A result as text, at most `MOST_TEXT` characters: all texts, and a note for whatever is none.

    `structured` stands in where there is no text at all.
    """
    parts: list[str] = []
    length = 0
    for piece in pieces:
        part = piece.text if piece.text.strip() else _SHOWN_AS.get(piece.kind, "")
        if part:
            parts.append(part[: MOST_TEXT - length])
            length += len(parts[-1])
        if length >= MOST_TEXT:
            break
    if not parts and structured is not None:
        try:
            parts = [json.dumps(structured, ensure_ascii=False)[:MOST_TEXT]]
        except (ValueError, TypeError, RecursionError):
            parts = []
    return "\n".join(parts)
