"""The console's pages without a browser: what they show, what they never show, and that looking changes nothing."""

import asyncio
import gzip
import hashlib
import html.parser
import itertools
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agents.model import ChatMessage
from gateway.config.live_settings import LiveSettings
from gateway.config.problems import Problem
from gateway.config.settings import load_settings
from gateway.console.config_view import SourceFile, config_files, config_state
from gateway.console.figures import milliseconds, size, span, when
from gateway.console.inspector import as_config, change, request_shares, what_if
from gateway.console.overview import agents_failing_first, overview, tallies
from gateway.console.redaction import HIDDEN, redacted
from gateway.console.timeline import LABELS, OUTCOMES, outcome_state, timeline
from gateway.sent_request import SentRequest
from gateway.storage.conversation_index import ConversationItem
from gateway.tracing.trace import Kind, Outcome, SeenMessage, SeenWindow, Step, Trace
from gateway.turn_forgetting import ForgottenTurn
from gateway.window_view import Inspection
from memory.conversation import ConversationId, Role, ToolCall, Turn
from memory.summary import Summary
from memory.window import Drop, Window, WindowMessage, WindowSettings
from tests.gateway.console.fake_backend import FakeBackend
from tests.gateway.console.test_console import RIGHT, Clock, Running, routes
from tests.shipped import shipped_config

ROOT = Path(__file__).parents[3]
CONSOLE = ROOT / "gateway" / "console"
ID = ConversationId.parse("uu3r7qbo6l6i3:web:b759cea3338c:0:general-agent")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"><svg onload=alert(1)>{{ 7*7 }}\ud800\u2028&lt;"


def window(text: str) -> Window:
    return Window(
        messages=(WindowMessage(role=Role.USER, content=text, ids=(text, "m-1"), tokens=7, shortened=3),),
        dropped=(Drop(text, Role.USER, "acknowledgement", text, 4), Drop("m-0", Role.TOOL, "order", "次序", 2)),
        tokens=7,
        question_tokens=0,
        not_read_before=text,
        gap=2,
        first=5,
        summary=Summary(text=text, id="s-1", epoch=0, through=3, at=""),
        summary_tokens=11,
    )


def inspection(text: str) -> Inspection:
    return Inspection(
        conversation=ID,
        settings=WindowSettings(),
        model=text,
        system=text,
        window=window(text),
        system_tokens=100,
        tool_tokens=20,
        output=1000,
        context=8000,
    )


def sent(text: str) -> SentRequest:
    seen = SeenWindow(
        messages=(SeenMessage(Role.USER, (text,), 5),),
        dropped=(Drop(text, Role.USER, "token-budget", text, 1),),
        question=text,
        frame="f",
        checksum=0,
        first=0,
        longest=100,
        tokens=5,
        question_tokens=4,
        through=0,
    )
    messages = (
        ChatMessage("system", text),
        ChatMessage(Role.USER, text),
        ChatMessage(Role.USER, text),
        ChatMessage(Role.ASSISTANT, text, (ToolCall("c", text, text),)),
        ChatMessage(Role.TOOL, text, call="c"),
    )
    return SentRequest(
        model=text, at=1e9, messages=messages, tools=(), temperature=None, exact=False, missing=(text,), seen=seen
    )


def trace(text: str = "问", outcome: Outcome = Outcome.FAILED, **over: Any) -> Trace:
    steps = (
        Step(Kind.RECEIVED, 100.0, {"chars": 3}),
        Step(Kind.ROUTED, 100.1, {"agent": text, "reason": text}),
        Step(Kind.WINDOW, 100.2, {"kept": 1, "dropped": 1}, sent(text).seen),
        Step(Kind.MODEL, 101.2, {"model": text, "seconds": 1.0, "first_token": 0.25, "error": text}),
        Step(Kind.SENT, 101.5, {"part": 2, "parts": 3, "attempts": 1, "platform_id": text}),
    )
    known: dict[str, Any] = {
        "seq": 1,
        "id": "t-1",
        "at": 100.0,
        "last": 101.5,
        "outcome": outcome,
        "message": text,
        "entry": text,
        "channel": "web",
        "user": "uu3r7qbo6l6i3",
        "platform_user": text,
        "conversation": str(ID),
        "reason": text,
        "text": text,
        "steps": steps,
    }
    return Trace(**{**known, **over})


