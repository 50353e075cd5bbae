"""The gateway that runs on this workspace, as other commands reach it: through its console."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from gateway.live_settings import LiveSettings


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
