"""YAML text → a tree of the very texts written, each with its line; nothing is interpreted, repeated keys are problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from gateway.config.environment import BadReference, references, substitute
from gateway.config.problems import KeyPath, Problem, dotted
from gateway.config.yaml_syntax import WIDE_COLON, control_line, explained, is_wide, lines_of

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _YAML + kind for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
)
"""What a node is by itself; a text says the same with or without these tags."""
_MOST_NODES = 50_000
_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class TextNode:
    """A scalar: its text with ``${…}`` filled in, the text as written, and whether it stands without quotes.

    `wide`: the line of a ``key：value`` in it, with a full-width colon; 0 without one. `variables`: those that gave a value.
    """

    line: int
    text: str
    written: str
    plain: bool
    wide: int = 0
    variables: tuple[str, ...] = ()

    @property
    def blank(self) -> bool:
        """Nothing stands behind the key."""
        return self.plain and not self.written


@dataclass(frozen=True, slots=True)
class ListNode:
    """A sequence."""

    line: int
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping; `lines` holds the line of each key."""

    line: int
    items: "Mapping[str, Node]" = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def without(self, *names: str) -> "MapNode":
        """The same mapping without some keys."""
        return MapNode(self.line, {name: node for name, node in self.items.items() if name not in names}, self.lines)


Node = TextNode | ListNode | MapNode


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its name as shown to admins, its tree, what was wrong with its form, the variables it asks for."""

    file: str
    root: MapNode
    problems: tuple[Problem, ...] = ()
    readable: bool = True
    asked: frozenset[str] = frozenset()

    def line(self, path: KeyPath) -> int:
        """The line of a key or item; of the nearest thing around it where it is not in the file."""
        node: Node | None = self.root
        line = 1
        for part in path:
            child = _child(node, part)
            if child is None:
                break
            line = node.lines[str(part)] if isinstance(node, MapNode) else child.line
            node = child
        return line

    def node(self, path: KeyPath) -> Node | None:
        """The node at this place, if there is one."""
        node: Node | None = self.root
        for part in path:
            node = _child(node, part)
        return node

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem at this place."""
        return Problem(self.file, self.line(path), dotted(path), message + self._source(path))

    def _source(self, path: KeyPath) -> str:
        """Where the value comes from that the file itself does not show."""
        node = self.node(path)
        return f"（值取自 {'、'.join(node.variables)}）" if isinstance(node, TextNode) and node.variables else ""


def _child(node: Node | None, part: str | int) -> Node | None:
    if isinstance(node, MapNode) and isinstance(part, str):
        return node.items.get(part)
    if isinstance(node, ListNode) and isinstance(part, int) and part < len(node.items):
        return node.items[part]
    return None


class _TooLarge(Exception):
    """Aliases inside aliases: the tree would never end."""


def parse(text: str, file: str, variables: Mapping[str, str]) -> Document:
    """Reads one file whose top is a mapping. What is wrong stands in the result's `problems`, never raised."""
    try:
        top = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        return _unreadable(file, *explained(error, text))
    except RecursionError:
        return _unreadable(file, 1, "嵌套过深；请改写")
    except yaml.YAMLError:
        return _unreadable(file, control_line(text), "含有不可见的控制字符；请删去")
    if top is None:
        return _unreadable(file, 1, "文件是空的；请写出内容")
    if not isinstance(top, yaml.MappingNode):
        line = top.start_mark.line + 1
        if any(map(is_wide, lines_of(text)[line - 1 : line])):
            return _unreadable(file, line, WIDE_COLON)
        return _unreadable(file, line, "文件应由「键: 值」组成；请对照随附的示例")
    builder = _Builder(file, variables, lines_of(text))
    try:
        root = builder.mapping(top, ())
    except _TooLarge:
        return _unreadable(file, top.start_mark.line + 1, "嵌套过深，或别名（&、*）展开后过大；请把内容直接写出")
    return Document(file, root, tuple(builder.problems), asked=references(text))


def _unreadable(file: str, line: int, message: str) -> Document:
    return Document(file, MapNode(line), (Problem(file, line, "", message),), readable=False)


class _Builder:
    """Turns PyYAML's nodes into ours, gathering problems on the way."""

    def __init__(self, file: str, variables: Mapping[str, str], lines: Sequence[str]) -> None:
        self.problems: list[Problem] = []
        self._lines = lines
        self._file = file
        self._variables = variables
        self._count = 0

    def node(self, node: yaml.Node, path: KeyPath) -> Node:
        self._count += 1
        if self._count > _MOST_NODES or len(path) > _DEEPEST:
            raise _TooLarge
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        line = self._line(node, path)
        if isinstance(node, yaml.SequenceNode):
            return ListNode(line, tuple(self.node(item, (*path, n)) for n, item in enumerate(node.value)))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line, path)
        raise AssertionError(f"no kind of YAML node: {type(node).__name__}")

    def _line(self, node: yaml.Node, path: KeyPath) -> int:
        line: int = node.start_mark.line + 1
        if node.tag not in _TAGS:
            self._problem(line, path, f"不支持 YAML 标签 {node.tag.replace(_YAML, '!!')}；请删去")
        return line

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> MapNode:
        line = self._line(node, path)
        items: dict[str, Node] = {}
        lines: dict[str, int] = {}
        merged: list[MapNode] = []
        for key, value in node.value:
            at = self._line(key, path)
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                self._problem(at, path, "键应为一个名字；请改写")
            elif key.value == "<<":
                merged += self._merged(value, at, path)
            elif key.value in items:
                again = (*path, key.value)
                self._problem(at, again, f"重复的键（第 {lines[key.value]} 行已有）；请只留一处")
            else:
                lines[key.value] = at
                items[key.value] = self.node(value, (*path, key.value))
        for source in merged:
            for name in source.items.keys() - items.keys():
                items[name], lines[name] = source.items[name], source.lines[name]
        return MapNode(line, items, lines)

    def _merged(self, value: yaml.Node, line: int, path: KeyPath) -> list[MapNode]:
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        built = [self.node(source, (*path, "<<")) for source in sources]
        if not all(isinstance(each, MapNode) for each in built):
            self._problem(line, (*path, "<<"), "<< 后面应为一组键值的别名；请把内容直接写出")
        return [each for each in built if isinstance(each, MapNode)]

    def _scalar(self, node: yaml.ScalarNode, line: int, path: KeyPath) -> TextNode:
        written = node.value
        try:
            text = substitute(written, self._variables)
        except BadReference as error:
            self._problem(line, path, str(error))
            text = written
        plain = not node.style
        wide = self._wide(node) if plain and "：" in written else 0
        variables = tuple(sorted(name for name in references(written) if self._variables.get(name)))
        return TextNode(line, text, written, plain, wide, variables)

    def _wide(self, node: yaml.ScalarNode) -> int:
        lines = range(node.start_mark.line, node.end_mark.line + 1)
        return next((n + 1 for n in lines if is_wide(self._lines[n])), 0)

    def _problem(self, line: int, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._file, line, dotted(path), message))
