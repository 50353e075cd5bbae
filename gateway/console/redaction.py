"""Config files as they may be shown: the lines as written, with everything that is or may be a secret made unreadable.

Shown are values of keys that are known and hold no secret; whatever else stands in a file (a mistyped `api-kee`, a
header's value) is not. Comments are shown but for what looks like a secret in them. Pure.
"""

import re
import typing
from collections.abc import Iterable, Iterator
from functools import cache

import yaml
from pydantic import BaseModel, SecretStr

from gateway.config.entries import KINDS
from gateway.config.sections import Settings
from gateway.config.texts import DEFAULTS
from memory.context import ContextOverrides

HIDDEN = "••••••"
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-(.*))?\}", re.DOTALL)
_LOOKS_SECRET = re.compile(
    r"((?:key|secret|token|password|passwd|pwd)[\"']?\s*[:=：](?!-)\s*)(?![\"']?(?:\$\{|•))([^\s,}]+)", re.I
)
_NAME_IN_ADDRESS = re.compile(r"(://)[^/\s@]+@")
_QUERY_OF_ADDRESS = re.compile(r"(://[^\s?\"']+\?)([^\s\"']+)")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_ONE_WORD = re.compile(r"[^\s:{},\[\]\"'|>&*!#]+(?:\s+#.*)?")
_KEY_LINE = re.compile(r"(\s*(?:- +)?[\"']?([\w.-]+)[\"']?\s*:)(\s+.*|)$")
_SHORTEST = 8
_DEEPEST, _MOST_NODES = 40, 50_000
_ALSO_SECRET = frozenset({"args"})  # of a program: a token among them is nothing that could be told apart


@cache
def _known() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The keys that are public; those that hold secrets, be it in one place of many; those that are sections."""
    public, secret, sections = set(DEFAULTS), set[str](), set[str]()
    seen: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = [Settings, ContextOverrides, *KINDS.values()]
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        for name, info in model.model_fields.items():
            parts = list(_parts(info.annotation))
            inner = [each for each in parts if isinstance(each, type) and issubclass(each, BaseModel)]
            hides = SecretStr in parts or info.repr is False or name in _ALSO_SECRET
            (secret if hides else sections if inner else public).add(info.alias or name.replace("_", "-"))
            waiting += inner
    return frozenset(public - secret), frozenset(secret), frozenset(sections)


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


def redacted(text: str, secrets: Iterable[str] = ()) -> list[str]:
    """The lines of a YAML file, as many as it has; `secrets` are values that must not be seen wherever they stand."""
    try:
        root = yaml.compose(text, _LOADER)
        hidden = sorted(set(_hidden(root, (), iter(range(_MOST_NODES)))), reverse=True) if root is not None else []
    except (yaml.YAMLError, RecursionError):
        return _cleaned("\n".join(map(_by_line, text.split("\n"))), secrets)
    copies = {value for _, _, value in hidden}
    for start, end, _ in hidden:
        written = text[start:end]
        text = text[:start] + _masked(written) + "\n" * written.count("\n") + text[end:]
    return _cleaned(text, {*secrets, *copies})


def _hidden(node: yaml.Node, path: tuple[str, ...], left: Iterator[int]) -> Iterator[tuple[int, int, str]]:
    """Start and end of every scalar that is not shown; with its value where that is a secret for certain.

    Raises RecursionError for aliases that lead back to themselves, or to more than `left` nodes.
    """
    if len(path) > _DEEPEST or next(left, None) is None:
        raise RecursionError
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            yield from _hidden(value, (*path, name), left)
            if not isinstance(key, yaml.ScalarNode):
                yield from _hidden(key, (*path, "?"), left)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _hidden(item, (*path, path[-1] if path else ""), left)
    elif node.value.strip() and not _is_public(path):
        value = str(node.value)
        known = _is_secret(path) and not _REFERENCE.fullmatch(value)
        yield node.start_mark.index, node.end_mark.index, value if known else ""


def _is_secret(path: tuple[str, ...]) -> bool:
    _, secret, sections = _known()
    return bool(path) and (path[-1] in secret or any(name in secret - sections for name in path))


def _is_public(path: tuple[str, ...]) -> bool:
    return bool(path) and path[-1] in _known()[0] and not _is_secret(path)


def _masked(written: str) -> str:
    """A reference to a variable stays readable, but for its default."""
    bare = written.strip().strip("\"'")
    found = _REFERENCE.fullmatch(bare)
    if not found:
        return HIDDEN
    quote = written[0] if written[0] in "\"'" else ""
    shown = bare if not found[1] else f"{bare[: found.start(1)]}{HIDDEN}}}"
    return f"{quote}{shown}{quote}"


def _by_line(line: str) -> str:
    """A line of a file whose form is broken: only keys, comments and values of public keys can be told."""
    if not line.strip() or line.lstrip().startswith("#"):
        return line
    found = _KEY_LINE.fullmatch(line)
    if not found:
        return HIDDEN
    value = found[3].strip()
    plain = _is_public((found[2],)) and _ONE_WORD.fullmatch(value)
    shown = not value or plain or _VARIABLE.fullmatch(value.strip("\"'"))
    return line if shown else f"{found[1]} {HIDDEN}"


def _cleaned(text: str, secrets: Iterable[str]) -> list[str]:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    text = _LOOKS_SECRET.sub(rf"\1{HIDDEN}", text)
    text = _NAME_IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    text = _QUERY_OF_ADDRESS.sub(lambda found: found[1] + "&".join(map(_parameter, found[2].split("&"))), text)
    return text.split("\n")


def _parameter(written: str) -> str:
    """One of an address's parameters: its name at most, unless its value is a variable's."""
    name, equals, value = written.rpartition("=")
    return written if _VARIABLE.fullmatch(value) else f"{name}{equals}{HIDDEN}"