def hostile() -> FakeBackend:
    """A backend that says hostile things wherever it may say anything."""
    backend = FakeBackend()
    turn = Turn(role=Role.USER, text=HOSTILE, id=HOSTILE, at=HOSTILE, n=5, epoch=0, name=HOSTILE)
    calls = (ToolCall("c", HOSTILE, HOSTILE),)
    said = Turn(role=Role.ASSISTANT, text=HOSTILE, id="m-2", at="", n=6, epoch=0, tool_calls=calls, stopped=True)
    backend.turns[ID] = [turn, said, Turn(role=Role.RESET, text="new", id="m-3", at=HOSTILE, n=7, epoch=1)]
    backend.items = [ConversationItem(ID, 3, HOSTILE, 12345)]
    backend.inspections[ID] = inspection(HOSTILE)
    backend.recorded = [trace(HOSTILE)]
    backend.sent_requests["t-1"] = sent(HOSTILE)
    problem = Problem(HOSTILE, 1, HOSTILE, HOSTILE)
    backend.files = [SourceFile(HOSTILE, [HOSTILE, "a: 1"], {1: [problem]})]
    bad = {"ok": False, "detail": HOSTILE, "since": 1.0}
    backend.state = {
        "channels": {HOSTILE: bad},
        "models": {HOSTILE: {"provider": HOSTILE, "model": HOSTILE} | bad},
        "mcp": {HOSTILE: bad | {"tools": [HOSTILE]}},
        "redis": {"state": "down", "cooldown_left": 3.0, "remedy": HOSTILE},
        "config": {"problems": [HOSTILE], "waiting_for_restart": [HOSTILE], "notes": [HOSTILE]},
    }
    return backend


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes; entities read as a browser does."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with Running(hostile(), Clock()) as running:
        yield running


# ---------------------------------------------------------------- what is shown
async def test_hostile_texts_become_no_element_and_no_attribute(running: Running) -> None:
    looked = 0
    for method, path in routes(running):
        if method != "GET" or path.startswith(("/api/", "/static/", "/metrics")):
            continue
        for headers in ({}, {"HX-Request": "true"}):
            query = "?turn=m-1" if path.endswith("/then") else ""
            status, text = await running.fetch(path + query, headers={**RIGHT, **headers})
            assert status == 200, (path, text[:200])
            for tag, attributes in Elements(text).found:
                assert tag != "img" or attributes["src"] == "/static/icon.svg", path
                assert tag != "script" or attributes["src"].startswith("/static/"), path  # type: ignore[union-attr]
                assert not any(name.startswith("on") or name == "style" for name in attributes), (path, tag, attributes)
                assert not (attributes.get("href") or "").lower().startswith("javascript:")
            assert "49" not in re.sub(r"\d{3,}|&#\d+;", "", text) or "7*7" in text
            looked += "onerror" in text
    assert looked >= 14, "the texts are there"


async def test_looking_changes_nothing(running: Running) -> None:
    for method, path in routes(running):
        if method in ("GET", "HEAD"):
            await running.fetch(path, method, RIGHT)
            await running.fetch(path, method, {**RIGHT, "HX-Request": "true"})
    assert {call[0] for call in running.backend.asked if isinstance(call[0], str)} <= {"inspect", "traces"}
    assert not running.backend.accepted
    assert (await running.fetch("/config/reload", "POST", RIGHT))[0] == 200
    assert running.backend.asked[-1] == ("reload",)


async def test_a_part_of_a_page_whose_login_ended_sends_to_the_login(running: Running) -> None:
    async with running.session.get("/overview", headers={"HX-Request": "true"}) as r:
        assert (r.status, r.headers["HX-Redirect"]) == (401, "/login")
    async with running.session.post("/config/reload", headers={"HX-Request": "true"}) as r:
        assert r.status == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/conversations/nobody", 404),
        ("/conversations/uu3r7qbo6l6i3:web:b759cea3338c:0:other-agent", 404),
        ("/conversations?channel=fax", 400),
        ("/conversations?kind=2", 400),
        ("/conversations?before=never", 400),
        ("/conversations?user=a&user=b", 400),
        (f"/conversations/{ID}/then", 400),
        (f"/conversations/{ID}/window?max-messages=x", 400),
        ("/traces?outcome=odd", 400),
        ("/traces/t-2", 404),
        ("/no-such-page", 404),
    ],
)
async def test_what_cannot_be_shown_is_said(running: Running, path: str, status: int) -> None:
    got, body = await running.fetch(path, headers=RIGHT)
    assert got == status
    if "/window" not in path and path != "/no-such-page":
        assert f"<title>{'没有找到' if status == 404 else '这个地址不对'} · 三桥</title>" in body


