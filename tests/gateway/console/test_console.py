"""The console from outside: who gets in, what is asked and answered, and that nothing else comes through."""

import asyncio
import json
import logging
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import Admission, Answered, Delta, Failed, InboundMessage, Progress, Routed, Usage
from gateway.config.token_strength import is_strong
from gateway.console.api import event, progress_event
from gateway.console.application import Console
from gateway.console.auth import Logins, Throttle, TokenUnusable, Verdict, console_token
from gateway.console.guard import HEADERS, OPEN
from gateway.server import Listener
from gateway.storage.conversation_index import ConversationItem
from memory.conversation import ConversationId, Role, ToolCall, Turn
from tests.gateway.console.fake_backend import FakeBackend
from tests.waiting import until

TOKEN = "a-token-for-tests"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
ID = ConversationId.parse("uu3r7qbo6l6i3:web:b759cea3338c:0:general-agent")
STATIC = Path(__file__).parents[3] / "gateway/console/static"
XSS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "\u2028\u2029\ud800",
    "event: done\ndata: {}\n\n",
]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Running:
    """One console on a real port."""

    def __init__(self, backend: FakeBackend, clock: Clock, **over: object) -> None:
        settings: dict[str, object] = {"token": TOKEN, "host": "127.0.0.1", "heartbeat": 0.05, "clock": clock, **over}
        self.console = Console(backend, **settings)  # type: ignore[arg-type]
        self.backend, self.clock = backend, clock
        self.listener = Listener(self.console.app, "127.0.0.1", 0, key="console", grace=0.2)

    async def __aenter__(self) -> "Running":
        await self.listener.start()
        self.session = aiohttp.ClientSession(
            f"http://127.0.0.1:{self.listener.port}", cookie_jar=aiohttp.CookieJar(unsafe=True)
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.session.close()
        await self.backend.close()
        await self.listener.stop()

    async def fetch(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, **kwargs: object
    ) -> tuple[int, str]:
        request = self.session.request(method, path, headers=headers, allow_redirects=False, **kwargs)  # type: ignore[arg-type]
        async with request as r:
            for name, value in HEADERS.items():
                assert r.headers[name] == value, (method, path, name)
            assert "Server" not in r.headers
            return r.status, await r.text()

    async def get(self, path: str) -> tuple[int, dict[str, object]]:
        status, text = await self.fetch(path, headers=RIGHT)
        return status, json.loads(text)

    async def chat(self, **body: object) -> list[tuple[str, dict[str, object]]]:
        async with self.session.post("/api/chat", json=body, headers=RIGHT) as r:
            assert r.status == 200, await r.text()
            assert r.content_type == "text/event-stream"
            return events_of(await r.text())


def events_of(text: str) -> list[tuple[str, dict[str, object]]]:
    blocks = [block.split("\n") for block in text.split("\n\n") if block and not block.startswith(":")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@pytest.fixture
async def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
async def running(backend: FakeBackend) -> AsyncIterator[Running]:
    async with Running(backend, Clock()) as running:
        yield running


def routes(running: Running) -> list[tuple[str, str]]:
    """Every route the application has, with a path that leads to it."""
    found = []
    for route in running.console.app.router.routes():
        assert route.resource is not None
        path = route.resource.canonical.replace("{id}", str(ID)).replace("{name}", "chat.js").replace("{trace}", "t-1")
        found.append((route.method, path))
    return found


# ---------------------------------------------------------------- who gets in
CREDENTIALS = {
    "absent": {},
    "empty": {"Authorization": ""},
    "empty bearer": {"Authorization": "Bearer "},
    "wrong": {"Authorization": "Bearer wrong"},
    "wrong, not ASCII": {"Authorization": "Bearer 令牌"},
    "prefix": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "other scheme": {"Authorization": f"Basic {TOKEN}"},
    "made-up cookie": {"Cookie": "sanqiao-{port}=made-up"},
    "token as cookie": {"Cookie": "sanqiao-{port}=" + TOKEN},
}


@pytest.mark.parametrize("kind", CREDENTIALS)
async def test_every_route_but_the_open_ones_needs_the_token(backend: FakeBackend, kind: str) -> None:
    async with Running(backend, Clock()) as running:
        headers = {k: v.replace("{port}", str(running.listener.port)) for k, v in CREDENTIALS[kind].items()}
        walked = [(method, path) for method, path in routes(running) if path != "/login" and "/static/" not in path]
        assert len(walked) >= 25
        pages = {"/", "/overview", "/conversations", f"/conversations/{ID}", "/traces", "/traces/t-1", "/config"}
        for method, path in [*walked, ("GET", "/no-such-page"), ("GET", "/api/no-such")]:
            running.clock.now += 61
            status, text = await running.fetch(path, method, headers, data=b"")
            assert status == (302 if path in pages and method in ("GET", "HEAD") else 401), (method, path)
            assert "sanqiao_" not in text
    assert not backend.asked
    assert not backend.accepted


async def test_the_right_token_opens_every_route(running: Running) -> None:
    for method, path in routes(running):
        status, _ = await running.fetch(path, method, RIGHT, data=b"")
        assert status not in (401, 403, 429, 500), (method, path, status)


async def test_no_token_is_read_from_a_query(running: Running) -> None:
    for query in (f"token={TOKEN}", f"once={TOKEN}", f"access_token={TOKEN}"):
        assert (await running.fetch(f"/api/status?{query}"))[0] == 401
    assert (await running.fetch(f"/login?once={TOKEN}"))[0] == 401


def test_what_is_open_is_a_short_list() -> None:
    assert set(OPEN) == {"/login", "/static/{name}"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1:{port}.evil.example"},
        {"Host": "evil.example", "X-Forwarded-Host": "127.0.0.1:{port}"},
        {"Host": ""},
    ],
    ids=str,
)
async def test_foreign_requests_are_refused_before_login(running: Running, headers: dict[str, str]) -> None:
    foreign = {key: value.replace("{port}", str(running.listener.port)) for key, value in headers.items()}
    for path in ("/api/chat", "/login", "/static/chat.js"):
        for credentials in (RIGHT, {}):
            status, _ = await running.fetch(path, "POST", {**credentials, **foreign}, data=b"{}")
            assert status == 403, (path, foreign)
    assert not running.backend.accepted


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
async def test_own_names_are_accepted(running: Running, name: str) -> None:
    host = f"{name}:{running.listener.port}"
    own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert (await running.fetch("/api/status", headers={**RIGHT, **own}))[0] == 200
    assert (await running.fetch("/api/status", headers={**RIGHT, "Sec-Fetch-Site": "none"}))[0] == 200


async def test_listening_everywhere_takes_addresses_but_no_foreign_names(backend: FakeBackend) -> None:
    async with Running(backend, Clock(), host="0.0.0.0") as running:
        for host, status in (
            (f"192.0.2.7:{running.listener.port}", 200),
            (f"evil.example:{running.listener.port}", 403),
        ):
            assert (await running.fetch("/api/status", headers={**RIGHT, "Host": host}))[0] == status, host


async def test_a_trusted_proxy_may_give_another_name(backend: FakeBackend) -> None:
    forwarded = {"X-Forwarded-Host": "chat.example.com", "Origin": "https://chat.example.com"}
    async with Running(backend, Clock()) as running:
        assert (await running.fetch("/api/status", headers={**RIGHT, **forwarded}))[0] == 403, "nobody is trusted"
    async with Running(FakeBackend(), Clock(), trusted_proxies=("127.0.0.0/8",)) as running:
        assert (await running.fetch("/api/status", headers={**RIGHT, **forwarded}))[0] == 200
        other = {**RIGHT, **forwarded, "Origin": "https://evil.example"}
        assert (await running.fetch("/api/status", headers=other))[0] == 403
        assert (await running.fetch("/api/status", headers={**RIGHT, "Host": "evil.example"}))[0] == 403
        async with running.session.post("/login", data={"token": TOKEN}, headers=forwarded, allow_redirects=False) as r:
            assert r.status == 303
            assert "Secure" in r.headers["Set-Cookie"]


async def test_behind_a_proxy_each_client_is_throttled_on_its_own(backend: FakeBackend) -> None:
    async with Running(backend, Clock(), trusted_proxies=("127.0.0.1",)) as running:
        for n in range(7):
            spoofed = {"Authorization": "Bearer no", "X-Forwarded-For": f"198.51.100.{n}, 203.0.113.9"}
            status, _ = await running.fetch("/api/status", headers=spoofed)
            assert status == (401 if n < 5 else 429), "what a client itself writes there does not count"
        other = {"Authorization": "Bearer no", "X-Forwarded-For": "203.0.113.10"}
        assert (await running.fetch("/api/status", headers=other))[0] == 401


async def test_login_by_form_and_logout(running: Running) -> None:
    assert "令牌不对" not in (await running.fetch("/login"))[1]
    status, text = await running.fetch("/login", "POST", data={"token": "wrong"})
    assert status == 401
    assert "令牌不对" in text
    assert (await running.fetch("/login", "POST", data={}))[0] == 401
    assert (await running.fetch("/login", "POST", json={"token": TOKEN}))[0] == 415
    async with running.session.post("/login", data={"token": TOKEN}, allow_redirects=False) as r:
        assert (r.status, r.headers["Location"]) == (303, "/")
        cookie = r.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Secure" not in cookie, "over plain loopback it would never come back"
        assert TOKEN not in cookie
    assert (await running.fetch("/"))[0] == 200
    first = {c.key: c.value for c in running.session.cookie_jar}
    await running.fetch("/login", "POST", data={"token": TOKEN})
    second = {c.key: c.value for c in running.session.cookie_jar}
    assert first.keys() == second.keys()
    assert first != second, "rotated at login"
    running.session.cookie_jar.clear()
    (name,) = first
    assert (await running.fetch("/api/status", headers={"Cookie": f"{name}={first[name]}"}))[0] == 401
    live = {"Cookie": f"{name}={second[name]}"}
    assert (await running.fetch("/api/status", headers=live))[0] == 200
    assert (await running.fetch("/logout", "POST", live))[0] == 303
    assert (await running.fetch("/api/status", headers=live))[0] == 401


async def test_a_login_ends_after_eight_idle_hours(running: Running) -> None:
    await running.fetch("/login", "POST", data={"token": TOKEN})
    for _ in range(3):
        running.clock.now += 7.9 * 3600
        assert (await running.fetch("/api/status"))[0] == 200
    running.clock.now += 8 * 3600
    assert (await running.fetch("/api/status"))[0] == 401


async def test_a_login_link_works_once_and_for_a_minute(running: Running) -> None:
    path = running.console.login_path()
    async with running.session.get(path, allow_redirects=False) as r:
        assert (r.status, r.headers["Location"]) == (303, "/")
    assert (await running.fetch("/api/status"))[0] == 200
    running.session.cookie_jar.clear()
    assert (await running.fetch(path))[0] == 401
    late = running.console.login_path()
    running.clock.now += 60
    assert (await running.fetch(late))[0] == 401
    assert (await running.fetch("/api/status"))[0] == 401


async def test_guessing_is_throttled(running: Running) -> None:
    attempts = [
        ("/api/status", "GET", {"headers": {"Authorization": "Bearer no"}}),
        ("/login", "POST", {"data": {"token": "no"}}),
        ("/login?once=no", "GET", {}),
        ("/login", "POST", {"data": {"token": "no"}}),
        ("/api/status", "GET", {"headers": {"Authorization": "Bearer no"}}),
    ]
    for path, method, more in attempts:
        assert (await running.fetch(path, method, **more))[0] == 401  # type: ignore[arg-type]
    for path, method, more in attempts:
        assert (await running.fetch(path, method, **more))[0] == 429  # type: ignore[arg-type]
    assert (await running.fetch("/api/status", headers=RIGHT))[0] == 200, "a long token is not locked out"
    running.clock.now += 60
    assert (await running.fetch("/login", "POST", data={"token": "no"}))[0] == 401


def test_a_short_token_cannot_be_guessed_past_the_throttle() -> None:
    clock = Clock()
    logins = Logins("12345678", clock=clock)
    assert logins.present("", "peer") is Verdict.WRONG
    for n in range(4):
        assert logins.present(str(n), "peer") is Verdict.WRONG
    assert logins.present("12345678", "peer") is Verdict.THROTTLED
    assert logins.present("12345678", "other peer") is Verdict.RIGHT
    clock.now += 60
    assert logins.present("12345678", "peer") is Verdict.RIGHT
    assert "12345678" not in repr(logins)


@pytest.mark.parametrize("token", ["0123456789abcdef", "7719284416275309", "correct horse battery", "f0f0a1a1b2b20000"])
def test_whoever_has_a_strong_token_is_not_locked_out_by_others(token: str) -> None:
    logins = Logins(token, clock=Clock())
    for n in range(50):
        logins.present(f"guess {n}", "shared address")
    assert logins.present("guess", "shared address") is Verdict.THROTTLED
    assert logins.present(token, "shared address") is Verdict.RIGHT


@pytest.mark.parametrize("token", ["0123456789abcde", "a" * 40, "12" * 10])
def test_what_can_be_guessed_is_not_strong(token: str) -> None:
    assert not is_strong(token)


def test_an_empty_token_never_verifies() -> None:
    with pytest.raises(ValueError, match="empty"):
        Logins("")


@given(st.text(st.characters()))
def test_only_the_token_itself_is_right(given_token: str) -> None:
    expected = Verdict.RIGHT if given_token == TOKEN else Verdict.WRONG
    assert Logins(TOKEN).present(given_token, "peer") is expected


def test_throttle_and_logins_remember_a_bounded_number() -> None:
    clock = Clock()
    throttle, logins = Throttle(clock), Logins(TOKEN, clock=clock)
    for n in range(3000):
        throttle.failed(f"peer-{n}")
        logins.make_once()
        logins.open_session()
    assert len(throttle._failures) == 1024
    assert len(logins._once) == 20
    assert len(logins._sessions) == 1000


def test_the_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    assert console_token("configured", tmp_path) == "configured"
    assert not list(tmp_path.iterdir())
    made = console_token("", tmp_path)
    path = tmp_path / "console-token"
    assert len(made) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert console_token("", tmp_path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("\n")
    assert len(console_token("", tmp_path)) >= 40, "an empty file is no token"
    assert [p.name for p in tmp_path.iterdir()] == ["console-token"]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TokenUnusable, match="console-token 里不是令牌；请删除它"):
        console_token("", tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(TokenUnusable, match="console-token 不是普通的文件；请移走"):
        console_token("", tmp_path)
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenUnusable, match="console-token"):
        console_token("", tmp_path)
    with pytest.raises(TokenUnusable, match="console-token"):
        console_token("", tmp_path / "missing")


async def test_who_changed_what_is_in_the_log(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sanqiao.console")
    proxied = {**RIGHT, "X-Forwarded-For": "198.51.100.1, 203.0.113.9", "X-Forwarded-Host": "console.example"}
    async with Running(backend, Clock(), trusted_proxies=("127.0.0.1",)) as running:
        await running.fetch("/api/status", headers=proxied)
        await running.fetch(f"/conversations/{ID}/forget", "POST", proxied, data={"turn": "m-1"})
        await running.fetch("/nowhere", "POST", proxied)
        await running.fetch("/api/forget", "POST", {**proxied, "Authorization": "Bearer no"}, json={"user": "u"})
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("console_write")]
    assert lines == [
        "console_write route=/conversations/{id}/forget peer=203.0.113.9 status=404",
        "console_write route=- peer=203.0.113.9 status=404",
    ]


async def test_no_secret_in_logs_or_answers(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path = running.console.login_path()
    await running.fetch("/api/status", headers=RIGHT)
    await running.fetch("/api/status", headers={"Authorization": f"Bearer {TOKEN}x"})
    await running.fetch("/login", "POST", data={"token": TOKEN + "x"})
    await running.fetch(path)
    await running.fetch("/api/status", headers={"Host": "evil\u2028.example"})
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("sanqiao")]
    assert any("reason=token" in line for line in ours)
    assert not any(TOKEN in line or path[12:] in line or not line.isascii() for line in ours), ours


# ---------------------------------------------------------------- chat
async def test_an_answer_streams_in_order(running: Running, backend: FakeBackend) -> None:
    steps: list[Progress] = [
        Routed("general-agent", "默认"),
        Delta("你"),
        Delta("好"),
        Answered("你好", ID, Usage(12, 3)),
    ]
    backend.script, backend.pause = lambda _: steps, 0.005
    got = await running.chat(user="u1", text="问", group=None, agent=None, session=None)
    assert got == [
        ("route", {"agent": "general-agent", "reason": "默认"}),
        ("delta", {"text": "你"}),
        ("delta", {"text": "好"}),
        ("done", {"conversation": str(ID), "text": "你好", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}),
    ]


async def test_a_command_and_a_failure(running: Running, backend: FakeBackend) -> None:
    backend.script = lambda message: [Answered("帮助")] if message.text == "/help" else [Failed("请稍后再试")]
    assert await running.chat(user="u", text="/help") == [
        ("done", {"conversation": None, "text": "帮助", "usage": None})
    ]
    assert await running.chat(user="u", text="问") == [("error", {"message": "请稍后再试"})]


async def test_the_question_arrives_whole(running: Running, backend: FakeBackend) -> None:
    await running.chat(
        user="u", text="  问\r\n\u2028 ", group="g", session="s", agent="job-recommend-agent", name="张三"
    )
    await running.chat(user="u", text="问", group="", session="", agent="", name="")
    first, second = backend.accepted
    assert (first.text, first.agent, first.name, first.lane.group) == (
        "  问\r\n\u2028 ",
        "job-recommend-agent",
        "张三",
        True,
    )
    assert (second.agent, second.name, second.lane.group) == (None, "", False)


async def test_a_stream_says_that_it_lives(running: Running, backend: FakeBackend) -> None:
    backend.gate.clear()
    async with running.session.post("/api/chat", json={"user": "u", "text": "问"}, headers=RIGHT) as r:
        assert (await asyncio.wait_for(r.content.readuntil(b"\n\n"), 30)).startswith(b":")
        backend.gate.set()
        rest = (await r.content.read()).decode()
    assert [name for name, _ in events_of(rest)][-1] == "done"


async def test_a_closed_tab_lets_the_answer_finish(
    running: Running, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    backend.gate.clear()
    request = await running.session.post("/api/chat", json={"user": "u", "text": "问"}, headers=RIGHT)
    request.close()
    await until(lambda: running.backend.web.health().detail.startswith("0 "))
    (answering,) = backend.answering
    backend.gate.set()
    await answering
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR], caplog.text


async def test_a_slow_reader_still_gets_the_end(running: Running, backend: FakeBackend) -> None:
    whole = "长" * 3_000_000
    backend.script = lambda _: [*(Delta("长" * 30_000) for _ in range(100)), Answered(whole)]
    async with running.session.post("/api/chat", json={"user": "u", "text": "问"}, headers=RIGHT) as r:
        await asyncio.gather(*backend.answering)
        await asyncio.sleep(0.1)
        got = events_of(await r.text())
    assert got[-1] == ("done", {"conversation": None, "text": whole, "usage": None})
    assert sum(name == "delta" for name, _ in got) < 100


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "u"},
        {"user": "u", "text": ""},
        {"user": "", "text": "问"},
        {"user": "u\0", "text": "问"},
        {"user": "u" * 201, "text": "问"},
        {"user": 1, "text": "问"},
        {"user": "u", "text": ["问"]},
        {"user": "u", "text": None},
        {"user": "u", "text": "问", "group": 1},
        {"user": "u", "text": "问", "agent": "no-such-agent"},
        {"user": "u", "text": "问", "agent": "../x"},
        {"user": "u", "text": "问", "sesion": "s"},
        [],
        "text",
        17,
    ],
    ids=str,
)
async def test_bad_questions_are_400_in_chinese(running: Running, body: object) -> None:
    status, text = await running.fetch("/api/chat", "POST", RIGHT, json=body)
    assert status == 400
    assert any("\u4e00" <= char <= "\u9fff" for char in json.loads(text)["error"])
    assert not running.backend.accepted


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"user":"u","text":"\xff"}'])
async def test_what_is_no_json_is_400(running: Running, data: bytes) -> None:
    headers = {**RIGHT, "Content-Type": "application/json"}
    assert (await running.fetch("/api/chat", "POST", headers, data=data))[0] == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(running: Running, kind: str) -> None:
    body = b'{"user":"u","text":"x"}'
    assert (await running.fetch("/api/chat", "POST", {**RIGHT, "Content-Type": kind}, data=body))[0] == 415
    assert not running.backend.accepted


