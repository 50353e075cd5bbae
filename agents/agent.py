"""What an agent is: one file under ``config/agents/``, and its name."""

import re
from dataclasses import dataclass
from typing import Annotated

import regex
from pydantic import AfterValidator, Field

from memory.context import ContextOverrides
from memory.conversation import AGENT_NAME
from memory.settings import SettingsModel


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("不能为空")
    return text


def _compilable(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"不是有效的正则表达式（{error}）") from error
    return pattern


def _agent_name(name: str) -> str:
    if not re.fullmatch(AGENT_NAME, name):
        raise ValueError("只能由小写字母、数字和 - 组成，以字母或数字开头，最多 48 个字符")
    return name


Filled = Annotated[str, AfterValidator(_filled)]
Pattern = Annotated[str, AfterValidator(_filled), AfterValidator(_compilable)]
AgentName = Annotated[str, AfterValidator(_agent_name)]
"""A name an agent can have: it stands in conversation ids and file names."""


class Intents(SettingsModel):
    """What this agent is for: words and patterns that choose it, examples for the classifier."""

    keywords: tuple[Filled, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    examples: tuple[Filled, ...] = ()


class AgentSettings(SettingsModel):
    """One agent file, ``config/agents/NAME.yaml``. `masking` None means: as `memory.masking` says."""

    description: str = ""
    prompt: Filled
    model: str = Field("main", min_length=1)
    temperature: float | None = Field(None, ge=0, le=2)
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    context: ContextOverrides = ContextOverrides()
    masking: tuple[str, ...] | None = None
    intents: Intents = Intents()
    tools: tuple[str, ...] = ()
    aliases: tuple[AgentName, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent by its name (the file's name without ``.yaml``)."""

    name: str
    settings: AgentSettings
