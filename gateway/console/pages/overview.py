"""The overview: a line for each channel, model, store and agent; what needs attention first."""

from aiohttp import web

from gateway.console.backend import ConsoleBackend
from gateway.console.overview import agent_of, agents_failing_first, overview, tallies
from gateway.console.templating import Clock, page, wants_fragment
from gateway.tracing.trace import TraceQuery

_RECENT = 500
"""Of so many messages the figures are."""


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
        now = self._clock()
        state = overview(await self._backend.status(), now)
        recent = (await self._backend.traces(TraceQuery(), None, _RECENT)).traces
        by_agent = tallies(recent, agent_of)
        return await page(
            "_overview.html" if wants_fragment(request) else "overview.html",
            here="overview",
            state=state,
            now=now,
            recent=len(recent),
            by_channel=tallies(recent, lambda trace: trace.entry),
            by_agent=by_agent,
            agents=agents_failing_first(self._backend.agents(), by_agent),
        )
