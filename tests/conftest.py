"""What every test has: no blocking call on the event loop goes unseen. And what many ask for."""

import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.shipped import shipped_config

# Forty examples a property in every run; HYPOTHESIS_FACTOR=10 looks ten times as hard.
# That the machine is busy is no fault of the test's.
settings.register_profile(
    "ours",
    max_examples=40 * int(os.environ.get("HYPOTHESIS_FACTOR", "1")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ours")

# Where tests run in the background Ctrl-C is ignored, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What an admin exported for the gateway is not for the gateways of the tests.
for _name in re.findall(r"^(?:# )?([A-Z_]+)=", (shipped_config() / ".env.example").read_text("utf-8"), re.MULTILINE):
    os.environ.pop(_name, None)

OURS = ("memory", "agents", "channels", "gateway")


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fails a test in which our code makes a blocking call while an event loop runs."""
    with blockbuster_ctx(list(OURS)) as guard:
        yield guard


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a test does to our loggers (the command line configures them) ends with it."""
    ours, root = logging.getLogger("sanqiao"), logging.getLogger()
    level, root_level, handlers = ours.level, root.level, root.handlers[:]
    yield
    ours.setLevel(level)
    root.setLevel(root_level)
    root.handlers[:] = handlers


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """The model's server."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def feishu() -> AsyncIterator[FakeFeishu]:
    """The Feishu platform."""
    async with FakeFeishu() as platform:
        yield platform


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that no worker runs one when the others have ended."""
    items.sort(key=lambda item: "faults" not in item.path.parts)
