"""`check --online` against stand-in platforms: what can be used, what cannot and why, all at once and in bounded time."""

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from channels.feishu import probe
from channels.probe import shown
from gateway.command_line.check import check
from gateway.command_line.online_check import online_check
from gateway.config.sections import Settings
from gateway.config.settings import load_settings
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.mcp_server import HttpMcpServer
from tests.platforms.model_server import Chunks, ModelServer, Raw, delta

AES_KEY = "a" * 43
SECRET = "canary-of-the-online-check"


class Answers:
    """A platform that answers each path with what it is told: JSON with a status; None never answers."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any] | None] = {}
        self.asked: list[str] = []
        self.bodies: list[str] = []

    async def __aenter__(self) -> "Answers":
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.bodies.append(await request.text())
        if request.headers.get("Upgrade") == "websocket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                self.bodies.append(message.data)
            return socket
        answer = self.answers[request.path]
        if answer is None:
            await asyncio.sleep(30)
        assert answer is not None
        status, body = answer
        return web.json_response(body, status=status)


@pytest.fixture
async def platform() -> AsyncIterator[Answers]:
    async with Answers() as answers:
        yield answers


@pytest.fixture
async def feishu() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu(app_secret=SECRET) as server:
        yield server


def write(config: Path, model: ModelServer | None, channels: Mapping[str, Any], **over: Any) -> None:
    main = {"provider": "demo"}
    if model is not None:
        main = {"base-url": model.base_url, "api-key": SECRET, "model": "fake-main"}
    (config / "agents").mkdir(parents=True, exist_ok=True)
    (config / "agents" / "general-agent.yaml").write_text("prompt: 你好\n", encoding="utf-8")
    settings = {"models": {"main": {**main, **over}}, "channels": channels}
    (config / "gateway.yaml").write_text(
        yaml.safe_dump(settings, allow_unicode=True, sort_keys=False), encoding="utf-8"
    )


async def checked(
    config: Path, model: ModelServer | None, channels: Mapping[str, Any], seconds: float = 30.0, **over: Any
) -> tuple[int, list[str]]:
    def load() -> Any:
        write(config, model, channels, **over)
        return load_settings(config, {})

    out = io.StringIO()
    code = await online_check(await asyncio.to_thread(load), out, seconds=seconds)
    assert SECRET not in out.getvalue()
    return code, out.getvalue().splitlines()


def feishu_entry(server: FakeFeishu, **more: Any) -> dict[str, Any]:
    secrets = {"app-id": server.app_id, "app-secret": SECRET, "encrypt-key": "k", "verification-token": "t"}
    return {"enabled": True, **secrets, "api-base-url": server.base, **more}


async def test_all_well_is_exit_code_0(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, platform: Answers
) -> None:
    platform.answers = {
        "/v1.0/oauth2/accessToken": (200, {"accessToken": "t", "expireIn": 7200}),
        "/v1.0/gateway/connections/open": (200, {"endpoint": "wss://h/connect", "ticket": "x"}),
        "/cgi-bin/stable_token": (200, {"access_token": "t", "expires_in": 7200}),
    }
    other = FakeFeishu(app_id="cli_hr", app_secret=SECRET)
    wechat = {"enabled": True, "app-id": "wx1", "token": "t", "encoding-aes-key": AES_KEY}
    channels = {
        "feishu": feishu_entry(feishu),
        "feishu-hr": feishu_entry(other, kind="feishu", mode="webhook"),
        "dingtalk": {"enabled": True, "client-id": "d", "client-secret": SECRET, "api-base-url": platform.base},
        "wechat": {**wechat, "app-secret": SECRET, "api-base-url": platform.base},
        "wechat-2": {**wechat, "kind": "wechat", "app-id": "wx2", "active-send": "off"},
        "wecom-bot": {
            "enabled": True,
            "bot-id": "b",
            "secret": SECRET,
            "websocket-url": platform.base.replace("http", "ws"),
        },
        "web": {"enabled": True},
    }
    async with other:
        channels["feishu-hr"]["api-base-url"] = other.base
        code, lines = await checked(tmp_path, model, channels)
    assert code == 0, lines
    assert [line.split("：")[0] for line in lines] == [
        *(f"正常  channels.{name}" for name in channels if name != "web"),
        "正常  models.main",
    ]
    assert "长连接" in lines[0]
    assert "公网" in lines[1]
    assert "active-send 为 off" in lines[4]
    assert not feishu.connections
    assert not any("aibot_subscribe" in body for body in platform.bodies), "that would throw out a running gateway"
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("change", "fault", "want"),
    [
        ({"app-secret": "wrong"}, None, ("app-id 或 app-secret", "10014")),
        ({}, ("/bot/v3/info", 400, 99991401, ""), ("IP 白名单", "99991401")),
        ({}, ("/bot/v3/info", 400, 11205, ""), ("机器人能力", "11205")),
        ({}, ("/bot/v3/info", 502, -1, ""), ("没有得到飞书的有效答复", "api-base-url")),
        ({"api-base-url": "http://127.0.0.1:9"}, None, ("没有得到飞书的有效答复", "http://127.0.0.1:9")),
    ],
    ids=["secret", "address", "no bot", "5xx", "nobody there"],
)
async def test_feishu_says_what_is_wrong(
    tmp_path: Path, feishu: FakeFeishu, change: dict[str, Any], fault: Any, want: tuple[str, ...]
) -> None:
    feishu.faults += [fault] if fault else []
    code, lines = await checked(tmp_path, None, {"feishu": feishu_entry(feishu, **change)})
    assert code == 1
    assert lines[0].startswith("失败  channels.feishu：")
    assert all(word in lines[0] for word in want), lines
    assert lines[1].startswith("正常  models.main：离线")


async def test_feishu_refuses_the_connection(tmp_path: Path, feishu: FakeFeishu) -> None:
    feishu.endpoint_error = (200, 1000040345, "")
    code, lines = await checked(tmp_path, None, {"feishu": feishu_entry(feishu)})
    assert code == 1
    assert "拒绝建立长连接（错误码 1000040345）" in lines[0]
    code, _ = await checked(tmp_path, None, {"feishu": feishu_entry(feishu, mode="webhook")})
    assert code == 0, "a webhook needs no connection"


TOKEN, OPEN = "/v1.0/oauth2/accessToken", "/v1.0/gateway/connections/open"
GOOD_TOKEN = (200, {"accessToken": "t", "expireIn": 7200})


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ({TOKEN: (400, {"code": "invalidClientIdOrSecret"})}, "client-id 或 client-secret"),
        ({TOKEN: (403, {"code": "Forbidden.AccessDenied.IpNotInWhiteList"})}, "本机 IP 不在"),
        ({TOKEN: (503, {})}, "没有得到钉钉的有效答复"),
        ({TOKEN: GOOD_TOKEN, OPEN: (401, {"code": "authFailed"})}, "Stream"),
        ({TOKEN: GOOD_TOKEN, OPEN: (500, {"code": "systemError"})}, "没有得到钉钉的有效答复"),
    ],
    ids=["secret", "address", "5xx", "no stream", "stream 5xx"],
)
async def test_dingtalk_says_what_is_wrong(
    tmp_path: Path, platform: Answers, answers: dict[str, Any], want: str
) -> None:
    platform.answers = answers
    entry = {"enabled": True, "client-id": "d", "client-secret": SECRET, "api-base-url": platform.base}
    code, lines = await checked(tmp_path, None, {"dingtalk": entry})
    assert code == 1
    assert want in lines[0], lines


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ((200, {"errcode": 40164, "errmsg": f"invalid ip {SECRET}"}), "IP 白名单"),
        ((200, {"errcode": 40125, "errmsg": "invalid appsecret"}), "app-id 或 app-secret"),
        ((200, {"errcode": -1}), "没有得到微信的有效答复"),
        ((502, {}), "没有得到微信的有效答复"),
    ],
    ids=["address", "secret", "busy", "5xx"],
)
async def test_wechat_says_what_is_wrong(tmp_path: Path, platform: Answers, answer: tuple[int, Any], want: str) -> None:
    platform.answers = {"/cgi-bin/stable_token": answer}
    entry = {"app-id": "wx1", "app-secret": SECRET, "token": "t", "encoding-aes-key": AES_KEY}
    code, lines = await checked(tmp_path, None, {"wechat": {"enabled": True, **entry, "api-base-url": platform.base}})
    assert code == 1
    assert want in lines[0], lines


async def test_wecom_says_what_is_wrong(tmp_path: Path, platform: Answers) -> None:
    entry = {"enabled": True, "bot-id": "b", "secret": SECRET, "websocket-url": "ws://127.0.0.1:9"}
    code, lines = await checked(tmp_path, None, {"wecom-bot": entry})
    assert code == 1
    assert "没有得到企业微信的有效答复（ws://127.0.0.1:9：ClientConnectorError）" in lines[0]


@pytest.mark.parametrize(
    ("fail", "answer", "want"),
    [
        ((401, {"error": {"message": f"bad key {SECRET}"}}, {}), "", "api-key"),
        ((404, {"error": {}}, {}), "", "base-url"),
        (None, Raw("<html>"), "不是聊天接口的"),
        (None, Raw(json.dumps({"error": {"message": "x"}}), "application/json"), "不是聊天接口的"),
    ],
    ids=["key", "path", "a page", "an error with 200"],
)
async def test_the_model_says_what_is_wrong(
    tmp_path: Path, model: ModelServer, fail: Any, answer: Any, want: str
) -> None:
    model.fail = [fail] if fail else []
    model.answers = [answer] if answer else []
    code, lines = await checked(tmp_path, model, {})
    assert code == 1
    assert lines[0].startswith("失败  models.main：")
    assert want in lines[0]


async def test_a_model_that_only_thinks_is_well(tmp_path: Path, model: ModelServer) -> None:
    model.answers = [Chunks([delta(reasoning_content="想" * 16), delta("", finish="length")])]
    code, lines = await checked(tmp_path, model, {})
    assert (code, lines) == (0, ["正常  models.main：fake-main 可用"])


async def test_models_in_use_are_asked_each(tmp_path: Path, model: ModelServer) -> None:
    def load() -> Any:
        write(tmp_path, model, {})
        path = tmp_path / "gateway.yaml"
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        spare = {"base-url": model.base_url, "api-key": SECRET, "model": "fake-spare"}
        settings["models"] |= {"spare": spare, "unused": {**spare, "model": "fake-unused"}}
        settings["models"]["main"]["fallback"] = ["spare"]
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return load_settings(tmp_path, {})

    out = io.StringIO()
    assert await online_check(await asyncio.to_thread(load), out) == 0
    assert sorted(request["model"] for request in model.requests) == ["fake-main", "fake-spare"]


async def test_mcp_servers_say_what_they_have_or_what_is_wrong() -> None:
    async with HttpMcpServer(token=SECRET) as server:
        entries = {
            "good": {"url": server.url, "headers": {"Authorization": SECRET}},
            "key": {"url": server.url, "headers": {"Authorization": SECRET + "x"}},
            "program": {"command": ["no-such-program", SECRET]},
        }
        settings = Settings.model_validate({"models": {"main": {"provider": "demo"}}, "tools": {"mcp": entries}})
        out = io.StringIO()
        assert await online_check(settings, out) == 1
    said = dict(line.split("：", 1) for line in out.getvalue().splitlines())
    assert "add、wait" in said["正常  tools.mcp.good"]
    assert "HTTP 401" in said["失败  tools.mcp.key"]
    assert "找不到 command" in said["失败  tools.mcp.program"]
    assert SECRET not in out.getvalue()


async def test_all_at_once_and_in_bounded_time(tmp_path: Path, feishu: FakeFeishu, platform: Answers) -> None:
    feishu.token_delay = 60
    platform.answers = {TOKEN: None}
    ding = {"enabled": True, "client-id": "d", "client-secret": SECRET, "api-base-url": platform.base}
    started = time.monotonic()
    code, lines = await checked(tmp_path, None, {"feishu": feishu_entry(feishu), "dingtalk": ding}, seconds=0.5)
    assert time.monotonic() - started < 20
    assert code == 1
    assert [("0.5 秒内没有答复" in line) for line in lines] == [True, True, False]


async def test_one_question_that_goes_wrong_spoils_no_other(
    tmp_path: Path, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(settings: object) -> None:
        raise TypeError(SECRET)

    monkeypatch.setattr(probe, "probe", broken)
    before = logging.getLogger("sanqiao").level
    code, lines = await checked(tmp_path, None, {"feishu": feishu_entry(feishu)})
    assert code == 1
    assert "意料之外的错误（TypeError）" in lines[0]
    assert lines[1].startswith("正常  models.main")
    assert logging.getLogger("sanqiao").level == before


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    assert shown("https://me:pass@h:8443/v1?key=k#x") == "https://h:8443/v1"
    assert shown("wss://openws.work.weixin.qq.com") == "wss://openws.work.weixin.qq.com"


def test_a_broken_config_is_not_tried(tmp_path: Path) -> None:
    write(tmp_path, None, {"feishu": {"enabled": True}})
    out = io.StringIO()
    assert check(tmp_path, {}, out, online=True) == 1
    assert "缺少 app-id、app-secret" in out.getvalue()
    assert "正常" not in out.getvalue()


def test_a_good_config_is_tried(tmp_path: Path) -> None:
    write(tmp_path, None, {})
    out = io.StringIO()
    assert check(tmp_path, {}, out, online=True) == 0
    assert "正常  models.main：离线的演示模型" in out.getvalue()
