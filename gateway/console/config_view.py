"""The configuration as the console shows it: files without secrets, problems at their lines, what differs from what runs."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from gateway.config.live_settings import LiveSettings, changed_keys
from gateway.config.problems import ConfigProblems, Problem, shown
from gateway.config.secret_values import HIDDEN
from gateway.config.sections import Settings
from gateway.config.settings import agent_files
from gateway.config.text_file import read_bytes
from gateway.console.redaction import redacted
from memory.settings import SettingsModel

_LONGEST = 200
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its name as problems write it, its lines without secrets, the problems of each line."""

    name: str
    lines: Sequence[str]
    problems: Mapping[int, Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that the files give another value than what runs has; `restart`: it holds from the next start on."""

    key: str
    running: str
    written: str
    restart: bool


@dataclass(frozen=True, slots=True)
class ConfigState:
    """The files against what runs: problems, or else what differs."""

    problems: Sequence[Problem]
    differences: Sequence[Difference]

    @property
    def same(self) -> bool:
        """Whether what runs is what stands in the files."""
        return not self.problems and not self.differences


async def config_files(live: LiveSettings) -> list[SourceFile]:
    """The files of the config folder; ``.env`` is never shown."""
    secrets = list(_secrets(live.current))
    return await asyncio.to_thread(_files, live, secrets)


async def config_state(live: LiveSettings) -> ConfigState:
    """Reads the files anew, takes nothing over."""
    try:
        written, waiting = await live.look()
    except ConfigProblems as error:
        return ConfigState(error.problems, ())
    running = live.current
    found = [
        Difference(key, _value(running, key), _value(written, key), key in waiting)
        for key in changed_keys(running, written)
        if key not in ("demo-stands-in", "demo_stands_in")
    ]
    return ConfigState((), [each if each.running != each.written else _changed(each) for each in found])


def _files(live: LiveSettings, running: Sequence[str]) -> list[SourceFile]:
    secrets = {*running, *live.written_secrets()}
    files = []
    for path in (live.config_dir / "gateway.yaml", *agent_files(live.config_dir)):
        try:
            raw = read_bytes(path, _MOST_BYTES)
        except OSError:
            continue
        text = raw.decode("utf-8-sig", "replace")
        own = [problem for problem in live.problems if problem.file == shown(path)]
        at = {line: [each for each in own if each.line == line] for line in {each.line for each in own}}
        files.append(SourceFile(shown(path), redacted(text, secrets), at))
    return files


def _secrets(value: object) -> Iterator[str]:
    """Every secret that runs, wherever it stands."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, SettingsModel):
        for name, info in type(value).model_fields.items():
            inner = getattr(value, name)
            if info.repr is False and isinstance(inner, str):
                yield inner
            else:
                yield from _secrets(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _secrets(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _secrets(inner)


def _changed(difference: Difference) -> Difference:
    return Difference(difference.key, difference.running, f"{difference.written}（已改）", difference.restart)


def _value(settings: Settings, key: str) -> str:
    """The value at a dotted key, as far as it may be seen."""
    value: object = settings
    for name in key.split("."):
        if isinstance(value, SettingsModel):
            fields = {info.alias or field: (field, info) for field, info in type(value).model_fields.items()}
            if name not in fields:
                return "–"
            field, info = fields[name]
            value = getattr(value, field)
            if info.repr is False and value:
                return HIDDEN
        elif isinstance(value, Mapping):
            if name not in value:
                return "（没有）"
            value = value[name]
        else:
            return "–"
    return _told(value)


def _told(value: object) -> str:
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else "（空）"
    if isinstance(value, SettingsModel | Mapping):
        return "（一组设置）"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        text = "、".join(map(str, value)) or "[]"
    else:
        text = "（没有写）" if value is None else str(value)
    line = " ".join(text.split()) or "（空）"
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
