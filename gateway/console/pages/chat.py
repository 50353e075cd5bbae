"""The live chat: the web channel, and beside each answer what happened on its way."""

from aiohttp import web

from gateway.console.templating import page


class ChatPage:
    """The handler of ``/``."""

    def add_to(self, app: web.Application) -> None:
        """Adds the route."""
        app.router.add_route("GET", "/", self.show)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The page; its script asks the API."""
        return await page("chat.html", here="chat")
