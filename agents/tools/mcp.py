"""MCP servers as the config names them, and which of their tools an agent may call: ``mcp:SERVER/TOOL``.

https://modelcontextprotocol.io. Nothing here needs the package mcp; see agents.tools.mcp_servers for what runs.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from memory.settings import Duration, SettingsModel

PREFIX = "mcp:"
ALL = "*"
SERVER_NAME = r"[a-z0-9][a-z0-9-]{0,31}"
MOST_NAME = 64
"""The most characters of a function's name at OpenAI, which takes ``^[a-zA-Z0-9_-]{1,64}$``."""

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_HASHED = re.compile(r"_[0-9a-f]{8}$")


class McpUnreachable(Exception):
    """There is no connection, or no more. The message is for admins (Chinese), without anything of the entry's."""


class McpServerSettings(SettingsModel):
    """One entry under `tools.mcp`: a program that talks over its standard input and output, or an address (streamable
    HTTP). Everything an entry holds may hold a secret, so none of it is shown."""

    command: tuple[str, ...] = Field((), repr=False)
    env: Mapping[str, SecretStr] = Field(default_factory=dict)
    url: SecretStr = SecretStr("")
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    timeout: Duration = Field(20.0, gt=0, le=600)

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        try:
            address = urlsplit(text)
            usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:
            usable = False
        if text and (not usable or any(character.isspace() for character in text)):
            raise ValueError("应为 http:// 或 https:// 开头的地址，例如 https://example.com/mcp")
        return value

    @field_validator("headers")
    @classmethod
    def _fit_for_http(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
                raise ValueError(f"{name} 不能作请求头的名字")
            if not all(32 <= ord(character) < 127 for character in text.get_secret_value()):
                raise ValueError(f"{name} 的值含有换行或非 ASCII 字符；请重新复制")
        return value

    @field_validator("env")
    @classmethod
    def _fit_for_a_program(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in text.get_secret_value():
                raise ValueError(f"{name} 不能作环境变量")
        return value

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and (not value[0].strip() or any("\0" in part for part in value)):
            raise ValueError("应为程序和它的参数，例如 [npx, -y, 包名]")
        return value


def problem_of(name: str, server: McpServerSettings) -> str | None:
    """What keeps an entry from being used (Chinese, for admins), as far as its keys do not go together."""
    if not re.fullmatch(SERVER_NAME, name):
        return "名字只能由小写字母、数字和 - 组成，以字母或数字开头，最多 32 个字符；请改名"
    url = server.url.get_secret_value()
    if bool(server.command) == bool(url):
        return "应写 command（本机的程序）或 url（streamable HTTP 的地址），二者取一"
    if url and server.env:
        return "env 只用于 command；请去掉，或改用 headers"
    if server.command and server.headers:
        return "headers 只用于 url；请去掉，或改用 env"
    return None


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave for an agent to call one tool of a server, or all of them (`ALL`)."""

    server: str
    tool: str

    def covers(self, server: str, tool: str) -> bool:
        """Whether this tool may be called."""
        return server == self.server and self.tool in (ALL, tool)


def is_grant(name: str) -> bool:
    """Whether a name under an agent's `tools` means a server's tools."""
    return name.startswith(PREFIX)


def grant_of(name: str) -> Grant:
    """``mcp:SERVER/TOOL`` or ``mcp:SERVER/*``. Raises ValueError with the remedy (Chinese, for admins)."""
    server, slash, tool = name.removeprefix(PREFIX).partition("/")
    if not slash or not server or not tool:
        raise ValueError(f"{name} 应写成 mcp:服务/工具，全部工具写 mcp:{server or '服务'}/*")
    return Grant(server, tool)


def grants_of(names: Iterable[str]) -> tuple[Grant, ...]:
    """The grants among the names under an agent's `tools`. Raises ValueError."""
    return tuple(grant_of(name) for name in dict.fromkeys(names) if is_grant(name))


def function_name(server: str, tool: str, *, hashed: bool = False) -> str:
    """What the model calls a server's tool: valid at OpenAI, the same at all times, different for different tools.

    ``SERVER_TOOL`` where that is valid; else what fits of it and a hash of both (also where it only looks so, or where
    `hashed` asks for it). A server's name has no underscore, so its end is known.
    """
    plain = f"{server}_{tool}"
    if not hashed and tool and len(plain) <= MOST_NAME and not _UNFIT.search(plain) and not _HASHED.search(plain):
        return plain
    digest = hashlib.sha256(f"{server}/{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_UNFIT.sub('_', plain)[: MOST_NAME - 9]}_{digest}"
