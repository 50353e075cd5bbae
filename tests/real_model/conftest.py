"""A real server with a real model: only on request, as it needs 200 MB of packages and minutes of CPU."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu
from tests.real_model.llama import LlamaServer
from tests.real_model.relay import Relay

HERE = Path(__file__).parent
STRICT = HERE / "strict.jinja"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skipped, and said so, unless REAL_MODEL=1 or this folder is named."""
    named = any("real_model" in argument for argument in config.args)
    if named or os.environ.get("REAL_MODEL") == "1":
        return
    skip = pytest.mark.skip(reason="NO REAL MODEL: make test-real-model talks to one")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def llama() -> Iterator[LlamaServer]:
    """The server with the model's own chat template."""
    with LlamaServer() as server:
        yield server


@pytest.fixture(scope="session")
def strict() -> Iterator[LlamaServer]:
    """The server with a chat template that refuses what is not in order."""
    with LlamaServer(STRICT.read_text(encoding="utf-8")) as server:
        yield server


@pytest.fixture
async def model(llama: LlamaServer) -> AsyncIterator[Relay]:
    """What the gateway is told is its model: it passes everything on to `llama` and keeps it."""
    async with Relay(llama.base_url) as relay:
        yield relay


@pytest.fixture
async def strict_model(strict: LlamaServer) -> AsyncIterator[Relay]:
    """The same before `strict`."""
    async with Relay(strict.base_url) as relay:
        relay.wordy = True
        yield relay


@pytest.fixture
async def feishu() -> AsyncIterator[FakeFeishu]:
    """The Feishu platform."""
    async with FakeFeishu() as platform:
        yield platform
