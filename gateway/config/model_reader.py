"""A tree of texts and a settings model in, an instance and problems out: every problem at once, each at its line.

The texts are turned into what the model's fields want here, and not by pydantic, which takes ``yes``, ``0123`` or
``1_000`` in silence. What is wrong is left out and asked about again, so that one mistake hides no other.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BeforeValidator, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.environment import references
from gateway.config.explanations import explained, unlike
from gateway.config.problems import KeyPath, Problem, suggestion
from gateway.config.yaml_source import Document, ListNode, MapNode, Node, TextNode
from gateway.config.yaml_syntax import WIDE_COLON
from memory.settings import SettingsModel

_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_ROUNDS = 20

Model = TypeVar("Model", bound=SettingsModel)


def read_model(
    model: type[Model], document: Document, path: KeyPath = (), node: Node | None = None, also: Iterable[str] = ()
) -> tuple[Model | None, tuple[Problem, ...]]:
    """Reads what stands at `path` (or `node`, in its place) as `model`.

    `also` names keys that are read elsewhere, for suggestions. With problems the instance has defaults in place of what
    was wrong, good for checks of other things only; it is None where even that is impossible.
    """
    return _Reading(model, document, path, tuple(also)).read(document.root if node is None else node)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a field wants: ``text``, ``integer``, ``number``, ``switch``, ``list``, ``map`` or ``model``.

    `inner` is the annotation of a list's or map's values, or the model.
    """

    kind: str
    inner: Any = None
    secret: bool = False


def _shape(annotation: Any, metadata: Iterable[Any] = ()) -> _Shape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], (*metadata, *arguments[1:]))
    if origin in (Union, UnionType):
        return _shape(next(each for each in arguments if each is not type(None)), metadata)
    if origin is tuple:
        return _Shape("list", arguments[0])
    if origin is Mapping:
        return _Shape("map", arguments[1])
    if isinstance(annotation, type) and issubclass(annotation, SettingsModel):
        return _Shape("model", annotation)
    if any(isinstance(each, BeforeValidator) for each in metadata):
        return _Shape("text")  # a form of its own, a duration for one
    kind = {bool: "switch", int: "integer", float: "number"}.get(annotation, "text")
    return _Shape(kind, secret=annotation is SecretStr)


def _fields(model: type[SettingsModel]) -> dict[str, _Shape]:
    """The model's keys as they are written."""
    return {info.alias or name: _shape(info.annotation, info.metadata) for name, info in model.model_fields.items()}


class _Reading(Generic[Model]):
    """One `read_model`: what was found wrong so far, and is therefore left out."""

    def __init__(self, model: type[Model], document: Document, path: KeyPath, also: tuple[str, ...]) -> None:
        self._model = model
        self._document = document
        self._path = path
        self._also = also
        self._problems: dict[KeyPath, Problem] = {}
        self._omitted: set[KeyPath] = set()

    def read(self, node: Node) -> tuple[Model | None, tuple[Problem, ...]]:
        instance = None
        for _ in range(_ROUNDS):
            data = self._value(node, _Shape("model", self._model), self._path)
            omitted = len(self._omitted)
            try:
                instance = self._model.model_validate(data)
                break
            except ValidationError as error:
                for each in error.errors(include_url=False, include_input=False):
                    self._note(each)
            if len(self._omitted) == omitted:
                break
        known = {problem.key for problem in self._document.problems}
        return instance, tuple(problem for problem in self._problems.values() if problem.key not in known)

    def _wrong(self, path: KeyPath, message: str, *, line: int | None = None) -> None:
        """Notes a problem and leaves out what it stands in: the nearest key. `line`: where not at the key's own."""
        problem = self._document.problem(path, message)
        self._problems.setdefault(path, problem if line is None else replace(problem, line=line))
        while path and isinstance(path[-1], int):
            path = path[:-1]
        if len(path) > len(self._path):
            self._omitted.add(path)

    def _note(self, error: ErrorDetails) -> None:
        path = (*self._path, *error["loc"])
        shape = self._shape_at(error["loc"])
        if error["type"] == "missing":
            if path not in self._omitted:
                self._problems.setdefault(path, self._document.problem(path, "缺少这个键；请写出"))
        else:
            node = self._document.node(path)
            written = node.written if isinstance(node, TextNode) and not (shape and shape.secret) else None
            self._wrong(path, explained(error, written) + _lacking(node, error))

    def _shape_at(self, loc: KeyPath) -> _Shape | None:
        shape: _Shape | None = _Shape("model", self._model)
        for part in loc:
            if shape is None:
                return None
            if shape.kind == "model":
                shape = _fields(shape.inner).get(str(part))
            else:
                shape = _shape(shape.inner) if shape.kind in ("list", "map") else None
        return shape

    def _value(self, node: Node, shape: _Shape, path: KeyPath) -> Any:
        """What pydantic gets; what it should not get is noted and left out by whoever holds it."""
        if shape.kind in ("model", "map") and isinstance(node, MapNode):
            return self._mapping(node, shape, path)
        if shape.kind == "list" and isinstance(node, ListNode):
            return [self._value(item, _shape(shape.inner), (*path, n)) for n, item in enumerate(node.items)]
        if shape.kind not in ("model", "map", "list") and isinstance(node, TextNode):
            return self._scalar(node, shape, path)
        if isinstance(node, TextNode) and node.wide:
            self._wrong(path, WIDE_COLON, line=node.wide)
        else:
            self._wrong(path, unlike(shape.kind, blank=isinstance(node, TextNode) and node.blank))
        return None

    def _mapping(self, node: MapNode, shape: _Shape, path: KeyPath) -> dict[str, Any]:
        fields = _fields(shape.inner) if shape.kind == "model" else {}
        data: dict[str, Any] = {}
        for name, item in node.items.items():
            inside = (*path, name)
            if inside in self._omitted:
                continue
            if shape.kind == "map":
                value = self._value(item, _shape(shape.inner), inside)
            elif name in fields:
                value = self._value(item, fields[name], inside)
            else:  # not left to pydantic, which would take the names of the code as well
                known = [*fields, *(self._also if path == self._path else ())]
                self._wrong(inside, f"没有这个键；{suggestion(name, known)}")
                continue
            if inside not in self._omitted:
                data[name] = value
        return data

    def _scalar(self, node: TextNode, shape: _Shape, path: KeyPath) -> Any:
        text = node.text
        if shape.kind == "text":
            return text
        if shape.kind == "switch" and node.plain and text in ("true", "false"):
            return text == "true"
        if shape.kind == "integer" and _INTEGER.fullmatch(text):
            return int(text) if len(text) < 20 else text
        if shape.kind == "number" and _NUMBER.fullmatch(text):
            return float(text)
        self._wrong(path, unlike(shape.kind, blank=node.blank, written=node.written, plain=node.plain))
        return None


def _lacking(node: Node | None, error: ErrorDetails) -> str:
    """The variables that would give the values an entry lacks, for a message that names their keys."""
    if not isinstance(node, MapNode) or error["type"] != "value_error":
        return ""
    keys = re.findall(r"[a-z-]+", error["msg"])
    blank = [node.items[key] for key in dict.fromkeys(keys) if key in node.items]
    names = [
        name for each in blank if isinstance(each, TextNode) and not each.text for name in references(each.written)
    ]
    return f"（对应 .env 的 {'、'.join(names)}）" if names else ""
