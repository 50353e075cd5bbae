"""The gateway that runs on this workspace, as other commands reach it: through its console."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gateway.command_line.terminal_text import printable
from gateway.config.live_settings import LiveSettings

_LONGEST = 300


class NotDone(Exception):
    """The running gateway did not do what it was asked; the message (Chinese) says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """Where the console listens, and the token it wants."""

    host: str
    port: int
    token: str = field(repr=False)

    def url(self, path: str) -> str:
        """An address of the console. One that listens everywhere is reached on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}{path}" if ":" in host else f"http://{host}:{self.port}{path}"

    def session(self) -> aiohttp.ClientSession:
        """Requests that are logged in; to be closed by the caller."""
        return aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.token}"})


async def running_console(live: LiveSettings, workspace: Path) -> RunningConsole:
    """The console of the gateway that holds this workspace, by its config and the token it keeps there."""
    console = live.current.console
    token = console.token.get_secret_value()
    if not token:
        kept = workspace / "console-token"
        token = (await asyncio.to_thread(kept.read_text)).strip() if await asyncio.to_thread(kept.exists) else ""
    return RunningConsole(console.host, console.port, token)


async def refused(response: aiohttp.ClientResponse) -> str:
    """Why the console did not do what it was asked, and the remedy (Chinese), for an answer other than 200."""
    if response.status == 401:
        return "正在运行的网关不认这个令牌（HTTP 401）；请检查 console.token，或工作目录的 console-token"
    if response.status == 429:
        return "从这台机器登录失败的次数太多（HTTP 429）；请一分钟后再试，并检查 console.token 是否与网关启动时相同"
    try:
        said = str((await response.json())["error"])
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        said = "请检查 console 的地址与网关的日志"
    return f"正在运行的网关没有接受（HTTP {response.status}）：{printable(' '.join(said.split()))[:_LONGEST]}"


async def ask_running(
    live: LiveSettings, workspace: Path, path: str, body: Mapping[str, object], *, seconds: float
) -> Mapping[str, Any]:
    """What the running gateway answers to a POST of `body`, within `seconds`. Raises NotDone."""
    console = await running_console(live, workspace)
    url, timeout = console.url(path), aiohttp.ClientTimeout(total=seconds)
    try:
        async with console.session() as session, session.post(url, json=body, timeout=timeout) as response:
            if response.status != 200:
                raise NotDone(await refused(response))
            answer: Mapping[str, Any] = await response.json()
            return answer
    except (aiohttp.ClientError, TimeoutError):
        raise NotDone(
            f"工作目录正被另一个网关使用，而它的控制台 {url} 无法访问；请打开 console，或先停止网关"
        ) from None
