"""Troubles of a channel, and what people can see of a text."""

import pytest

from channels.health import Troubles
from channels.text import is_blank


def test_troubles_add_up_and_go(caplog: pytest.LogCaptureFixture) -> None:
    now = [10.0]
    troubles = Troubles("feishu", lambda: now[0])
    assert troubles.health().ok
    now[0] = 20.0
    for _ in range(3):
        troubles.report("token", "密钥不对")
    now[0] = 30.0
    troubles.report("connection", "断开")
    health = troubles.health()
    assert (health.ok, health.detail, health.since) == (False, "密钥不对；断开", 20.0)
    assert len([record for record in caplog.records if "channel_trouble" in record.message]) == 2
    now[0] = 40.0
    troubles.clear("token")
    troubles.clear("token")
    assert not troubles.health().ok
    troubles.clear("connection")
    assert (troubles.health().ok, troubles.health().since) == (True, 40.0)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\u3000\n\t", "\u200b\u2060\ufeff", "\u200c\u200d\u00ad\u200e", "\u3164", "\u2800", "\ufe0f", "\0"],
)
def test_blank_texts(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["👍", "1", "\u200b.", "\ud83d", "不", "❤\ufe0f", "\u0301"])
def test_visible_texts(text: str) -> None:
    assert not is_blank(text)
