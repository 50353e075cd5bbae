"""What is wrong with the config: one line per problem, each with file, line, key and remedy."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KeyPath = tuple[str | int, ...]
"""Where a value stands: keys of mappings and positions in lists, from the file's top."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem. `message` (Chinese) says what is wrong and what to write, and never holds a secret."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigProblems(Exception):
    """The config cannot be used; `problems` holds every problem of every file, in the order of the files' lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def dotted(path: KeyPath) -> str:
    """``("intents", "patterns", 0)`` → ``intents.patterns[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(file: Path) -> str:
    """A file as admins know it: relative to the current folder where it lies inside, else absolute."""
    absolute = file.absolute()
    current = Path.cwd()
    return str(absolute.relative_to(current)) if absolute.is_relative_to(current) else str(absolute)


def close_to(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    close = difflib.get_close_matches(name.replace("_", "-").lower(), sorted(known), n=1, cutoff=0.7)
    return close[0] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that does not exist: the one that was probably meant, else all there are."""
    names = sorted(known)
    if meant := close_to(name, names):
        return f"是不是 {meant} ？"
    return f"可写：{'、'.join(names)}" if names else "请删去"