async def test_what_cannot_be_read_is_not_said_to_be_missing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def locked(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(running.backend, "trace", locked)
    status, body = await running.fetch("/traces/t-1", headers=RIGHT)
    assert status == 503
    assert "<h1>暂时读不出</h1>" in body
    assert "没有找到" not in body


async def test_filters_reach_the_index(running: Running) -> None:
    await running.fetch("/conversations?channel=feishu&kind=1&agent=general-agent&user=uu3r7qbo6l6i3", headers=RIGHT)
    assert running.backend.asked[-1] == ("feishu", "uu3r7qbo6l6i3", ":1:general-agent", None, 30)
    for query, part in (("agent=a-b", ":a-b"), ("kind=0", ":0:"), ("", None)):
        await running.fetch(f"/conversations?{query}", headers=RIGHT)
        assert running.backend.asked[-1] == (None, None, part, None, 30)


async def test_who_spoke_last_is_named_however_much_stands_behind_the_question(running: Running) -> None:
    tools = [Turn(role=Role.TOOL, text="{}", id=f"c-{n}", at="", n=n, epoch=0, to="m-1", call="c") for n in range(2, 9)]
    running.backend.turns[ID] = [
        Turn(role=Role.USER, text="早先", id="m-0", at="", n=0, epoch=0, name="小李"),
        Turn(role=Role.USER, text="问", id="m-1", at="", n=1, epoch=0, name="小王"),
        *tools,
        Turn(role=Role.ASSISTANT, text="答", id="m-9", at="", n=9, epoch=0, to="m-1"),
        Turn(role=Role.RESET, text="new", id="m-10", at="", n=10, epoch=1),
    ]
    status, text = await running.fetch("/conversations", headers=RIGHT)
    assert status == 200
    assert "小王" in text
    assert "小李" not in text


async def test_the_knobs_reach_the_window(running: Running) -> None:
    path = f"/conversations/{ID}/window?max-messages=6&keep-recent=9&max-tokens=700"
    assert (await running.fetch(path, headers=RIGHT))[0] == 200
    over = {"max_messages": 6, "keep_recent": 6, "max_tokens": 700}
    assert ("inspect", str(ID), over) in running.backend.asked


async def test_of_merged_messages_the_last_has_the_request(running: Running) -> None:
    joined = Step(Kind.JOINED, 100.0, {"into": "m-2", "trace": "t-2"})
    running.backend.recorded = [trace(id="t-1", steps=(joined,)), trace(id="t-2", seq=2)]
    running.backend.sent_requests = {"t-2": sent("合并的一问")}
    status, text = await running.fetch(f"/conversations/{ID}/then?turn=m-1", headers=RIGHT)
    assert status == 200
    assert "合并的一问" in text
    running.backend.recorded = []
    assert "没有轨迹" in (await running.fetch(f"/conversations/{ID}/then?turn=m-1", headers=RIGHT))[1]
    assert (await running.fetch(f"/conversations/{ID}/latest", headers=RIGHT))[0] == 204


# ---------------------------------------------------------------- forgetting a turn
def forgettable() -> FakeBackend:
    """A backend in which the hostile question can be forgotten, and has been."""
    backend = hostile()
    backend.forgotten_turns[HOSTILE.replace("\ud800", "?")] = ForgottenTurn(n=5, turns=2, summaries=1, originals=1)
    gone = [replace(turn, removed=True, to=HOSTILE.replace("\ud800", "?")) for turn in backend.turns[ID][:2]]
    backend.turns[ID][:2] = gone
    return backend


async def test_a_forgotten_turn_is_shown_as_what_is_left_of_it() -> None:
    async with Running(forgettable(), Clock()) as running:
        form = {"turn": HOSTILE.replace("\ud800", "?")}
        status, text = await running.fetch(f"/conversations/{ID}/forget", "POST", RIGHT, data=form)
        assert status == 200
        assert "已删除：2 条内容、1 份摘要、1 份留存的原件。" in text
        assert running.backend.asked[-2:] == [("forget_turn", str(ID), form["turn"]), ("inspect", str(ID), None)]
        elements = Elements(text).found
        swapped = [each for tag, each in elements if tag == "article"]
        assert [(each["id"], each["hx-swap-oob"], (each["class"] or "").split()[-1]) for each in swapped] == [
            ("turn-5", "true", "removed"),
            ("turn-6", "true", "removed"),
        ]
        assert not [tag for tag, each in elements if tag in ("img", "script") or each.get("hx-post")]
        _, whole = await running.fetch(f"/conversations/{ID}", headers=RIGHT)
        assert not any("hx-post" in each for _, each in Elements(whole).found), "what is gone cannot be forgotten again"
        assert not any("hx-swap-oob" in each for _, each in Elements(whole).found)


async def test_a_turn_is_forgotten_by_its_id_alone_after_a_second_look(running: Running) -> None:
    _, text = await running.fetch(f"/conversations/{ID}", headers=RIGHT)
    (button,) = [each for tag, each in Elements(text).found if tag == "button" and "hx-post" in each]
    assert button["hx-post"] == f"/conversations/{ID}/forget"
    assert json.loads(button["hx-vals"] or "") == {"turn": HOSTILE}
    tags = [tag for tag, _ in Elements(text).found]
    assert tags.index("details") < tags.index("summary") < [each for _, each in Elements(text).found].index(button)


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"turn": "m-9"}, 404),
        ({}, 400),
        ({"turn": ""}, 400),
        ({"turn": "x" * 1001}, 400),
        ([("turn", "m-1"), ("turn", "m-2")], 400),
        ({"turn": "m-1", "other": "1"}, 400),
    ],
)
async def test_what_cannot_be_forgotten_is_said(running: Running, form: Any, status: int) -> None:
    headers = {**RIGHT, "HX-Request": "true"}
    asked = aiohttp.FormData(form)
    assert (await running.fetch(f"/conversations/{ID}/forget", "POST", headers, data=asked))[0] == status
    assert (await running.fetch("/conversations/nobody/forget", "POST", headers, data=aiohttp.FormData(form)))[0] == 404


