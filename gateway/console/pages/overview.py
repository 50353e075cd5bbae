"""The overview: a line for each channel, model, store and agent; what needs attention first."""

from aiohttp import web

from gateway.console.backend import ConsoleBackend
from gateway.console.overview import overview
from gateway.console.templating import Clock, page, wants_fragment


class OverviewPage:
    """The handler of ``/overview``. `clock` gives unix seconds."""

    def __init__(self, backend: ConsoleBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    def add_to(self, app: web.Application) -> None:
        """Adds the route."""
        app.router.add_route("GET", "/overview", self.show)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The page; the part that changes asks for itself anew."""
        state = overview(await self._backend.status(), self._clock())
        name = "_overview.html" if wants_fragment(request) else "overview.html"
        return await page(name, here="overview", state=state, agents=self._backend.agents())
