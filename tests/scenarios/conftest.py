"""What scenarios start from: a stand-in model, a stand-in Feishu, a gateway between them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from channels.feishu import delivery
from channels.message import InboundMessage
from gateway.tracing.frames import Asked
from gateway.tracing.trace import FACTS, Fact, Kind
from gateway.tracing.traces import Traces
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside


@pytest.fixture
async def gateway(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> AsyncIterator[Inside]:
    """A gateway in this process with the web chat and Feishu by webhook."""
    async with Inside(tmp_path, model, feishu=feishu) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform's rate for one chat is tested elsewhere; here one person writes faster than people do."""
    monkeypatch.setattr(delivery, "CHAT_RATE", 200.0)
    monkeypatch.setattr(delivery, "APP_RATE", 500.0)


@pytest.fixture(autouse=True)
def _steps_as_documented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No step of any scenario has a fact that `gateway.tracing.trace.FACTS` does not name."""
    note, unknown = Traces.note, set[tuple[Kind, str]]()

    def watched(
        self: Traces, message: InboundMessage, kind: Kind, asked: Asked | None = None, /, **facts: Fact
    ) -> None:
        unknown.update((kind, name) for name in facts.keys() - FACTS[kind])
        note(self, message, kind, asked, **facts)

    monkeypatch.setattr(Traces, "note", watched)
    yield
    assert not unknown, "name it in gateway.trace.FACTS and show it in gateway.console.timeline"