async def test_a_forgetting_that_fails_is_said_in_one_line(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.backend.broken = True
    headers = {**RIGHT, "HX-Request": "true"}
    told = await running.fetch(f"/conversations/{ID}/forget", "POST", headers, data={"turn": "m-1"})
    assert told == (500, "没能全部删除，请查看网关的日志，排除原因后再试")
    assert "turn_forget_failed" in caplog.text


async def test_what_was_numbered_only_now_is_looked_at_anew(running: Running) -> None:
    running.backend.forgotten_turns["hand-1"] = ForgottenTurn(turns=1)
    async with running.session.post(f"/conversations/{ID}/forget", headers=RIGHT, data={"turn": "hand-1"}) as r:
        assert (r.status, r.headers["HX-Refresh"]) == (200, "true")


async def test_the_audit_names_turn_and_no_text(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sanqiao.console")
    running.backend.forgotten_turns["m-1"] = ForgottenTurn(n=5, turns=2)
    await running.fetch(f"/conversations/{ID}/forget", "POST", RIGHT, data={"turn": "m-1"})
    (line,) = [each.getMessage() for each in caplog.records if "turn_forgotten" in each.getMessage()]
    assert line == f"turn_forgotten_by_admin conversation={ID} turn=m-1"


def test_what_was_forgotten_is_told_in_numbers() -> None:
    assert str(ForgottenTurn(n=1, turns=4, summaries=1)) == "已删除：4 条内容、1 份摘要"
    assert str(ForgottenTurn(n=1)) == "这一轮早已删除"
    assert "Redis 暂时连不上" in str(ForgottenTurn(n=1, turns=1, cached=True))


async def test_the_list_says_what_has_summaries(running: Running) -> None:
    assert "已摘要" not in (await running.fetch("/conversations", headers=RIGHT))[1]
    running.backend.with_summaries = {ID}
    assert "已摘要" in (await running.fetch("/conversations", headers=RIGHT))[1]
    running.backend.broken = True
    assert (await running.fetch("/conversations", headers=RIGHT))[0] == 200


# ---------------------------------------------------------------- static files
def test_what_is_vendored_is_what_its_note_says() -> None:
    note = (CONSOLE / "static" / "htmx-LICENSE.txt").read_text("utf-8")
    name, digest = re.search(r"SHA-256 of (\S+): ([0-9a-f]{64})", note).groups()  # type: ignore[union-attr]
    assert hashlib.sha256((CONSOLE / "static" / name).read_bytes()).hexdigest() == digest
    assert [file.name for file in (CONSOLE / "static").glob("*.min.js")] == [name]
    assert name in (CONSOLE / "templates" / "layout.html").read_text("utf-8")


async def test_scripts_are_small_and_come_packed(running: Running) -> None:
    total = 0
    for file in (CONSOLE / "static").glob("*.js"):
        headers = {"Accept-Encoding": "gzip"}
        async with running.session.get(f"/static/{file.name}", headers=headers, auto_decompress=False) as r:
            packed = await r.read()
            assert r.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed) == file.read_bytes()
        total += len(packed)
    assert total < 40_000
    status, text = await running.fetch("/static/icon.svg")
    assert (status, text[:4]) == (200, "<svg")
    assert (await running.fetch("/static/htmx-LICENSE.txt"))[0] == 404


def test_templates_have_no_inline_code_and_switch_nothing_off() -> None:
    for file in (CONSOLE / "templates").glob("*.html"):
        text = file.read_text("utf-8")
        assert not re.search(
            r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:|\|\s*safe|autoescape|hx-on|js:", text
        )


# ---------------------------------------------------------------- secrets
SECRET = "s3cret-canary-0123456789"
SECRET_KEYS = ["api-key", "app-secret", "token", "encoding-aes-key", "encrypt-key", "client-secret", "proxy", "api-kee"]
PUBLIC = {"model": "gpt-4o-mini", "port": 8080, "enabled": True, "host": "127.0.0.1", "description": "助手"}
NAMES = st.sampled_from(["models", "main", "channels", "feishu", "memory", "redis", "无"])
BOMB = "a: &a [x]\n" + "\n".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(8)
)
LEAVES = st.fixed_dictionaries({}, optional={key: st.just(SECRET) for key in SECRET_KEYS}).map(
    lambda m: {**PUBLIC, **m}
)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6)


