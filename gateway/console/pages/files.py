"""The static files the pages are made of. They were read at import: no path of a request reaches a file."""

import asyncio
import gzip
from functools import cache
from importlib import resources

from aiohttp import web

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = {
    file.name: file.read_bytes()
    for file in resources.files("gateway.console").joinpath("static").iterdir()
    if file.name.rpartition(".")[2] in _TYPES
}
_WORTH_PACKING = 1024


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(_FILES[name], mtime=0)


class Files:
    """The handler of ``/static/{name}``."""

    def add_to(self, app: web.Application) -> None:
        """Adds the route."""
        app.router.add_route("GET", "/static/{name}", self.file)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """One file, packed for browsers that take it so."""
        name = request.match_info["name"]
        if name not in _FILES:
            raise web.HTTPNotFound
        body, headers = _FILES[name], {"Vary": "Accept-Encoding"}
        if len(body) >= _WORTH_PACKING and "gzip" in request.headers.get("Accept-Encoding", ""):
            body = await asyncio.to_thread(_packed, name)
            headers["Content-Encoding"] = "gzip"
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=body, headers=headers, content_type=kind, charset="utf-8")
