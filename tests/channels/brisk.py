"""Long connections that come back sooner: the same pauses, on a smaller scale."""

from dataclasses import replace

import pytest

from channels.dingtalk import long_connection as dingtalk
from channels.feishu import endpoint as feishu
from channels.wecom import losses as wecom


def brisk(patch: pytest.MonkeyPatch, factor: float = 0.25) -> None:
    """Scales the pauses after a loss that passes; those after a refusal stay as they are."""
    for kind in (feishu.ConnectFailed, dingtalk.ConnectFailed, dingtalk.Renewed, wecom.Loss):
        pauses = kind.pauses
        patch.setattr(kind, "pauses", replace(pauses, first=pauses.first * factor, stable=pauses.stable * factor))