async def test_a_stopping_gateway_says_so(running: Running) -> None:
    await running.backend.web.stop_receiving()
    status, text = await running.fetch("/api/chat", "POST", RIGHT, json={"user": "u", "text": "问"})
    assert status == 503
    assert json.loads(text)["error"]


async def test_a_web_chat_that_is_off_says_so(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def off(self: FakeBackend) -> None:
        raise LookupError

    monkeypatch.delattr(running.backend, "web")
    monkeypatch.setattr(FakeBackend, "web", property(off), raising=False)
    status, text = await running.fetch("/api/chat", "POST", RIGHT, json={"user": "u", "text": "问"})
    assert status == 404
    assert "channels.web" in json.loads(text)["error"]
    monkeypatch.undo()


async def test_stopping_ends_open_streams_politely(running: Running, backend: FakeBackend) -> None:
    backend.gate.clear()
    reading = asyncio.create_task(running.chat(user="u", text="问"))
    await until(lambda: bool(backend.accepted))
    await backend.web.close()
    ((name, data),) = await reading
    assert name == "error"
    assert data["message"]


async def test_an_error_of_the_backend_stays_inside(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(message: InboundMessage) -> Admission:
        raise RuntimeError("secret-canary")

    monkeypatch.setattr(running.backend.web, "_accept", broken)
    status, text = await running.fetch("/api/chat", "POST", RIGHT, json={"user": "u", "text": "问"})
    assert status == 500
    assert "canary" not in text
    assert "handler_failed route=/api/chat" in caplog.text


@given(st.text(st.characters()))
def test_no_text_breaks_the_form_of_an_event(text: str) -> None:
    ((name, data),) = events_of(event("delta", {"text": text}).decode())
    assert name == "delta"
    assert data["text"] == text.encode("utf-8", "replace").decode()


def test_every_step_has_its_event() -> None:
    steps: list[Progress] = [Routed("a", "r"), Delta("d"), Answered("t"), Failed("m")]
    names = [events_of(progress_event(step).decode())[0][0] for step in steps]
    assert names == ["route", "delta", "done", "error"]


# ---------------------------------------------------------------- reading
def turn(n: int, text: str = "话") -> Turn:
    return Turn(role=Role.USER, text=text, id=f"m-{n}", at="2026-11-30T18:10:05.123+08:00", n=n, epoch=0)


async def test_conversations_are_listed_in_pages(running: Running, backend: FakeBackend) -> None:
    lane = ID.lane
    backend.items = [ConversationItem(lane.with_agent(f"a{n}"), n, None, 10) for n in range(5)]
    status, first = await running.get("/api/conversations?limit=3")
    assert status == 200
    assert [c["id"] for c in first["conversations"]] == [f"{lane}:a{n}" for n in range(3)]  # type: ignore[index,attr-defined]
    assert first["conversations"][1] == {"id": f"{lane}:a1", "turns": 1, "last": None, "bytes": 10}  # type: ignore[index]
    _, second = await running.get(f"/api/conversations?limit=3&before={first['before']}")
    assert len(second["conversations"]) == 2  # type: ignore[arg-type]
    assert second["before"] is None
    await running.get("/api/conversations?channel=web&user=u&q=%E5%B2%97%E4%BD%8D")
    assert backend.asked[-1] == ("web", "u", "岗位", None, 50)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=x",
        "limit=1e3",
        "limit=٣",
        "limit=" + "9" * 5000,
        "limit=1&limit=2",
        "channel=fax",
        "before=made-up",
        "q=" + "x" * 201,
        "user=%00",
    ],
)
async def test_bad_queries_are_400(running: Running, query: str) -> None:
    status, answer = await running.get(f"/api/conversations?{query}")
    assert status == 400
    assert answer["error"]


