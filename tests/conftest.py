"""What every test has: no blocking call on the event loop goes unseen."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

OURS = ("memory", "agents", "channels", "gateway")


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fails a test in which our code makes a blocking call while an event loop runs."""
    with blockbuster_ctx(list(OURS)) as guard:
        yield guard
