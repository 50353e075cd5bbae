"""Config files as they may be shown: the lines as written, with everything that is or may be a secret made unreadable.

Shown are values of keys that are known and hold no secret; whatever else stands in a file (a mistyped `api-kee`, a
header's value) is not. Comments are shown but for what looks like a secret in them, and those behind a secret. Pure.
"""

import re
from collections.abc import Iterable, Iterator

import yaml

from gateway.config.secret_values import HIDDEN, SHORTEST, is_public, is_secret, without_secrets

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
_DEEPEST, _MOST_NODES = 40, 50_000
_COMMENT = re.compile(r"[^\n]*?[ \t]#([^\n]*)")
_KEY_LIKE = re.compile(r"(?=[!-~]*\d)[!-~]{8,}")


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
        named = _REFERENCE.fullmatch(written.strip().strip("\"'"))
        reference = named is not None and not named[1]
        after = text[end:] if written.endswith("\n") else _commented(text[end:], reference=reference)
        text = text[:start] + _masked(written) + "\n" * written.count("\n") + after
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
    elif node.value.strip() and not is_public(path):
        value = str(node.value)
        known = is_secret(path) and not _REFERENCE.fullmatch(value)
        yield node.start_mark.index, node.end_mark.index, value if known else ""


def _masked(written: str) -> str:
    """A reference to a variable stays readable, but for its default."""
    bare = written.strip().strip("\"'")
    found = _REFERENCE.fullmatch(bare)
    if not found:
        return HIDDEN
    quote = written[0] if written[0] in "\"'" else ""
    shown = bare if not found[1] else f"{bare[: found.start(1)]}{HIDDEN}}}"
    return f"{quote}{shown}{quote}"


def _commented(after: str, *, reference: bool) -> str:
    """What follows a hidden value, with the comment of its line hidden: an old secret is often kept there.

    Behind a mere reference it may be read but for long words with a digit.
    """
    found = _COMMENT.match(after)
    if not found or not found[1].strip():
        return after
    comment = _KEY_LIKE.sub(HIDDEN, found[1]) if reference else f" {HIDDEN}"
    return f"{after[: found.start(1)]}{comment}{after[found.end(1) :]}"


def _by_line(line: str) -> str:
    """A line of a file whose form is broken: only keys, comments and values of public keys can be told."""
    if not line.strip() or line.lstrip().startswith("#"):
        return line
    found = _KEY_LINE.fullmatch(line)
    if not found:
        return HIDDEN
    value = found[3].strip()
    plain = is_public((found[2],)) and _ONE_WORD.fullmatch(value)
    shown = not value or plain or _VARIABLE.fullmatch(value.strip("\"'"))
    return line if shown else f"{found[1]} {HIDDEN}"


def _cleaned(text: str, secrets: Iterable[str]) -> list[str]:
    text = without_secrets(text, (secret for secret in secrets if len(secret) >= SHORTEST))
    text = _LOOKS_SECRET.sub(rf"\1{HIDDEN}", text)
    text = _NAME_IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    text = _QUERY_OF_ADDRESS.sub(lambda found: found[1] + "&".join(map(_parameter, found[2].split("&"))), text)
    return text.split("\n")


def _parameter(written: str) -> str:
    """One of an address's parameters: its name at most, unless its value is a variable's."""
    name, equals, value = written.rpartition("=")
    return written if _VARIABLE.fullmatch(value) else f"{name}{equals}{HIDDEN}"