@pytest.mark.parametrize(
    ("query", "said"), [("q=%00", "NUL"), ("user=u%00", "NUL"), ("q=" + "x" * 201, "最多 200 个字符")]
)
async def test_a_query_that_cannot_be_is_told_why(running: Running, query: str, said: str) -> None:
    status, answer = await running.get(f"/api/conversations?{query}")
    assert (status, said in answer["error"], "最多" in answer["error"]) == (400, True, said != "NUL")


async def test_a_history_is_read_from_its_tail(running: Running, backend: FakeBackend) -> None:
    calls = (ToolCall("call_1", "search_jobs", '{"city": "上海"}'),)
    backend.turns[ID] = [
        *(turn(n) for n in range(8)),
        Turn(role=Role.ASSISTANT, text="答", id="m-8", at="", n=8, to="m-7", tool_calls=calls, model="m", stopped=True),
        Turn(role=Role.TOOL, text="{}", id="m-9", at="", n=9, to="m-7", call="call_1"),
    ]
    status, page = await running.get(f"/api/conversations/{ID}?limit=2")
    assert status == 200
    assert page["before"] == 8
    answer, tool = page["turns"]  # type: ignore[misc]
    assert answer["tool_calls"] == [{"id": "call_1", "name": "search_jobs", "arguments": '{"city": "上海"}'}]
    assert (answer["to"], answer["model"], answer["stopped"], answer["role"]) == ("m-7", "m", True, "assistant")
    assert (tool["call"], tool["role"], tool["n"]) == ("call_1", "tool", 9)
    assert "name" not in tool
    _, oldest = await running.get(f"/api/conversations/{ID}?before=8&limit=200")
    assert [t["n"] for t in oldest["turns"]] == list(range(8))  # type: ignore[attr-defined]
    assert oldest["before"] is None