@given(TREES, st.booleans(), st.sampled_from([None, '"', "'", "|", ">"]), st.integers(0, 400), st.booleans())
def test_no_secret_is_shown_whatever_the_file_is_like(
    tree: Mapping[str, Any], flow: bool, style: str | None, cut: int, broken: bool
) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True, default_flow_style=flow, default_style=style, width=1000)
    if broken:
        text = text[:cut] + "\n\t]: {" + text[cut:]
    lines = redacted(text)
    shown = "\n".join(lines)
    assert SECRET not in shown
    assert SECRET[5:] not in shown
    assert len(lines) == text.count("\n") + 1, "line numbers stay"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("token: ${NAME:-}", "token: ${NAME:-}"),
        ("token: ${NAME}", "token: ${NAME}"),
        ('token: "${NAME:-abc}"', f'token: "${{NAME:-{HIDDEN}}}"'),
        ("api-kee: sk-1", f"api-kee: {HIDDEN}"),
        ("model: gpt-4o", "model: gpt-4o"),
        ("# api-key: sk-1 旧的", f"# api-key: {HIDDEN} 旧的"),
        ("base-url: https://u:p@x.cn/v1?key=1", f"base-url: https://{HIDDEN}@x.cn/v1?key={HIDDEN}"),
        ("# url: https://x.cn/?key=${KEY}&sk-1", f"# url: https://x.cn/?key=${{KEY}}&{HIDDEN}"),
        ("token: abcdefgh  # abcdefgh", f"token: {HIDDEN}  # {HIDDEN}"),
        ("api-key: abc   # old: sk-COMMENT-1122334455\nport: 1 # x", f"api-key: {HIDDEN}   # {HIDDEN}\nport: 1 # x"),
        ('a: {token: "a b", port: 1}  # old one', f"a: {{token: {HIDDEN}, port: 1}}  # {HIDDEN}"),
        ("token: ${NAME}  # 必填，旧的 COMMENT-11223", f"token: ${{NAME}}  # 必填，旧的 {HIDDEN}"),
        ("token: ${NAME:-abc}  # 旧的 def", f"token: ${{NAME:-{HIDDEN}}}  # {HIDDEN}"),
        ("port: 1  # 旧的 sk-COMMENT-1122334455", f"port: 1  # 旧的 {HIDDEN}"),
        ("headers: {Authorization: Bearer 1}", f"headers: {{Authorization: {HIDDEN}}}"),
        ("port: [\nhost: x.cn\ntoken: abc\n- odd", f"port: {HIDDEN}\nhost: x.cn\ntoken: {HIDDEN}\n{HIDDEN}"),
        ("a: &a [*a]\nport: 1", f"a: {HIDDEN}\nport: 1"),
        ("model: &a sk-1\ntoken: *a", f"model: {HIDDEN}\ntoken: {HIDDEN}"),
        (BOMB, "\n".join(f"{chr(97 + n)}: {HIDDEN}" for n in range(9))),
        ("", ""),
    ],
)
def test_what_becomes_of_a_line(written: str, shown: str) -> None:
    assert redacted(written) == shown.split("\n")


