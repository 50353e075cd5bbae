"""Gateways out of a process that has imported everything: a start costs a tenth of what a fresh interpreter costs.

From `gateway.__main__.main` on it is the same code. Each process of tests has one such parent (and one for each module
that changes gateways), which forks a child for each connection to its socket: the order comes in as a line of JSON, the
child's number and then its exit code go out. Run as ``python -m tests.scenarios.prepared SOCKET [MODULE]``; it ends
with its input.
"""

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import SecretStr

ROOT = Path(__file__).parents[2]
_parents: dict[str, tuple[subprocess.Popen[bytes], str]] = {}


class Child:
    """One process, with as much of `asyncio.subprocess.Process` as is used of it."""

    def __init__(self, pid: int, told: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection
        self._over = asyncio.create_task(self._read(told))

    async def _read(self, told: asyncio.StreamReader) -> int:
        self.returncode = int(await told.readline())
        self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, once it has ended; that of a killed one is minus the signal."""
        return await asyncio.shield(self._over)


async def start(
    arguments: Sequence[str], environment: Mapping[str, str], out: Path, *, changes: str = "", **more: str
) -> Child:
    """``python -m gateway`` with these arguments; what it prints is appended to `out`.

    `changes` is a module: its ``prepare()`` runs before anything of the gateway is imported, its ``begin(order)``, which
    finds `more` in the order, in the child.
    """
    address = await asyncio.to_thread(_address, changes)
    told, connection = await asyncio.open_unix_connection(address)
    order = {"arguments": list(arguments), "environment": dict(environment), "out": str(out), **more}
    connection.write(json.dumps(order).encode() + b"\n")
    return Child(int(await told.readline()), told, connection)


def _address(changes: str) -> str:
    """Where this process's own parent listens; started at the first call. Blocking."""
    if changes not in _parents:
        folder = tempfile.TemporaryDirectory()
        address = f"{folder.name}/socket"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.prepared", address, changes], stdin=subprocess.PIPE, cwd=ROOT
        )
        _parents[changes] = process, address
        atexit.register(_end, process, folder)
        while not os.path.exists(address):
            assert process.poll() is None, "the parent of gateways ended"
            time.sleep(0.01)
    return _parents[changes][1]


def _end(process: subprocess.Popen[bytes], folder: "tempfile.TemporaryDirectory[str]") -> None:
    process.communicate()
    folder.cleanup()


# ---- the parent


def _prepare(changes: str) -> ModuleType | None:
    """Imports what a gateway needs; the module that changes it, if any."""
    changed = importlib.import_module(changes) if changes else None
    if changed is not None:
        changed.prepare()
    import memory.redis_link
    from agents.model import ModelSettings
    from agents.openai_client import OpenAIClient
    from channels.dingtalk import channel as dingtalk
    from channels.feishu import channel as feishu
    from channels.wechat import channel as wechat
    from channels.wecom import channel as wecom
    from gateway.command_line import cli, serving

    assert all((cli, serving, feishu, dingtalk, wechat, wecom, memory.redis_link))
    OpenAIClient(ModelSettings(api_key=SecretStr("x")))  # imports the rest of what it needs
    gc.collect()
    gc.freeze()  # what is there is looked through in no child, and so stays shared
    return changed


def _live(order: dict[str, Any], inherited: Sequence[int], changed: ModuleType | None) -> int:
    """The life of one child; its exit code."""
    for fd in inherited:
        os.close(fd)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, fd)
    gc.unfreeze()
    random.seed()
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["gateway", *order["arguments"]]
    if changed is not None:
        changed.begin(order)
    from gateway.__main__ import main

    return main()


def _forked(order: dict[str, Any], inherited: Sequence[int], changed: ModuleType | None) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _live(order, inherited, changed)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            code = 1
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
    return pid


def _serve(address: str, changes: str) -> None:
    changed = _prepare(changes)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".new")
    listener.listen()
    os.rename(address + ".new", address)
    awake, wake = os.pipe()
    for fd in (awake, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    for source in (0, awake, listener):
        selector.register(source, selectors.EVENT_READ)
    children: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                with connection.makefile("rb") as lines:
                    order = json.loads(lines.readline())
                inherited = [
                    listener.fileno(),
                    awake,
                    wake,
                    connection.fileno(),
                    *(c.fileno() for c in children.values()),
                ]
                pid = _forked(order, [*inherited, selector.fileno()], changed)
                children[pid] = connection
                connection.sendall(b"%d\n" % pid)
            elif key.fileobj == awake:
                os.read(awake, 4096)
                _reap(children)
            else:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return


def _reap(children: dict[int, socket.socket]) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            connection = children.pop(pid)
            with contextlib.suppress(OSError):  # nobody waits for it any more
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            connection.close()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
