"""The config folder → all settings, or every problem of every file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agents.agent import AgentSettings
from agents.model import ModelSettings
from channels.channel import EntrySettings
from gateway.config.cross_checks import Documents, cross_checks, is_keyless, without_repeats
from gateway.config.entries import read_entries
from gateway.config.environment import read_dotenv
from gateway.config.model_reader import read_model
from gateway.config.notes import dotenv_notes, model_notes, token_note, wide_notes
from gateway.config.planned_channels import PLANNED
from gateway.config.problems import ConfigProblems, Problem, shown
from gateway.config.secret_values import secret_values, told, without_secrets
from gateway.config.sections import (
    AgentDefaults,
    ClassifySettings,
    ClusterSettings,
    ConsoleSettings,
    ConversationsSettings,
    GatewayFile,
    LimitsSettings,
    LogSettings,
    LongTermSettings,
    MemorySettings,
    RouterSettings,
    ServerSettings,
    Settings,
)
from gateway.config.stray_files import instead_of, misnamed_agents, stray_notes
from gateway.config.text_file import NotOrdinary, read_text
from gateway.config.unavailable import remarks
from gateway.config.yaml_source import Document, MapNode, parse
from memory.conversation import AGENT_NAME
from memory.filters import look_in

__all__ = [
    "AgentDefaults",
    "ClassifySettings",
    "ClusterSettings",
    "ConsoleSettings",
    "ConversationsSettings",
    "LimitsSettings",
    "Loaded",
    "LogSettings",
    "LongTermSettings",
    "MemorySettings",
    "RouterSettings",
    "ServerSettings",
    "Settings",
    "load",
    "load_settings",
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Good settings, the files they were read from, and every secret these hold."""

    settings: Settings
    documents: Documents
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def load_settings(config_dir: Path, environ: Mapping[str, str]) -> Settings:
    """Reads `gateway.yaml`, `agents/*.yaml` and `.env` of the folder. Raises ConfigProblems with all of them at once.

    Where `.env` or the agents' folder cannot be read, that alone: the rest would be taken for wrong for want of it.
    """
    return load(config_dir, environ).settings


def load(config_dir: Path, environ: Mapping[str, str]) -> Loaded:
    """As `load_settings`, with the files' trees for later checks. Raises ConfigProblems."""
    dotenv, problems = _dotenv(config_dir / ".env")
    unread = _folder_unread(config_dir / "agents")
    if dotenv is None or unread:  # what follows from it would only mislead
        raise ConfigProblems((*problems, *unread))
    variables = {**dotenv, **environ}
    documents = _documents(config_dir, variables)
    gateway, agents = documents.gateway, documents.agents
    secrets = secret_values((gateway, *agents.values()), variables)
    problems += gateway.problems
    for name, document in agents.items():
        problems += document.problems
        if not _is_name(name):
            problems.append(document.problem((), "文件名只能由小写字母、数字和 - 组成，最多 48 个字符；请改名"))
    stray = misnamed_agents(config_dir)
    problems += stray
    agent_settings, found = _agents(agents)
    problems += found
    if not gateway.readable:
        raise ConfigProblems(told(problems, secrets))
    look_in(config_dir.resolve().parent)
    settings, found = _settings(gateway, agent_settings)
    problems += found
    checked = cross_checks(settings, documents)
    if stray or any(not document.readable or not _is_name(name) for name, document in agents.items()):
        checked = [problem for problem in checked if problem.key != "agent.default"]
    problems = without_repeats(problems, *checked)
    if problems:
        raise ConfigProblems(told(problems, secrets))
    asked = gateway.asked.union(*(document.asked for document in agents.values()))
    notes = (
        *remarks(settings),
        *token_note(settings),
        *model_notes(settings, gateway, variables),
        *wide_notes(agents),
        *stray_notes(config_dir, asked),
        *dotenv_notes(config_dir / ".env", dotenv, asked, variables),
    )
    shown_notes = tuple(without_secrets(note, secrets) for note in notes)
    return Loaded(settings.model_copy(update={"notes": shown_notes}), documents, secrets)


