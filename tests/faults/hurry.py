"""What makes a gateway hurry, inside its process: a clock that can be set, short pauses, short patience.

`tests.scenarios.prepared` calls `prepare` before it imports anything of the gateway, and `begin` in each child.
"""

import mmap
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

_true_time = time.time
_step: mmap.mmap | None = None


def _stepped() -> float:
    """The wall clock as it is set for this gateway."""
    now = _true_time()
    return now if _step is None else now + float(struct.unpack_from("d", _step)[0])


def begin(order: Mapping[str, str]) -> None:
    """In a child: its clock stands in the file of this name, as seconds ahead."""
    global _step
    with Path(order["clock"]).open("r+b") as file:
        _step = mmap.mmap(file.fileno(), 8)


def prepare() -> None:
    """Makes pauses and patience short, with a clock that can be set."""
    time.time = _stepped  # before anything takes it as a default
    from channels import access_token, calls
    from channels.dingtalk import api as dingtalk_api
    from channels.dingtalk import delivery as dingtalk_delivery
    from channels.dingtalk import long_connection as dingtalk
    from channels.feishu import delivery as feishu_delivery
    from channels.feishu import endpoint as feishu
    from channels.wechat import passive
    from channels.wecom import connection, delivery, exchange, losses, quota, streams
    from gateway import app, housekeeping, lanes, outbox

    for kind in (feishu.ConnectFailed, dingtalk.ConnectFailed, dingtalk.Renewed, losses.Loss):
        kind.pauses = replace(kind.pauses, first=0.05, longest=0.5, stable=1.0)
    access_token.TokenUnavailable.pause = 0.1
    for module, values in (
        (calls, {"TRY_SECONDS": 2.0}),
        (feishu_delivery, {"CHAT_RATE": 200.0, "APP_RATE": 500.0, "SEND_SECONDS": 8.0}),
        (dingtalk_delivery, {"CHAT_RATE": 200.0, "CHAT_BURST": 100, "API_RATE": 500.0}),
        (dingtalk_api, {"ANSWER_SECONDS": 2.0}),
        (passive, {"TIMES": passive.Times(hold=0.7, join=0.5)}),
        (quota, {"_MINUTE_RATE": 200.0, "_HOUR_RATE": 200.0, "_MINUTE_RESERVE": 0.1, "_HOUR_RESERVE": 0.1}),
        (streams, {"REFRESH_SECONDS": 0.3}),
        (exchange, {"ACK_SECONDS": 5.0}),
        (connection, {"PING_SECONDS": 1.0}),
        (delivery, {"SEND_SECONDS": 8.0, "_READY_SECONDS": 5.0, "_REST_SECONDS": 0.2}),
        (outbox, {"_FIRST_PAUSE": 0.1, "_LONGEST_PAUSE": 1.0, "_CALL_SECONDS": 9.0}),
        (lanes, {"_FIRST_PAUSE": 0.1, "_LONGEST_PAUSE": 1.0}),
        (app, {"_LOOK_SECONDS": 0.5, "_CHANNEL_PAUSE_SECONDS": 0.2}),
        (housekeeping, {"_WRITE_AGAIN_SECONDS": 0.3, "_LINKS_SECONDS": 0.5}),
    ):
        for name, value in values.items():
            getattr(module, name)  # a name that is gone is no shortening
            setattr(module, name, value)
