"""Stands between the gateway and a real server: passes requests on, keeps them and what became of them."""

from collections.abc import Mapping
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.platforms.model_server import ModelServer


class Relay(ModelServer):
    """A ModelServer whose answers are the real server's, but for `answers` and `fail`, which are used up before it asks.

    Every request, also one that is answered here, is shown to the server's chat template: `refused` are the reasons of
    those it did not take, `prompts` what it made of the others. `plain` asks the server for whole answers, not streams.
    `wordy`: the model is to answer in words until its tokens are used up: one of this size often says nothing, or begins
    a call that it does not end, of which llama.cpp shows nothing. So it is not told of tools, as the template is.
    """

    def __init__(self, real: str) -> None:
        super().__init__()
        self.real = real
        self.plain = self.wordy = False
        self.refused: list[str] = []
        self.prompts: list[str] = []
        self.statuses: list[int] = []

    async def __aenter__(self) -> Self:
        # llama.cpp hangs up after five idle seconds, sometimes on the next request.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        await self._session.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Asks the real server: status and JSON."""
        async with self._session.post(self.real + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    async def _respond(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        asked = {key: value for key, value in body.items() if key in ("messages", "tools")}
        status, made = await self.post("/apply-template", asked)
        if status == 200:
            self.prompts.append(made["prompt"])
        else:
            self.refused.append(str(made))
        if self.fail or self.answers:
            return await super()._respond(request, body)
        if self.plain:
            body = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        if self.wordy:
            body = {key: value for key, value in body.items() if key != "tools"} | {"ignore_eos": True}
        async with self._session.post(self.real + "/v1/chat/completions", json=body) as answer:
            self.statuses.append(answer.status)
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response
