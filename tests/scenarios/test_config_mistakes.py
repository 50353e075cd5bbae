"""A wrong config ends the start before any port is open, with every mistake named; B54."""

import socket
from pathlib import Path

import pytest

from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside, Process, feishu_entry, id_of, texts
from tests.waiting import until

MISTAKES = """\
prot: 8080
server: {{port: 70000, drain: 12:30}}
console: {{port: {console}, enabled: "no"}}
limits: {{messages-per-minute: viele}}
agent: {{default: no-such-agent}}
admins: [on, no]
agents:
channels:
  web: {{enabled: true}}
  feishu: {{enabled: true, mode: webhook, app-id: cli_x, encrypt-key: SECRETCANARY, verification-token: 123456}}
"""


async def test_every_mistake_in_one_run_and_no_port_open(tmp_path: Path, model: ModelServer) -> None:
    """B54: file, line, key, what is wrong; no traceback, no secret."""
    gateway = Process(tmp_path, model)
    gateway.write()
    path = gateway.config / "gateway.yaml"
    path.write_text(MISTAKES.format(console=gateway.console_port))
    taken = socket.create_server(("127.0.0.1", gateway.console_port))  # a port that cannot be opened is not even tried
    try:
        code, printed = await gateway.run("run")
    finally:
        taken.close()
    assert code == 2
    lines = printed.strip().splitlines()
    for number, key in (
        (1, "prot"),
        (2, "server.port"),
        (2, "server.drain"),
        (3, "console.enabled"),
        (4, "limits.messages-per-minute"),
        (5, "agent.default"),
        (7, "agents"),
        (10, "channels.feishu"),
    ):
        assert [line for line in lines if line.startswith(f"{path}:{number}: {key}")], (key, printed)
    assert "app-secret" in printed
    for never in ("Traceback", "SECRETCANARY", "123456", "Errno"):
        assert never not in printed
    assert not (gateway.workspace / "gateway.db").exists(), "nothing was begun"


@pytest.mark.parametrize("text", ["server:\n\tport: 80\n", "server: {port: 80\n", "- a\n- b\n", "a: 1\na: 2\n"])
async def test_no_yaml_or_another_form_of_it(tmp_path: Path, model: ModelServer, text: str) -> None:
    """B54: a tab, a missing brace, a list, a repeated key: one line with the place, never a traceback."""
    gateway = Process(tmp_path, model)
    gateway.write()
    path = gateway.config / "gateway.yaml"
    path.write_text(text)
    code, printed = await gateway.run("check")
    assert code == 1
    assert printed.startswith(f"{path}:")
    assert "Traceback" not in printed


async def test_digits_are_the_very_text_that_was_written(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    """B54: a key of digits, unquoted and with a zero in front, is the key on both sides."""
    entry = feishu_entry(feishu, **{"encrypt-key": 123, "verification-token": 456})
    gateway = Inside(tmp_path, model, {"channels": {"feishu": entry}}, feishu=feishu)
    gateway.write()
    path = gateway.config / "gateway.yaml"
    path.write_text(path.read_text().replace("encrypt-key: 123\n", "encrypt-key: 0123\n").replace(" 456\n", " 0_456\n"))
    gateway.write = lambda: None  # type: ignore[method-assign]
    async with gateway:
        event = message_event("你好呀", token="0_456")
        status, _, _ = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key="0123")
        assert status == 200
        await until(lambda: texts(feishu, id_of(event)))