def test_the_shipped_files_hide_nothing() -> None:
    for file in (shipped_config() / "gateway.yaml", *shipped_config().glob("agents/*.yaml")):
        assert redacted(file.read_text("utf-8")) == file.read_text("utf-8").split("\n"), file


async def test_the_config_against_what_runs(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "general-agent.yaml").write_text("prompt: 你好\n", "utf-8")
    file = tmp_path / "gateway.yaml"
    file.write_text("console: {token: old-secret-token}\n", "utf-8")
    live = LiveSettings(tmp_path, {}, await asyncio.to_thread(load_settings, tmp_path, {}))
    assert (await config_state(live)).same
    file.write_text(
        "console: {token: new-secret-token}\nlimits: {messages-per-minute: 7}\nserver: {port: 9}\n", "utf-8"
    )
    state = await config_state(live)
    told = {each.key: (each.running, each.written, each.restart) for each in state.differences}
    assert told["limits.messages-per-minute"] == ("20", "7", False)
    assert told["server.port"] == ("8080", "9", True)
    assert told["console.token"] == (HIDDEN, f"{HIDDEN}（已改）", True)
    assert live.current.server.port == 8080, "looking takes nothing over"
    file.write_text("limits: {messages-per-minut: 7}\n", "utf-8")
    state = await config_state(live)
    assert [problem.line for problem in state.problems] == [1]
    assert not state.same


async def test_a_pipe_in_the_place_of_a_file_keeps_no_page_waiting(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "general-agent.yaml").write_text("prompt: 你好\n", "utf-8")
    file = tmp_path / "gateway.yaml"
    file.write_text("server: {port: 9}\n", "utf-8")
    live = LiveSettings(tmp_path, {}, await asyncio.to_thread(load_settings, tmp_path, {}))
    os.mkfifo(tmp_path / "agents" / "other.yaml")
    file.unlink()
    os.mkfifo(file)
    async with asyncio.timeout(60):
        shown = await config_files(live)
        state = await config_state(live)
    assert [Path(each.name).name for each in shown] == ["general-agent.yaml"]
    assert len(state.problems) == 2


# ---------------------------------------------------------------- figures
@given(st.integers(0, 9000), st.integers(0, 5000), st.integers(0, 3000), st.integers(1, 9000), st.integers(0, 200000))
def test_the_bar_adds_up_to_the_context(system: int, tools: int, output: int, used: int, context: int) -> None:
    seen = inspection("x")
    filled = Inspection(
        conversation=ID,
        settings=seen.settings,
        model="m",
        system="",
        window=Window(messages=(), dropped=(), tokens=used, question_tokens=0),
        system_tokens=system,
        tool_tokens=tools,
        output=output,
        context=context,
    )
    parts = request_shares(filled)
    assert sum(part.tokens for part in parts) == max(context, system + tools + output + used)
    assert abs(sum(part.width for part in parts) - 1000) < 0.1
    for left, right in itertools.pairwise(parts):
        assert abs(left.x + left.width - right.x) < 0.05


def test_what_if() -> None:
    assert what_if({"max_messages": 4, "keep_recent": 9, "max_tokens": None}) == {"max_messages": 4, "keep_recent": 4}
    more = Window(messages=window("a").messages, dropped=(), tokens=0, question_tokens=0)
    none = Window(messages=(), dropped=(), tokens=0, question_tokens=0)
    assert (change(none, more).more, change(none, more).fewer) == (2, 0)
    assert not change(more, more)
    read = yaml.safe_load(as_config(WindowSettings(max_messages=8, keep_recent=4)))
    assert read == {"context": {"window": {"max-messages": 8, "keep-recent": 4, "max-tokens": 8000}}}


