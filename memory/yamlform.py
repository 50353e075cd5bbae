"""The on-disk form of a conversation file: a turn becomes the bytes of one item, and an item a turn again.

What this module wrote is read by a strict parser that checks its CRC; what a person wrote or changed is read by
`memory.handwritten`.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from memory.conversation import Role, ToolCall, Turn
from memory.handwritten import NotAnItem, read_by_hand

ITEM_START = b"- "
BOUNDARY = b"\n- "
"""Only where an item ends and the next begins: texts are indented, every other field is one line."""

_REMEMBERED_BYTES = 2000
"""Longer items are read anew each time, so that what is remembered stays within some 16 MB."""

_META = b"\n  meta: {"
_SEAL = len(b', "crc": "89abcdef"}\n')
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN_REASON = re.compile("[a-z][a-z-]{1,30}")
_WORDS_OF_YAML = frozenset({"no", "yes", "on", "off", "true", "false", "null"})
_BLOCK_HEAD = re.compile(r"\|2?[-+]?")
_ROLES = {role.value: role for role in Role}


def _flow(value: Any) -> str:
    """One line that JSON and every YAML loader read alike."""
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def scalar(text: str) -> str:
    """A block literal where that can carry the text exactly, else one line in double quotes."""
    if not text.strip() or _UNFIT.search(text):
        return _flow(text)
    indicator = "2" if text[0] in " \t\n" else ""
    chomping = "-" if text[-1] != "\n" else "" if text[-2] != "\n" else "+"
    body = text if chomping == "-" else text[:-1]
    lines = "".join(f"\n    {line}" if line else "\n" for line in body.split("\n"))
    return f"|{indicator}{chomping}{lines}"


def _text_of(turn: Turn) -> str:
    if turn.role is Role.RESET and _PLAIN_REASON.fullmatch(turn.text) and turn.text not in _WORDS_OF_YAML:
        return turn.text
    return scalar(turn.text)


def _meta_of(turn: Turn) -> dict[str, Any]:
    optional: dict[str, Any] = {"to": turn.to}
    numbers = {"n": turn.n, "epoch": turn.epoch} if turn.n >= 0 else {}
    rest: dict[str, Any] = {"ids": list(turn.ids) or None, "user": turn.user, "model": turn.model}
    rest |= {"stopped": turn.stopped or None, "removed": turn.removed or None}
    meta: dict[str, Any] = {"id": turn.id, **numbers, **optional, "at": turn.at, **rest}
    return {key: value for key, value in meta.items() if value is not None}


def write_item(turn: Turn) -> bytes:
    """The bytes of one item, from its ``- `` to its final line feed.

    Every text of `turn` must have gone through `storable`. Raises UnicodeEncodeError for lone surrogates.
    """
    fields: dict[str, Any] = {} if turn.name is None else {"name": turn.name}
    if turn.tool_calls:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
        fields["tool_calls"] = calls
    if turn.call is not None:
        fields["call"] = turn.call
    return sealed_item(turn.role.value, _text_of(turn), {**fields, "meta": _meta_of(turn)})


def sealed_item(role: str, scalar: str, fields: Mapping[str, Any]) -> bytes:
    """An item of its role, the text as `scalar` gives it, and its fields, of which `meta` is the last, with its CRC."""
    lines = (f"  {key}: {_flow(value)}\n" for key, value in fields.items())
    bare = f"- {role}: {scalar}\n{''.join(lines)}".encode()
    return bare[:-2] + f', "crc": "{zlib.crc32(bare):08x}"}}\n'.encode("ascii")


def split(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The pieces of a whole file in order, each with its offset. The first may be no item (a byte order mark …)."""
    start = 0
    while start < len(raw):
        found = raw.find(BOUNDARY, start)
        end = found + 1 if found >= 0 else len(raw)
        yield start, raw[start:end]
        start = end


def sealed(raw: bytes) -> int:
    """The length of the whole item `raw` begins with, as its CRC proves; 0 without one.

    The final line feed may be missing at the very end of `raw`: an editor may have taken it.
    """
    start = raw.find(_META)
    if start < 0 or not raw.startswith(ITEM_START):
        return 0
    end = raw.find(b"\n", start + 1)
    item = raw[: end + 1] if end >= 0 else raw + b"\n"
    seal = item[-_SEAL:]
    if seal[:10] != b', "crc": "' or seal[-3:] != b'"}\n':
        return 0
    crc = zlib.crc32(b"}\n", zlib.crc32(memoryview(item)[:-_SEAL]))
    return min(len(item), len(raw)) if seal[10:18] == b"%08x" % crc else 0


def read_item(raw: bytes, length: int | None = None) -> Turn:
    """The turn an item holds. An item without `meta` gives empty `id` and `at`, and -1 for `n` and `epoch`.

    `length` is what `sealed` says of it, where known. Raises NotAnItem.
    """
    if length is None:
        length = sealed(raw)
    if length:
        item = raw[:length]
        turn = _remembered(item) if length <= _REMEMBERED_BYTES else _strict(item)
        if turn is not None:
            return turn
        raw = raw[:length]
    return _turn(*read_by_hand(raw))


