"""The whole gateway for tests: in this process (`Inside`) or as one of its own (`Process`), and people who talk to it.

Only the outside of the product is used: config files in, signed events of platforms and HTTP in; calls to the
stand-in platform and model, files, exit codes out.
"""

import asyncio
import contextlib
import fcntl
import functools
import itertools
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from gateway.app import App
from gateway.config.live_settings import LiveSettings
from gateway.config.settings import Settings, load_settings
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios import prepared
from tests.scenarios.conversation_files import Item, checked
from tests.waiting import until

TOKEN = "token-of-the-scenarios"
CANARY = "sk-scenario-canary"
ENCRYPT_KEY = "encrypt-key-of-the-scenarios"
VERIFICATION_TOKEN = "v-test-token"
_FIRST_PORT, _RANGES, _PORTS = 15_000, 17, 1000
_ports = itertools.count(random.SystemRandom().randrange(_PORTS))
ROOT = Path(__file__).resolve().parents[2]

AGENTS: Mapping[str, Any] = {
    "general-agent": {"description": "通用助手", "prompt": "你是通用助手。PROMPT-GENERAL"},
    "job-recommend-agent": {
        "description": "推荐岗位",
        "prompt": "你是求职顾问。PROMPT-JOB",
        "intents": {"keywords": ["推荐岗位", "找工作"]},
    },
    "resume-optimise-agent": {
        "description": "优化简历",
        "prompt": "你是简历顾问。PROMPT-RESUME",
        "intents": {"keywords": ["简历"]},
    },
}


@functools.cache
def _own_range() -> int:
    """The first port of a range that is this process's as long as it lives; of any, where none is free."""
    order = random.SystemRandom().sample(range(_RANGES), _RANGES)
    for number in order:
        with contextlib.suppress(OSError):
            lock = os.open(
                f"{tempfile.gettempdir()}/sanqiao-ports-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
            )
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return _FIRST_PORT + number * _PORTS
    return _FIRST_PORT + order[0] * _PORTS


