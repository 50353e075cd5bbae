"""HTTP to a server of models: proxies of the environment, and nothing left open."""

import asyncio
import contextlib

import pytest

from agents import model_http
from agents.model_http import ModelHttp, environment_proxy, whole
from tests.platforms.model_server import ModelServer


async def test_the_environments_proxy_is_asked_and_a_bypass_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with ModelServer() as model:
        client = ModelHttp("http://model.invalid/v1/x", {}, connections=2)
        async with client.post(b"{}") as response:
            assert (response.status, await whole(response)) == (200, b"{}")
        assert lines == [b"POST http://model.invalid/v1/x HTTP/1.1\r\n"]
        near = ModelHttp(f"{model.base_url}/none", {}, connections=2)
        async with near.post(b"{}") as here:
            assert (here.status, len(lines)) == (404, 1)
        await client.close()
        await near.close()
    server.close()
    await server.wait_closed()


async def test_what_is_compressed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    body = gzip.compress("压缩了的答复".encode())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    monkeypatch.delenv("http_proxy", raising=False)
    client = ModelHttp(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {"a": "b"}, connections=2)
    async with client.post(b"{}") as response:
        assert (await whole(response)).decode() == "压缩了的答复"
    await client.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({"HTTP_PROXY": "127.0.0.1:7890"}, "http://127.0.0.1:7890"),
        ({"ALL_PROXY": "http://127.0.0.1:7891"}, "http://127.0.0.1:7891"),
        ({"HTTPS_PROXY": "http://127.0.0.1:7892"}, None),
        ({"ALL_PROXY": "http://127.0.0.1:7893", "NO_PROXY": "model.invalid:8000"}, None),
        ({}, None),
    ],
)
def test_proxies_as_people_write_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy("http://model.invalid:8000/v1") == proxy


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_http, "MOST_BYTES", 100_000)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = ModelHttp(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, connections=1)
    async with client.post(b"{}") as response:
        with pytest.raises(ValueError, match="more than"):
            await whole(response)
    await client.close()
    server.close()
