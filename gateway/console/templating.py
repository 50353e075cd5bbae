"""Templates → HTML. Everything a template shows is escaped; the engine is loaded when the first page is asked for."""

import asyncio
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.console.figures import FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment

Clock = Callable[[], float]


@cache
def _environment() -> "Environment":
    """Blocks on files and for some 40 ms; call in a thread."""
    import jinja2  # 15 ms, which a gateway that nobody looks at is spared

    folder = resources.files("gateway.console").joinpath("templates")
    sources = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".html")}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(sources),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(FILTERS)
    return environment


def _rendered(name: str, values: dict[str, object]) -> bytes:
    # Half characters, which UTF-8 has no form for, become `?`.
    return _environment().get_template(name).render(values).encode("utf-8", "replace")


async def page(name: str, status: int = 200, **values: object) -> web.Response:
    """The template of that name, which also gets the `status`, as an answer; rendered in a thread, for a long page takes its time."""
    body = await asyncio.to_thread(_rendered, name, {"status": status, **values})
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


def wants_fragment(request: web.Request) -> bool:
    """Whether only the changing part of the page is asked for."""
    return request.headers.get("HX-Request") == "true"
