"""The listeners: only what was routed, bounded, neutral towards whoever sends, clear towards the admin."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from channels.channel import Route
from channels.message import GatewayClosed
from gateway import server
from gateway.server import Listener, ListenFailed, PortTaken, build_public

LIMIT = 1000


class Handlers:
    """Stands for channels; `hang` is answered when `release` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.state = (200, "ok")

    async def echo(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await request.read())

    async def hang(self, request: web.Request) -> web.StreamResponse:
        await self.release.wait()
        return web.Response(text="done")

    @staticmethod
    def fail(error: BaseException) -> server.Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            raise error

        return handler

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/feishu", self.echo),
            Route("POST", "/hang", self.hang),
            Route("POST", "/bug", self.fail(RuntimeError("secret-canary"))),
            Route("POST", "/late", self.fail(TimeoutError())),
            Route("POST", "/odd", self.fail(ValueError("secret-canary"))),
            Route("POST", "/deep", self.fail(RecursionError())),
            Route("POST", "/closed", self.fail(GatewayClosed())),
        ]


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def listener(handlers: Handlers) -> AsyncIterator[Listener]:
    app = build_public(handlers.routes(), lambda: handlers.state, LIMIT)
    listener = Listener(app, "127.0.0.1", 0, grace=0.2)
    await listener.start()
    yield listener
    await listener.stop()


@pytest.fixture
async def client(listener: Listener) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as session:
        yield session


async def test_only_what_was_routed_is_there(client: aiohttp.ClientSession) -> None:
    async with client.post("/feishu", data=b"x" * LIMIT) as r:
        assert (r.status, await r.read()) == (200, b"x" * LIMIT)
        assert "Server" not in r.headers
    for method, path, status in [
        ("POST", "/api/chat", 404),
        ("GET", "/", 404),
        ("GET", "/feishu/other", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("PUT", "/feishu", 405),
        ("POST", "/healthz", 405),
    ]:
        async with client.request(method, path, data=b"") as r:
            assert r.status == status, (method, path)
            assert "Server" not in r.headers


async def test_health_says_one_word(client: aiohttp.ClientSession, handlers: Handlers) -> None:
    for state in ((200, "ok"), (200, "degraded"), (503, "draining")):
        handlers.state = state
        async with client.get("/healthz") as r:
            assert (r.status, await r.json()) == (state[0], {"status": state[1]})
        async with client.head("/healthz") as r:
            assert (r.status, await r.read()) == (state[0], b"")


async def test_a_body_over_the_limit_is_413(client: aiohttp.ClientSession) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LIMIT // 100 + 1):
            yield b"x" * 100

    async with client.post("/feishu", data=b"x" * (LIMIT + 1)) as r:
        assert r.status == 413
    async with client.post("/feishu", data=chunks()) as r:
        assert r.status == 413
    bomb = gzip.compress(b"x" * 300_000)
    assert len(bomb) < LIMIT
    async with client.post("/feishu", data=bomb, headers={"Content-Encoding": "gzip"}) as r:
        assert r.status == 413, "counted as unpacked"
    async with client.post("/feishu", data=b"\x1f\x8b no gzip", headers={"Content-Encoding": "gzip"}) as r:
        assert r.status == 400


async def test_a_slow_body_is_given_up(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"POST /feishu HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 30)
    writer.close()


@pytest.mark.parametrize(
    ("path", "status"), [("/bug", 500), ("/late", 500), ("/odd", 400), ("/deep", 400), ("/closed", 503)]
)
async def test_errors_end_at_the_border(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, path: str, status: int
) -> None:
    caplog.set_level(logging.INFO)
    async with client.post(path, data=b"{}") as r:
        body = await r.text()
        assert r.status == status
        assert "canary" not in body
        assert "rror:" not in body
        assert "Traceback" not in body
    assert "canary" not in caplog.text
    assert "Traceback" not in caplog.text
    logged = [r.getMessage() for r in caplog.records if r.name.startswith("sanqiao")]
    assert (path == "/closed") == (not any(f"route={path}" in line for line in logged)), "a bug is always logged"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /feishu HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /feishu HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_no_http_at_all_is_refused_quietly(
    listener: Listener, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    caplog.set_level(logging.INFO)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(data)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 30)
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0], answer
    writer.close()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\x1f\x8b no gzip", "gzip"),
        (b"nope", "gzip"),
        (b"nope", "deflate"),
        (gzip.compress(b"x" * 50, mtime=0)[:20], "gzip"),
        (b"nope", "no-such-encoding"),
    ],
    ids=["bad header", "no header", "deflate", "torn", "unknown"],
)
async def test_strangers_do_not_fill_the_log_with_what_cannot_be_unpacked(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, body: bytes, encoding: str
) -> None:
    caplog.set_level(logging.INFO)
    for path in ("/feishu", "/nowhere"):
        for _ in range(3):
            async with client.post(path, data=body, headers={"Content-Encoding": encoding, "Connection": "close"}) as r:
                assert r.status in (200, 400, 404)
    await asyncio.sleep(0.05)  # what is left of a body is read after the answer
    assert not [r.getMessage() for r in caplog.records if r.name.startswith("sanqiao")]


async def test_stop_is_bounded_and_lets_quick_requests_finish(handlers: Handlers) -> None:
    listener = Listener(build_public(handlers.routes(), lambda: (200, "ok"), LIMIT), "127.0.0.1", 0, grace=0.3)
    await listener.start()
    url = f"http://127.0.0.1:{listener.port}/hang"
    async with aiohttp.ClientSession() as session:
        quick = asyncio.create_task(session.post(url))
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_later(0.05, handlers.release.set)
        await listener.stop()
        assert (await quick).status == 200
    handlers.release.clear()
    listener = Listener(build_public(handlers.routes(), lambda: (200, "ok"), LIMIT), "127.0.0.1", 0, grace=0.2)
    await listener.start()
    async with aiohttp.ClientSession() as session:
        endless = asyncio.create_task(session.post(f"http://127.0.0.1:{listener.port}/hang"))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            await listener.stop()
        with pytest.raises(aiohttp.ClientError):
            await endless
    await listener.stop()


async def test_a_taken_port_is_named_with_its_remedy(listener: Listener, handlers: Handlers) -> None:
    second = Listener(build_public([], lambda: (200, "ok"), LIMIT), "127.0.0.1", listener.port, key="console")
    with pytest.raises(PortTaken, match=rf"{listener.port}.*console\.port"):
        await second.start()
    third = Listener(build_public([], lambda: (200, "ok"), LIMIT), "203.0.113.7", 0, key="server")
    with pytest.raises(ListenFailed, match=r"server\.host"):
        await third.start()