def _strict(item: bytes) -> Turn | None:
    """Reads a sealed item in our own form; None if it has another."""
    parts = read_sealed(item)
    if parts is None or parts[0] not in _ROLES:
        return None
    role, text, fields = parts
    return _turn(_ROLES[role], text, fields)


_remembered = lru_cache(maxsize=2048)(_strict)
"""One message has the same items read several times: for its window, for its summary, for the next message's window."""


def forget_items() -> None:
    """No text that was read stays in memory."""
    _remembered.cache_clear()


def read_sealed(item: bytes) -> tuple[str, str, dict[str, Any]] | None:
    """Role, text and fields of a sealed item in our own form, whatever its role; None if it has another form."""
    try:
        text = item.decode("utf-8")
        end = text.rindex("\n  meta: {")
        fields: dict[str, Any] = {"meta": json.loads(text[end + 9 :])}
        while (start := text.rfind("\n", 0, end)) > 0 and text[start + 1 : start + 3] == "  " != text[
            start + 3 : start + 5
        ]:
            key, colon, value = text[start + 3 : end].partition(": ")
            if not colon or key.startswith(" "):
                break
            fields[key] = json.loads(value)
            end = start
        role, _, value = text[2:end].partition(": ")
        return role, _strict_text(value), fields
    except (ValueError, TypeError, RecursionError):
        return None


def _strict_text(value: str) -> str:
    head, feed, lines = value.partition("\n")
    if not feed:
        if value.startswith('"'):
            return _string(json.loads(value))
        if _PLAIN_REASON.fullmatch(value):
            return value
    elif _BLOCK_HEAD.fullmatch(head):
        text = (feed + lines).replace("\n    ", "\n")[1:]
        return text if head.endswith("-") else text + "\n"
    raise ValueError("another form")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _optional(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,15}", value):
        return int(value)
    return value if isinstance(value, int) and value >= 0 else -1


def _calls(value: Any) -> tuple[ToolCall, ...]:
    """Calls in their right form; others are left out."""
    found: list[ToolCall] = []
    for call in value if isinstance(value, list) else ():
        parts = [call.get(key) for key in ("id", "name", "arguments")] if isinstance(call, dict) else [None]
        if all(isinstance(part, str) for part in parts):
            found.append(ToolCall(*parts))
    return tuple(found)


def _turn(role: Role, text: str, fields: dict[str, Any]) -> Turn:
    """A turn of what stands beside the text; fields of a wrong type count as absent."""
    meta = fields.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    ids, calls = meta.get("ids"), fields.get("tool_calls")
    id, at, to, user, model = map(_optional, map(meta.get, ("id", "at", "to", "user", "model")))
    return Turn(
        role=role,
        text=text,
        id=id or "",
        at=at or "",
        n=_number(meta.get("n")),
        epoch=_number(meta.get("epoch")),
        to=to,
        ids=tuple(part for part in ids if isinstance(part, str)) if isinstance(ids, list) else (),
        name=_optional(fields.get("name")),
        user=user,
        tool_calls=_calls(calls) if calls else (),
        call=_optional(fields.get("call")),
        model=model,
        stopped=meta.get("stopped") in (True, "true"),
        removed=meta.get("removed") in (True, "true"),
    )


_CUT_HEAD = re.compile(rb"- (?:user|assistant|tool|reset):(?: (?:\|2?[-+]?|\"[^\n]*)?)?|- reset: [a-z-]*")
_CUT_LATER = re.compile(
    rb"- (?:(?:user|assistant|tool|reset): (?:\|2?[-+]?\n(?:(?:    [^\n]*)?\n)*|\"[^\n]*\n)|reset: [a-z-]*\n)"
    rb"(?:  (?:name|tool_calls|call): [^\n]*\n)*(?: [^\n]*)?"
)
_HAND_WRITTEN = re.compile(rb"- user: \|\r?\n")


def torn(raw: bytes, *, after_ours: bool) -> bool:
    """Whether the last piece of a file, not sealed, is what an interrupted write leaves and not a person's work.

    `after_ours`: the item before it (if any) is just as we wrote it. A write is only interrupted after such an item,
    since a person's items are adopted before anything is appended. A user turn in ``|`` style with its line feed is
    taken for a person's: people write it so, we only where a text ends in a line feed.
    """
    if b"\0" in raw:
        return True
    try:
        turn = read_item(raw)
    except NotAnItem:
        return True
    if not after_ours or turn.id or (_HAND_WRITTEN.match(raw) and raw.endswith(b"\n")):
        return False
    return (_CUT_HEAD.fullmatch(raw) or _CUT_LATER.fullmatch(raw)) is not None
