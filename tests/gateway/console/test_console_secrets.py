"""A canary in every secret of the config: what the gateway answers, logs, keeps and shows never holds it."""

import asyncio
import contextlib
import logging
import os
import stat
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import BaseModel, SecretStr

from gateway.config.entries import KINDS
from gateway.config.planned_channels import PLANNED
from gateway.config.sections import GatewayFile
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside
from tests.waiting import until


def canary(number: int) -> str:
    """One of its own for each secret; 43 characters, for some must be just so long."""
    return f"CANARY{number:04d}".ljust(43, "q")


def secrets_of(model: type[BaseModel]) -> list[str]:
    """The keys of a section that hold secrets."""
    return [
        info.alias or name.replace("_", "-")
        for name, info in model.model_fields.items()
        if SecretStr in (info.annotation, *typing.get_args(info.annotation)) or info.repr is False
    ]


def with_canaries(numbers: Iterator[int]) -> dict[str, Any]:
    """A config in which every secret has its value, every other key its default."""
    channels: dict[str, Any] = {}
    for kind, model in KINDS.items():
        if kind not in PLANNED and secrets_of(model):
            channels[kind] = {"enabled": kind == "web"} | {key: canary(next(numbers)) for key in secrets_of(model)}
    return {
        "console": {"token": canary(next(numbers))},
        "models": {
            "main": {"api-key": canary(next(numbers))},
            "spare": {"provider": "openai", "base-url": "http://127.0.0.1:9/v1", "api-key": canary(next(numbers))},
        },
        "memory": {"redis": {"url": f"redis://:{canary(next(numbers))}@127.0.0.1:9/0", "timeout": "50ms"}},
        "channels": channels,
    }


class Outside:
    """Somebody who is logged in and keeps all that is answered."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.answered: dict[str, str] = {}

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, str]:
        async with self._session.request(method, path, allow_redirects=False, **more) as response:
            head = "".join(f"{name}: {value}\n" for name, value in response.headers.items())
            text = head + await response.text("utf-8", "replace")
            self.answered[f"{method} {path} {more.get('headers', '')}"] = text
            return response.status, text

    async def walk(self, gateway: Inside, places: Mapping[str, str]) -> int:
        """Every route that only shows, whole and in part; how many."""
        console = gateway.app._console
        assert console is not None
        count = 0
        for route in console.app.router.routes():
            if route.method == "GET" and route.resource is not None:
                path = route.resource.canonical
                path = path.replace("{trace}", places["trace"]).replace("{name}", "console.js")
                path = path.replace("{id}", places["trace" if "/traces/" in path else "conversation"])
                path += f"?turn={places['turn']}" if path.endswith("/then") else ""
                assert (await self.ask("GET", path))[0] in (200, 303), path
                await self.ask("GET", path, headers={"HX-Request": "true"})
                count += 1
        return count


async def test_a_secret_is_nowhere_but_in_the_config(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    numbers = iter(range(1000))
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer())
        gateway = Inside(tmp_path, model, with_canaries(numbers))
        used = next(numbers)
        assert used > 15
        mask = os.umask(0o077)  # as the command line sets it
        stack.callback(os.umask, mask)
        await stack.enter_async_context(gateway)
        token = gateway.settings["console"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        session = await stack.enter_async_context(
            aiohttp.ClientSession(f"http://127.0.0.1:{gateway.console_port}", headers=headers)
        )
        outside = Outside(session)
        question = {"user": "小王", "text": "我的手机号是 13812345678，帮我推荐岗位"}
        assert (await outside.ask("POST", "/api/chat", json=question))[0] == 200
        model.fail = [(401, {"error": {"message": f"bad key {canary(0)}"}}, {})]
        await outside.ask("POST", "/api/chat", json=question)
        _, listed = await gateway_json(session, "/api/traces")
        failed, answered = listed["traces"][:2]
        _, turns = await gateway_json(session, f"/api/conversations/{answered['conversation']}")
        places = {"trace": answered["id"], "conversation": answered["conversation"], "turn": turns["turns"][0]["id"]}
        assert await outside.walk(gateway, places) >= 25
        await outside.ask("GET", f"/traces/{failed['id']}")
        assert any("13812345678"[:3] in text and "138****" in text for text in outside.answered.values()), "masked"
        assert not any("13812345678" in text for text in outside.answered.values())
        # a config that is broken right where its secrets stand
        pasted = canary(2)  # a secret of this config, at places that problems quote
        broken = {"models": {"main": {"api-kee": canary(next(numbers)), "provider": pasted, pasted: 1}}}
        await gateway.change({**broken, "limits": {"messages-per-minute": "many"}})
        await until(lambda: bool(gateway.app.live.problems), what="the problems are seen")
        for method, path in (
            ("POST", "/config/reload"),
            ("GET", "/config/state"),
            ("GET", "/config"),
            ("GET", "/overview"),
        ):
            assert (await outside.ask(method, path))[0] == 200
        await outside.ask("GET", "/api/status")
        told = [*outside.answered.items(), *(("log", record.getMessage()) for record in caplog.records)]
        told.append(("repr", repr(gateway.app.live.current)))
        assert [where for where, text in told if "CANARY" in text] == []
        kept = await asyncio.to_thread(holding, gateway.workspace, b"CANARY")
        assert kept == []
        assert await asyncio.to_thread(readable_by_others, gateway.workspace) == []


async def gateway_json(session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with session.get(path) as response:
        return response.status, await response.json()


def holding(folder: Path, wanted: bytes) -> list[Path]:
    """The files with this in them. Blocking."""
    return [path for path in folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]


def readable_by_others(folder: Path) -> list[Path]:
    """The files and folders that others of the machine may look into. Blocking."""
    return [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_every_secret_of_the_config_is_hidden_by_its_type() -> None:
    found = {key for model in (*KINDS.values(), *sections(GatewayFile)) for key in secrets_of(model)}
    suspicious = {
        info.alias or name.replace("_", "-")
        for model in (*KINDS.values(), *sections(GatewayFile))
        for name, info in model.model_fields.items()
        if info.annotation is str and any(word in name for word in ("secret", "token", "key", "password"))
    }
    assert {"api-key", "token", "app-secret", "encrypt-key", "proxy", "url"} <= found
    assert suspicious <= found, "a key that sounds like a secret is one"


def sections(model: type[BaseModel], seen: set[type[BaseModel]] | None = None) -> Iterator[type[BaseModel]]:
    """A model and all that stand in it."""
    seen = set() if seen is None else seen
    if model in seen:
        return
    seen.add(model)
    yield model
    waiting: list[Any] = [info.annotation for info in model.model_fields.values()]
    while waiting:
        each = waiting.pop()
        waiting += typing.get_args(each)
        if isinstance(each, type) and issubclass(each, BaseModel):
            yield from sections(each, seen)
