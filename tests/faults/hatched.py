"""The program inside `hatchery`: everything imported once, times shortened, then one fork for each gateway asked for.

Run as ``python -m tests.faults.hatched``. A line of JSON comes in: the arguments, where the log goes, where the clock
stands. Lines go out: ``{"pid": …}`` when a gateway runs, ``{"pid": …, "code": …}`` when it has ended. A start then
costs a tenth of what a fresh interpreter costs, and is the same code from `run_command` on.
"""

import gc
import json
import mmap
import os
import random
import selectors
import signal
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

_true_time = time.time
_step: mmap.mmap | None = None


def _stepped() -> float:
    """The wall clock as it is set for this gateway."""
    now = _true_time()
    return now if _step is None else now + float(struct.unpack_from("d", _step)[0])


def _prepare() -> None:
    """Imports what a gateway needs, with a clock that can be set, and makes pauses and patience short."""
    time.time = _stepped  # before anything takes it as a default
    import memory.redis_link
    from agents.model import ModelSettings
    from agents.openai_client import OpenAIClient
    from channels import access_token, calls
    from channels.dingtalk import api as dingtalk_api
    from channels.dingtalk import delivery as dingtalk_delivery
    from channels.dingtalk import long_connection as dingtalk
    from channels.feishu import delivery as feishu_delivery
    from channels.feishu import endpoint as feishu
    from channels.wechat import channel, passive
    from channels.wecom import channel as wecom_channel
    from channels.wecom import connection, delivery, exchange, losses, quota, streams
    from gateway import app, lanes, outbox, serving

    warm = (channel, wecom_channel, serving, memory.redis_link, OpenAIClient(ModelSettings(api_key=SecretStr("x"))))
    assert all(warm)
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
        (exchange, {"ACK_SECONDS": 1.0}),
        (connection, {"PING_SECONDS": 1.0}),
        (delivery, {"SEND_SECONDS": 8.0, "_READY_SECONDS": 5.0, "_REST_SECONDS": 0.2}),
        (outbox, {"_FIRST_PAUSE": 0.1, "_LONGEST_PAUSE": 1.0, "_CALL_SECONDS": 9.0}),
        (lanes, {"_FIRST_PAUSE": 0.1, "_LONGEST_PAUSE": 1.0}),
        (app, {"_WRITE_AGAIN_SECONDS": 0.3, "_LOOK_SECONDS": 0.5, "_CHANNEL_PAUSE_SECONDS": 0.2}),
    ):
        for name, value in values.items():
            getattr(module, name)  # a name that is gone is no shortening
            setattr(module, name, value)
    gc.collect()
    gc.freeze()  # what is there is looked through in no fork, and so stays shared


def _live(order: dict[str, Any]) -> int:
    """The life of one gateway, in a process of its own; its exit code."""
    global _step
    random.seed()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with Path(order["clock"]).open("r+b") as file:
        _step = mmap.mmap(file.fileno(), 8)
    from gateway.cli import run_command

    return run_command(order["arguments"])


def _hatch(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            code = _live(order)
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def _tell(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    """Serves until its input ends, then kills what it hatched."""
    _prepare()
    alive: set[int] = set()
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(awake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(awake, selectors.EVENT_READ)
    lines = b""
    going_on = True
    while going_on:
        ready = {key.fd for key, _ in selector.select()}
        if awake in ready:
            os.read(awake, 4096)
            for pid in list(alive):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    alive.discard(pid)
                    _tell(pid=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            read = os.read(0, 1 << 16)
            going_on = bool(read)
            *whole, lines = (lines + read).split(b"\n")
            for line in whole:
                pid = _hatch(json.loads(line))
                alive.add(pid)
                _tell(pid=pid)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
