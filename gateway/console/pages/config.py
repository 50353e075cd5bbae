"""The configuration: the files without secrets, checked against what runs; taken over on request."""

from aiohttp import web

from gateway.console.backend import ConsoleBackend
from gateway.console.templating import page


class ConfigPage:
    """Handlers of ``/config`` and of its parts."""

    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_route("GET", "/config", self.show)
        app.router.add_route("GET", "/config/state", self.state)
        app.router.add_route("POST", "/config/reload", self.reload)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The files; the part that compares them asks for itself."""
        return await page("config.html", here="config", files=await self._backend.config_files())

    async def state(self, request: web.Request) -> web.StreamResponse:
        """The files as they are now against what runs."""
        return await page("_config.html", state=await self._backend.config_state(), taken=None)

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """Takes the files over, if they are good; what became of it."""
        taken = await self._backend.reload_config()
        return await page("_config.html", state=await self._backend.config_state(), taken=taken)
