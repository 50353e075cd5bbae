"""The environment the config may refer to: a `.env` file beside it, and ``${NAME}`` in its texts."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")
_ESCAPE = re.compile(r"\\(.)")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")


class BadReference(ValueError):
    """A ``${…}`` cannot be filled in; the message (Chinese) says why and what to write, without any value."""


@dataclass(frozen=True, slots=True)
class Dotenv:
    """What a `.env` file holds, and the lines (counted from 1) that are none of its form."""

    values: Mapping[str, str]
    bad_lines: tuple[int, ...]


def read_dotenv(text: str) -> Dotenv:
    """Reads ``KEY=VALUE`` lines: blank lines, ``# comments``, ``export``, single and double quotes are understood."""
    values: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        value = _value(found[2]) if found else None
        if found is None or value is None:
            bad.append(number)
        else:
            values[found[1]] = value
    return Dotenv(values, tuple(bad))


def _value(written: str) -> str | None:
    if written[:1] in ("'", '"'):
        found = _QUOTED.fullmatch(written)
        if not found:
            return None
        if found[2] is not None:
            return found[2]
        return _ESCAPE.sub(lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), found[1])
    return re.split(r"(?:^|\s)#", written, maxsplit=1)[0].strip()


def references(text: str) -> frozenset[str]:
    """The variables a text asks for."""
    return frozenset(found[1] for found in _REFERENCE.finditer(text) if found[1])


def unused(names: Iterable[str], asked: Collection[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Names that are not `asked` for, each with the one that was probably meant: asked for, and without a value."""
    lacking = [name for name in asked if not variables.get(name)]
    found = {}
    for name in names:
        close = difflib.get_close_matches(name.upper(), lacking, n=1, cutoff=0.75)
        if name not in asked and close:
            found[name] = close[0]
    return found


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Fills in ``${NAME}`` and ``${NAME:-default}`` (the default also for an empty variable); ``$${`` is a plain ``${``.

    Raises BadReference for a variable that is not set and has no default, and for any other ``${``.
    """

    def filled(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, default = found[1], found[2]
        if name is None:
            raise BadReference("${…} 的写法不对；请写 ${NAME} 或 ${NAME:-默认值}，要原样写出 ${ 请写 $${")
        value = variables.get(name, "")
        if default is not None:
            return value or default
        if name not in variables:
            raise BadReference(f"环境变量 {name} 没有设置；请在环境或 .env 中设置，或写 ${{{name}:-默认值}}")
        return value

    return _REFERENCE.sub(filled, text) if "${" in text else text