def secrets_in(config_dir: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """Every secret the files hold now, whether or not the rest of them is good. Blocking."""
    variables = {**(_dotenv(config_dir / ".env")[0] or {}), **environ}
    documents = _documents(config_dir, variables)
    return secret_values((documents.gateway, *documents.agents.values()), variables)


def agent_files(config_dir: Path) -> list[Path]:
    """The agents' files, by name; what editors leave beside them is none."""
    return sorted(path for path in (config_dir / "agents").glob("*.yaml") if not path.name.startswith("."))


def _folder_unread(folder: Path) -> list[Problem]:
    """Why the files in the folder cannot be listed, if they cannot; one that is missing has none."""
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return [Problem(shown(folder), 1, "", "应是一个目录；请移走这个文件")]
    except OSError as error:
        return [_unread(folder, error)]
    return []


def _is_name(name: str) -> bool:
    return re.fullmatch(AGENT_NAME, name) is not None


def _dotenv(dotenv: Path) -> tuple[Mapping[str, str] | None, list[Problem]]:
    """The values in `.env`, None where it cannot be read, and what is wrong with it."""
    try:
        read = read_dotenv(read_text(dotenv))
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError) as error:
        return None, [_unread(dotenv, error)]
    problems = [Problem(shown(dotenv), line, "", "应为 NAME=值；请改写，或以 # 开头作注释") for line in read.bad_lines]
    return read.values, problems


def _documents(config_dir: Path, variables: Mapping[str, str]) -> Documents:
    agents = {path.stem: _document(path, variables) for path in agent_files(config_dir)}
    return Documents(_document(config_dir / "gateway.yaml", variables), agents)


def _document(path: Path, variables: Mapping[str, str]) -> Document:
    try:
        return parse(read_text(path), shown(path), variables)
    except (OSError, UnicodeDecodeError) as error:
        return Document(shown(path), MapNode(1), (_unread(path, error),), readable=False)


def _unread(path: Path, error: OSError | UnicodeDecodeError) -> Problem:
    if isinstance(error, FileNotFoundError):
        other = instead_of(path)
        message = (
            f"找不到这个文件，却有 {other}；请改名"
            if other
            else "找不到这个文件；请从随附的 config/ 复制，或用 --config 指定目录"
        )
    elif isinstance(error, IsADirectoryError):
        message = "是一个目录，不是文件；请移走"
    elif isinstance(error, NotOrdinary):
        message = "不是普通的文件；请移走"
    elif isinstance(error, UnicodeDecodeError):
        message = "不是 UTF-8 编码；请另存为 UTF-8"
    else:
        message = f"无法读取（{error.strerror or type(error).__name__}）；请检查权限"
    return Problem(shown(path), 1, "", message)


def _agents(documents: Mapping[str, Document]) -> tuple[dict[str, AgentSettings], list[Problem]]:
    agents: dict[str, AgentSettings] = {}
    problems: list[Problem] = []
    for name, document in documents.items():
        settings, found = read_model(AgentSettings, document) if document.readable else (None, ())
        problems += found
        # one that is wrong is there all the same, so that nobody is told that it does not exist
        agents[name] = settings or AgentSettings(prompt="-")
    return agents, problems


def _settings(document: Document, agents: Mapping[str, AgentSettings]) -> tuple[Settings, list[Problem]]:
    top, found = read_model(GatewayFile, document, node=document.root.without("channels"), also=("channels",))
    entries = read_entries(document)
    file = top or GatewayFile()
    models = {"main": ModelSettings(), **file.models}
    stands_in = is_keyless(models["main"]) and not _platforms(entries.channels)
    if stands_in:
        models["main"] = models["main"].model_copy(update={"provider": "demo"})
    settings = Settings(
        **{**dict(file), "models": models},
        agents=agents,
        channels=entries.channels,
        entry_context=entries.context,
        demo_stands_in=stands_in,
    )
    return settings, [*found, *entries.problems]


def _platforms(entries: Mapping[str, EntrySettings]) -> list[str]:
    return [name for name, entry in entries.items() if entry.enabled and entry.kind not in {"web", *PLANNED}]