def free_port() -> int:
    """A free port below the ephemeral range, so that no outgoing connection takes it while a gateway is down.

    Each process of tests has a range of its own, whatever else is being tested on this machine, and gives its ports
    one after the other.
    """
    first = _own_range()
    for _ in range(_PORTS):
        port = first + next(_ports) % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over` put in, as deep as both have mappings."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def feishu_entry(feishu: FakeFeishu, mode: str = "webhook", **over: Any) -> dict[str, Any]:
    """What stands under `channels.feishu` for this stand-in."""
    entry = {"enabled": True, "mode": mode, "app-id": feishu.app_id, "app-secret": feishu.app_secret}
    secrets = {"encrypt-key": ENCRYPT_KEY, "verification-token": VERIFICATION_TOKEN}
    return {**entry, **secrets, "api-base-url": feishu.base, **over}


# ---------------------------------------------------------------- what people see


@dataclass
class Said:
    """What the web chat answered to one question."""

    text: str = ""
    streamed: str = ""
    agent: str | None = None
    reason: str | None = None
    conversation: str | None = None
    usage: Mapping[str, int] | None = None
    error: str | None = None


@dataclass(frozen=True)
class Shown:
    """One message that people in a Feishu chat see; `asked` is the message it answers."""

    asked: str
    text: str
    kind: str
    uuid: str = field(repr=False)


def shown(feishu: FakeFeishu, asked: str | None = None) -> list[Shown]:
    """Every message the bot made, in order; a repeat under the same `uuid` is no new message."""
    found: dict[str, Shown] = {}
    for call in list(feishu.sent):
        parts, body = call["path"].strip("/").split("/"), call["body"]
        if parts[:3] != ["im", "v1", "messages"] or call["method"] != "POST" or call.get("answer") != 0:
            continue
        content = json.loads(body["content"])
        text = content["text"] if body["msg_type"] == "text" else content["zh_cn"]["content"][0][0]["text"]
        to = parts[3] if parts[4:] == ["reply"] else ""
        found.setdefault(body["uuid"], Shown(to, text, body["msg_type"], body["uuid"]))
    return [each for each in found.values() if asked in (None, each.asked)]


def texts(feishu: FakeFeishu, asked: str | None = None) -> list[str]:
    """The texts of `shown`."""
    return [each.text for each in shown(feishu, asked)]


def asked(model: ModelServer) -> list[list[tuple[str, str]]]:
    """Role and text of each message of each request, without the system message."""
    return [[(each["role"], each["content"]) for each in request["messages"][1:]] for request in model.requests]


def id_of(event: Mapping[str, Any]) -> str:
    """The message id in an event."""
    number: str = event["event"]["message"]["message_id"]
    return number


class Clock:
    """The clock, set so many seconds ahead (or back)."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


# ---------------------------------------------------------------- the gateway


class Gateway:
    """A gateway on a config and a workspace of its own below `root`; `settings` and `agents` are what `write` writes."""

    def __init__(
        self,
        root: Path,
        model: ModelServer,
        over: Mapping[str, Any] | None = None,
        agents: Mapping[str, Any] | None = None,
        *,
        feishu: FakeFeishu | None = None,
        mode: str = "webhook",
    ) -> None:
        self.root, self.config, self.workspace = root, root / "config", root / "workspace"
        self.port, self.console_port = free_port(), free_port()
        self.feishu = feishu
        self.mode = mode
        main = {
            "provider": "openai",
            "base-url": model.base_url,
            "api-key": CANARY,
            "model": "fake-main",
            "timeout": "20s",
            "total-timeout": "40s",
        }
        base: dict[str, Any] = {
            "server": {"port": self.port, "drain": "5s"},
            "console": {"port": self.console_port, "token": TOKEN},
            "models": {"main": main},
            "agent": {"context": {"summary": {"enabled": False}}},  # it would ask the model in the background
            "router": {"classify": {"enabled": False}},  # it would ask the model before each conversation
            "limits": {"messages-per-minute": 0},
            "channels": {"web": {"enabled": True}},
        }
        if feishu is not None:
            base["channels"]["feishu"] = feishu_entry(feishu, mode)
        self.settings = merged(base, over or {})
        self.agents = merged(AGENTS, agents or {})

    # ---- config

    def write(self) -> None:
        """Writes each config file that differs, whole at every moment. Blocking."""
        (self.config / "agents").mkdir(parents=True, exist_ok=True)
        files = {self.config / "gateway.yaml": self.settings}
        files |= {self.config / "agents" / f"{name}.yaml": agent for name, agent in self.agents.items()}
        for path, value in files.items():
            text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                new = self.root / "new.yaml"
                new.write_text(text, encoding="utf-8")
                os.replace(new, path)

    async def change(self, over: Mapping[str, Any], agents: Mapping[str, Any] | None = None) -> None:
        """Changes the config files while the gateway runs."""
        self.settings = merged(self.settings, over)
        self.agents = merged(self.agents, agents or {})
        await asyncio.to_thread(self.write)

    # ---- HTTP

    def url(self, path: str) -> str:
        """An address on the public listener."""
        return f"http://127.0.0.1:{self.port}{path}"

    def console(self, path: str) -> str:
        """An address on the console's listener."""
        return f"http://127.0.0.1:{self.console_port}{path}"

    async def get(self, path: str) -> tuple[int, Any]:
        """GET from the console: status, and JSON where it is."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(self.console(path)) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def health(self) -> tuple[int, str]:
        """Status and word of /healthz; (0, "") where nobody listens."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=10)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.url("/healthz")) as response:
                return response.status, (await response.json())["status"]
        return 0, ""

    # ---- people in the web chat

    async def stream(self, user: str, text: str, **more: str | None) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """One question through the web chat: name and data of each event as it comes."""
        body = {"user": user, "text": text, **more}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self.console("/api/chat"), json=body) as response,
        ):
            assert response.status == 200, await response.text()
            name = ""
            async for raw in response.content:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])

    async def chat(self, user: str, text: str, **more: str | None) -> Said:
        """One question through the web chat, up to its last event."""
        said = Said()
        async with contextlib.aclosing(self.stream(user, text, **more)) as events:
            async for name, data in events:
                match name:
                    case "route":
                        said.agent, said.reason = data["agent"], data["reason"]
                    case "delta":
                        said.streamed += data["text"]
                    case "done":
                        said.text, said.conversation, said.usage = data["text"], data["conversation"], data["usage"]
                        return said
                    case "error":
                        said.error = data["message"]
                        return said
        raise AssertionError("the stream ended without its last event")

    # ---- people in Feishu

    async def deliver(self, event: Mapping[str, Any]) -> bool:
        """The platform delivers an event, the way this gateway receives them; whether it was acknowledged."""
        assert self.feishu is not None
        if self.mode == "websocket":
            await self.feishu.wait_connected()
            ack = await self.feishu.push(dict(event))
            return ack is not None and ack.code == 200
        status, _, _ = await self.feishu.post_webhook(self.url("/feishu"), dict(event), encrypt_key=ENCRYPT_KEY)
        return bool(status == 200)

    async def feishu_event(self, text: str = "", user: str = "ou_zhang", **more: Any) -> str:
        """One message of a person in Feishu, delivered and acknowledged; its id. Direct chat unless told otherwise."""
        event = message_event(text, open_id=user, **{"chat_id": "oc_" + user, **more})
        assert await self.deliver(event), "not acknowledged"
        return id_of(event)

    async def feishu_says(self, text: str = "", user: str = "ou_zhang", **more: Any) -> str:
        """One message of a person in Feishu; the text of the first message that answers it."""
        assert self.feishu is not None
        number = await self.feishu_event(text, user, **more)
        await until(lambda: texts(self.feishu, number), what=f"answer to {text!r}")
        return texts(self.feishu, number)[0]

    async def say(self, way: str, text: str, user: str = "ou_zhang") -> str:
        """What one person is answered: by the web chat where `way` is ``web``, else by Feishu."""
        if way != "web":
            return await self.feishu_says(text, user)
        said = await self.chat(user, text)
        return said.text or said.error or ""

    # ---- files

    def files(self) -> list[Path]:
        """The conversation files. Blocking."""
        return sorted((self.workspace / "conversations").glob("*/chat-*.yaml"))

    def file_of(self, conversation: str | None) -> Path:
        """The file of a conversation."""
        assert conversation is not None
        user, channel, session, group, agent = conversation.split(":")
        return self.workspace / "conversations" / user / f"chat-{channel}-{session}-{group}-{agent}.yaml"

    async def items(self, agent: str = "") -> list[Item]:
        """All items of the only conversation file there is (of that agent), its form checked."""

        def read() -> list[Item]:
            found = [path for path in self.files() if path.name.endswith(f"{agent}.yaml")]
            assert len(found) == 1, found
            return checked(found[0])

        return await asyncio.to_thread(read)

    async def count(self, rows: str) -> int:
        """How many rows of the gateway's database there are of a kind: a table, and WHERE which."""

        def look() -> int:
            with contextlib.closing(sqlite3.connect(self.workspace / "gateway.db")) as db:
                return int(db.execute(f"SELECT COUNT(*) FROM {rows}").fetchone()[0])

        return await asyncio.to_thread(look)

    async def said(self, agent: str = "") -> list[tuple[str, str]]:
        """(role, text) of `items`."""
        return [(item.role, item.text) for item in await self.items(agent)]


class Inside(Gateway):
    """The application in this process with real listeners: fast, and a blocking call on the loop fails the test."""

    clock: Callable[[], float] = staticmethod(time.time)

    async def start(self) -> Self:
        """Starts on what the config says now."""
        self.app = await asyncio.to_thread(self._make)
        ready, self._end = asyncio.Event(), asyncio.Event()
        self._life = asyncio.create_task(self._run(ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._life, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._life.done():
            await self._life
        return self

    def _make(self) -> App:
        self.write()
        settings = load_settings(self.config, {})
        return App(self._live(self.config, settings), self.workspace, clock=self.clock)

    def _live(self, config: Path, settings: Settings) -> LiveSettings:
        return LiveSettings(config, {}, settings, poll=0.05, settle=0.05)

    async def _run(self, ready: asyncio.Event) -> None:
        async with self.app.running():
            ready.set()
            await self._end.wait()

    async def stop(self) -> None:
        """Drains and stops; what went wrong in the application's life is raised."""
        self._end.set()
        await self._life

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()


class Process(Gateway):
    """`python -m gateway run` in a process of its own."""

    process: asyncio.subprocess.Process | prepared.Child | None = None
    fresh = False
    """Whether it also has an interpreter of its own, as its user starts it; else see `prepared`."""

    async def start(self, timeout: float = 60.0) -> Self:
        """Starts on what the config says now; returns when it is ready."""
        await self.launch()
        end = time.monotonic() + timeout
        while (await self.health())[0] != 200:
            assert self.process is not None
            assert self.process.returncode is None, f"ended at start: {self.output()}"
            assert time.monotonic() < end, f"not ready: {self.output()}"
            await asyncio.sleep(0.02)
        return self

    async def launch(self) -> None:
        """Starts without waiting for it."""
        await asyncio.to_thread(self.write)
        self.process = await self._begun(self.root / "gateway.log", "run")

    async def _begun(self, out: Path, *words: str) -> "asyncio.subprocess.Process | prepared.Child":
        command = self._command(*words)
        if not self.fresh:
            return await prepared.start(command[3:], self._environment(), out, **self._changes())
        with out.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env=self._environment(), cwd=ROOT
            )

    def _environment(self) -> dict[str, str]:
        """This process's own, without what the config could read from it."""
        ours = ("OPENAI_", "SANQIAO_", "REDIS_URL", "CLUSTER_REDIS_URL", "CONSOLE_TOKEN")
        return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | {"NO_PROXY": "*"}

    def _changes(self) -> Mapping[str, str]:
        """What `prepared.start` is told beyond the command."""
        return {}

    def _command(self, *words: str) -> list[str]:
        places = ["--config", str(self.config), "--workspace", str(self.workspace)]
        return [sys.executable, "-m", "gateway", *words, *places]

    async def run(self, *words: str, timeout: float = 60.0) -> tuple[int, str]:
        """Another process with this command on the same config and workspace: its exit code and all it printed."""
        self._commands += 1
        out = self.root / f"command-{self._commands}.log"
        process = await self._begun(out, *words)
        try:
            async with asyncio.timeout(timeout):
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return code, await asyncio.to_thread(out.read_text, errors="replace")

    _commands = 0

    def output(self) -> str:
        """What it printed and logged since the first start. Blocking."""
        return (self.root / "gateway.log").read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if it still runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def ended(self, timeout: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.kill()
            raise

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None and self.process is not None and self.process.returncode is None:
                assert await self.stop() == 0, self.output()
        finally:
            await self.kill()


class Fresh(Process):
    """A `Process` as its user starts it."""

    fresh = True