@pytest.mark.parametrize("tail", ["", "/window"])
async def test_malformed_and_unknown_ids_are_404(running: Running, tail: str) -> None:
    unknown = str(ID).replace("general", "other")
    for name in ("x", unknown, f"{ID}%0a", "..%2F..%2Fetc%2Fpasswd", "%00", "a" * 5000, "..", f"{ID}/x"):
        assert (await running.fetch(f"/api/conversations/{name}{tail}", headers=RIGHT))[0] == 404, name


async def test_window_status_agents_and_metrics(running: Running, backend: FakeBackend) -> None:
    backend.turns[ID] = [turn(0)]
    assert await running.get(f"/api/conversations/{ID}/window") == (200, {"conversation": str(ID), "messages": []})
    assert (await running.get("/api/status"))[1]["demo"] is False
    assert (await running.get("/api/agents"))[1]["agents"][0] == {"name": "general-agent", "description": "通用助手"}  # type: ignore[index]
    status, text = await running.fetch("/metrics", headers=RIGHT)
    assert (status, text) == (200, "sanqiao_messages_total 0\n")
    assert await running.fetch("/metrics", "HEAD", headers=RIGHT) == (200, "")
    assert (await running.fetch("/metrics", "HEAD"))[0] == 401


@pytest.mark.parametrize("text", XSS)
async def test_hostile_texts_stay_data(running: Running, backend: FakeBackend, text: str) -> None:
    shown = text.encode("utf-8", "replace").decode()
    backend.turns[ID] = [turn(0, text)]
    async with running.session.get(f"/api/conversations/{ID}", headers=RIGHT) as r:
        assert r.content_type == "application/json"
        assert (await r.json())["turns"][0]["text"] == shown
    backend.script = lambda _: [Routed("a", text), Delta(text), Answered(text)]
    got = await running.chat(user=text.encode("ascii", "ignore").decode().replace("\n", "") or "u", text=text)
    assert [name for name, _ in got] == ["route", "delta", "done"]
    assert got[-1][1]["text"] == shown
    for path in ("/", "/login"):
        status, page = await running.fetch(f"{path}?q=%3Cscript%3E&once=%3Cscript%3Ealert(1)", headers=RIGHT)
        assert "alert(1)" not in page, status


# ---------------------------------------------------------------- pages
async def test_static_files_are_a_closed_list(running: Running) -> None:
    for name, kind in (("chat.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")):
        async with running.session.get(f"/static/{name}") as r:
            assert (r.status, r.content_type) == (200, kind)
    for name in ("chat.html", "no.js", "..%2Fauth.py", "%2e%2e%2fauth.py", "chat.js%00", "..\\auth.py"):
        assert (await running.fetch(f"/static/{name}", headers=RIGHT))[0] == 404, name


async def test_pages_hold_nothing_inline(running: Running) -> None:
    for path in ("/", "/login"):
        _, page = await running.fetch(path, headers=RIGHT)
        for forbidden in ("<style", "style=", "onclick", "<script>", "http://", "https://"):
            assert forbidden not in page, (path, forbidden)


def test_scripts_never_parse_text_as_html() -> None:
    files = [file for file in STATIC.glob("*.js") if not file.name.endswith(".min.js")]
    assert files
    for file in files:
        text = file.read_text("utf-8")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert forbidden not in text, (file, forbidden)