def test_a_timeline_tells_when_how_long_and_what() -> None:
    lines = timeline(trace("x"))
    assert [line.label for line in lines] == ["收到", "选智能体", "取窗口", "模型回答", "送达"]
    model = lines[3]
    assert (round(model.after), round(model.took or 0), model.bad) == (1200, 1000, True)
    assert (round(model.x), round(model.width)) == (133, 667)
    assert "250 ms 后第一个字" in model.detail
    assert "第 2 / 3 部分" in lines[4].detail
    assert "试了" not in lines[4].detail
    assert all(0 <= line.x <= 1000 and line.x + line.width <= 1000.1 for line in lines)
    assert timeline(trace("x", steps=())) == []


def test_every_step_and_outcome_has_a_name() -> None:
    assert set(LABELS) == set(Kind)
    assert set(OUTCOMES) == set(Outcome)
    assert {outcome_state(each) for each in Outcome} == {"ok", "bad", "busy"}


async def test_the_overview_puts_first_what_needs_somebody() -> None:
    backend = FakeBackend()
    status = dict(await backend.status())
    well = overview(status, 100.0)
    assert not well.attention
    ok, bad = {"ok": True, "detail": "正常", "since": 40.0}, {"ok": False, "detail": "请核对密钥", "since": 90.0}
    status |= {"channels": {"a": ok, "b": bad}, "redis": {"state": "down", "cooldown_left": 3.0, "remedy": "检查地址"}}
    status["mcp"] = {"maps": {**ok, "tools": ["route"]}, "mail": {**bad, "tools": []}, "new": {"tools": []}}
    status["config"] = {"problems": ["x.yaml:1: 错"], "waiting_for_restart": ["server.port"], "notes": []}
    state = overview(status, 100.0)
    assert [line.name for line in state.channels] == ["b", "a"]
    assert state.channels[0].age == 10.0
    assert [(line.name, line.state) for line in state.servers] == [("mail", "bad"), ("maps", "ok"), ("new", "off")]
    assert [each.what for each in state.attention] == [
        "配置有误，仍在用原来的配置",
        "渠道 b",
        "MCP 服务 mail",
        "Redis",
        "改动要重启才生效",
    ]
    assert all(each.remedy for each in state.attention)
    quick, slow = trace(outcome=Outcome.DELIVERED, last=100.5), trace(outcome=Outcome.DELIVERED, last=101.5)
    counted = tallies([quick, slow, trace(), trace(conversation="")], lambda each: each.conversation.rpartition(":")[2])
    tally = counted["general-agent"]
    assert (tally.count, tally.failed, tally.median) == (3, 1, 1000.0)
    first = agents_failing_first(backend.agents()[::-1], counted)[0]
    assert first.name == "general-agent"


def test_figures_read_well() -> None:
    assert [size(n) for n in (0, 900, 2048, 24_061_115, 10**13)] == ["0 B", "900 B", "2.0 KB", "23 MB", "9313 GB"]
    assert [when(at) for at in (None, "2026-11-05T10:00:00.000+08:00", "手写的")] == ["–", "11-05 10:00:00", "手写的"]
    assert [span(s) for s in (-1, 59, 60, 7200, 200_000)] == ["0 秒", "59 秒", "1 分钟", "2 小时", "2 天"]
    assert [milliseconds(v) for v in (None, 0.25, 84.4, 1234)] == ["–", "0.2 ms", "84 ms", "1.2 s"]


@pytest.mark.parametrize("path", ["/login", f"/conversations/{ID}/forget"])
@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/x-www-form-urlencoded; charset=hologram", b"turn=1", 400),
        ("application/x-www-form-urlencoded", b"turn=\xff\xfe", 400),
        ("multipart/form-data; boundary=x", b"--x", 415),
        ("application/json", b'{"turn": "1"}', 415),
    ],
)
async def test_what_is_no_form_is_the_senders_mistake(
    running: Running, path: str, kind: str, body: bytes, status: int
) -> None:
    async with running.session.post(path, headers=RIGHT | {"Content-Type": kind}, data=body) as response:
        assert response.status == status
