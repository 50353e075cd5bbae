"""Which keys of the config hold secrets, the secrets a config holds, and texts without them. Pure."""

import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from pydantic import BaseModel, SecretStr

from gateway.config.entries import KINDS
from gateway.config.problems import Problem
from gateway.config.sections import Settings
from gateway.config.texts import DEFAULTS
from gateway.config.yaml_source import Document, ListNode, MapNode, Node
from memory.context import ContextOverrides

HIDDEN = "••••••"
SHORTEST = 8
"""Shorter values are not looked for in texts: they would be found in any word."""

_ARGUMENTS = frozenset({"args"})  # of a program: a token among them is nothing that could be told apart
_SECRET_VARIABLE = re.compile(r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD)$", re.I)
_MADE_KEY = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")
_LONGEST_QUOTE = 40


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
            hides = SecretStr in parts or info.repr is False or name in _ARGUMENTS
            (secret if hides else sections if inner else public).add(info.alias or name.replace("_", "-"))
            waiting += inner
    return frozenset(public - secret), frozenset(secret), frozenset(sections)


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether what stands at these keys is a secret; an item of a list stands at its list's key."""
    _, secret, sections = _known()
    return bool(path) and (path[-1] in secret or any(name in secret - sections for name in path))


def is_public(path: tuple[str, ...]) -> bool:
    """Whether what stands at these keys is known to be none."""
    return bool(path) and path[-1] in _known()[0] and not is_secret(path)


def secret_values(documents: Iterable[Document], variables: Mapping[str, str]) -> frozenset[str]:
    """Every secret of the files, and of the variables those that a secret is made of or that are named like one."""
    found = {value for name, value in variables.items() if _SECRET_VARIABLE.search(name)}
    for document in documents:
        found.update(_values(document.root, (), variables))
    return frozenset(value for value in found if len(value) >= SHORTEST)


def _values(node: Node, path: tuple[str, ...], variables: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, MapNode):
        for name, inner in node.items.items():
            yield from _values(inner, (*path, name), variables)
    elif isinstance(node, ListNode):
        for inner in node.items:
            yield from _values(inner, path, variables)
    elif is_secret(path) and path[-1] not in _ARGUMENTS:
        yield node.text.strip()
        yield from (variables[name].strip() for name in node.variables if name in variables)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text with every one of the secrets hidden, also where a quote broke off in it, and what looks like a key."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
        if "…" in text:
            for length in range(min(len(secret), _LONGEST_QUOTE), SHORTEST - 1, -1):
                text = text.replace(f"{secret[:length]}…", f"{HIDDEN}…")
    return _MADE_KEY.sub(HIDDEN, text)


def told(problems: Iterable[Problem], secrets: Iterable[str]) -> list[Problem]:
    """The problems as they may be shown: a secret that was written at a wrong place is not quoted."""
    known = tuple(secrets)
    return [
        Problem(each.file, each.line, without_secrets(each.key, known), without_secrets(each.message, known))
        for each in problems
    ]
