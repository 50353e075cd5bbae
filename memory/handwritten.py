"""Items of a conversation file that a person wrote or changed.

UTF-8 or GB18030, item by item. Read from PyYAML's events: no tag is run, no alias expanded, and every scalar stays the very text written (``off``,
``12:30``, ``0123``). Depth, number of nodes and size are bounded.
"""

import json
import re
from typing import Any

import yaml

from memory.charset import decoded
from memory.conversation import Role

ITEM_LIMIT = 2 << 20
"""The most bytes of one item."""
_DEPTH = 6
_NODES = 5000
_ROLES = {role.value: role for role in Role}
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})+)")


class NotAnItem(ValueError):
    """The bytes are no item of a conversation file, written by us or by a person."""


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _whole(escapes: re.Match[str]) -> str:
    """Escaped surrogates as the characters they spell, lone ones as U+FFFD: YAML joins no pairs."""
    text: str = json.loads(f'"{escapes[2]}"')
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return escapes[1] + text


def read_by_hand(raw: bytes) -> tuple[Role, str, dict[str, Any]]:
    """The role, the text and the fields (texts, lists and dicts of texts) of an item in whatever YAML form.

    Raises NotAnItem.
    """
    if len(raw) > ITEM_LIMIT:
        raise NotAnItem(f"{len(raw)} bytes in one item")
    text = decoded(raw).removeprefix("\ufeff")
    try:
        return _by_events(text)
    except (yaml.YAMLError, ValueError, RecursionError) as first:
        healed = _SURROGATES.sub(_whole, text)
        if healed == text:
            raise NotAnItem(type(first).__name__) from None
    try:
        return _by_events(healed)
    except (yaml.YAMLError, ValueError, RecursionError) as second:
        raise NotAnItem(type(second).__name__) from None


def _by_events(text: str) -> tuple[Role, str, dict[str, Any]]:
    tree = _Tree(text)
    items = tree.read()
    if not isinstance(items, list) or len(items) != 1 or not isinstance(items[0], _Mapping):
        raise NotAnItem("no item")
    fields = dict(reversed(items[0].pairs))
    role = next((_ROLES[key] for key, _ in items[0].pairs if key in _ROLES), None)
    if role is None:
        raise NotAnItem("no role")
    said = fields[role.value]
    words = said if isinstance(said, str) else tree.source(said)
    if isinstance(said, _Block) and "meta" not in fields:
        words = words.removesuffix("\n")
    plain = {key: _plain(value) for key, value in fields.items()}
    return role, str(words), plain


class _Block(str):
    """A scalar in ``|`` or ``>`` style."""

    __slots__ = ()


class _Sequence(list[Any]):
    """A sequence with its place in the source."""

    span = (0, 0)


class _Mapping:
    """A mapping as its pairs, with its place in the source; keys may repeat."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, Any]] = []
        self.span = (0, 0)


def _plain(node: Any) -> Any:
    if isinstance(node, _Mapping):
        return {key: _plain(value) for key, value in reversed(node.pairs)}
    return [_plain(value) for value in node] if isinstance(node, list) else node


def _place(mark: Any) -> int:
    return int(mark.index)


class _Tree:
    """The nodes of one document, of bounded depth and number, from events only: nothing is resolved or constructed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._events = yaml.parse(text, Loader=_Loader)
        self._left = _NODES

    def source(self, node: Any) -> str:
        """The very text a node was written as."""
        start, end = node.span
        return self._text[start:end].strip()

    def read(self) -> Any:
        """The first document. Raises NotAnItem or a YAMLError, also for faults behind that document."""
        root: Any = None
        for event in self._events:
            if root is None and isinstance(event, yaml.NodeEvent):
                root = self._node(event, 0)
        return root

    def _node(self, event: yaml.Event, depth: int) -> Any:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            raise NotAnItem("too deep or too large")
        if isinstance(event, yaml.ScalarEvent):
            return _Block(event.value) if event.style in ("|", ">") else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            sequence = _Sequence()
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                sequence.append(self._node(inner, depth + 1))
            sequence.span = (_place(event.start_mark), _place(inner.end_mark))
            return sequence
        if isinstance(event, yaml.MappingStartEvent):
            mapping = _Mapping()
            while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
                key = self._node(inner, depth + 1)
                value = self._node(next(self._events), depth + 1)
                mapping.pairs.append((key if isinstance(key, str) else self.source(key), value))
            mapping.span = (_place(event.start_mark), _place(inner.end_mark))
            return mapping
        return self._text[_place(event.start_mark) : _place(event.end_mark)]  # an alias, as written
