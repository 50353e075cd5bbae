"""What every test has: no blocking call on the event loop goes unseen."""

import logging
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

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
