"""Files of the config folder that nobody reads, because of their name or their place, and that were probably meant."""

import re
from collections.abc import Collection
from pathlib import Path

from gateway.config.environment import read_dotenv
from gateway.config.problems import Problem, shown
from gateway.config.text_file import read_text

_YAML = re.compile(r"(.+)\.ya?ml(?:\.txt)?", re.IGNORECASE)  # Windows hides an ending of its own
_DOTENV = (".env.txt", "env", "env.txt", ".env.yaml")


def misnamed_agents(config_dir: Path) -> list[Problem]:
    """Agents' files that end in something else than ``.yaml``."""
    return [
        Problem(shown(path), 1, "", "扩展名应为 .yaml；请改名")
        for path in sorted((config_dir / "agents").glob("*"))
        if path.suffix != ".yaml" and path.name[0] != "." and _YAML.fullmatch(path.name)
    ]


def instead_of(path: Path) -> str:
    """The name of the file that stands where `path` was meant; "" where there is none."""
    for other in sorted(path.parent.glob("*")):
        found = _YAML.fullmatch(other.name)
        if found and found[1].lower() == path.stem and other.name != path.name:
            return other.name
    return ""


def stray_notes(config_dir: Path, asked: Collection[str]) -> tuple[str, ...]:
    """Agents' files in the wrong folder; values of `asked` variables in a file that stands in for a missing `.env`."""
    notes = [
        f"{shown(path)} 不会读；智能体的文件请放进 {shown(config_dir / 'agents')}"
        for path in sorted(config_dir.glob("*.yaml"))
        if path.name != "gateway.yaml" and path.name[0] != "."
    ]
    dotenv = config_dir / ".env"
    if dotenv.exists():
        return tuple(notes)
    for path in (*(config_dir / name for name in _DOTENV), config_dir / ".env.example", config_dir.parent / ".env"):
        if filled := _filled(path, asked):
            notes.append(f"{shown(path)} 里有 {filled[0]}，但这个文件不会读；请改放在 {shown(dotenv)}")
    return tuple(notes)


def _filled(path: Path, asked: Collection[str]) -> list[str]:
    """The variables asked for that have a value there."""
    try:
        values = read_dotenv(read_text(path, errors="replace")).values
    except OSError:
        return []
    return [name for name, value in values.items() if value and name in asked]
