"""The pages a browser gets: chat, login, and the static files they are made of."""

import html
from importlib import resources

from aiohttp import web

from gateway.console.api import BadRequest
from gateway.console.auth import Logins, Verdict
from gateway.console.guard import Guard

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
_FILES = {
    file.name: file.read_bytes()
    for file in resources.files("gateway.console").joinpath("static").iterdir()
    if file.name.rpartition(".")[2] in _TYPES
}
_TELLING = {
    Verdict.WRONG: (401, "令牌不对，或登录链接已经用过、过期。"),
    Verdict.THROTTLED: (429, "失败次数过多，请一分钟后再试。"),
}


def _page(name: str, message: str = "", status: int = 200) -> web.Response:
    text = _FILES[name].decode().replace("<!-- message -->", html.escape(message))
    return web.Response(text=text, status=status, content_type="text/html")


class Pages:
    """Handlers of the pages. Static files were read at import: no path of a request reaches a file."""

    def __init__(self, logins: Logins, guard: Guard) -> None:
        self._logins = logins
        self._guard = guard

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_route("GET", "/", self.chat)
        app.router.add_route("GET", "/login", self.login_page)
        app.router.add_route("POST", "/login", self.login)
        app.router.add_route("POST", "/logout", self.logout)
        app.router.add_route("GET", "/static/{name}", self.static)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """The web chat."""
        return _page("chat.html")

    async def static(self, request: web.Request) -> web.StreamResponse:
        """One of the files the pages are made of."""
        name = request.match_info["name"]
        if name not in _FILES or name.endswith(".html"):
            raise web.HTTPNotFound
        return web.Response(body=_FILES[name], content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")

    async def login_page(self, request: web.Request) -> web.StreamResponse:
        """The form; or, with a one-time code, straight in, so that the code stays in no history."""
        code = request.query.get("once")
        if code is None:
            return _page("login.html")
        return self._entered(request, self._logins.redeem(code, self._guard.sender(request).peer))

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Takes the form."""
        if request.content_type != "application/x-www-form-urlencoded":
            raise BadRequest(415, "请用登录页登录")
        token = (await request.post()).get("token")
        text = token.strip() if isinstance(token, str) else ""
        return self._entered(request, self._logins.present(text, self._guard.sender(request).peer))

    def _entered(self, request: web.Request, verdict: Verdict) -> web.StreamResponse:
        if verdict is not Verdict.RIGHT:
            status, message = _TELLING[verdict]
            return _page("login.html", message, status)
        name = self._guard.cookie_name(request)
        self._logins.close_session(request.cookies.get(name, ""))
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            name,
            self._logins.open_session(),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self._guard.sender(request).tls,
        )
        return response

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """Ends the session."""
        name = self._guard.cookie_name(request)
        self._logins.close_session(request.cookies.get(name, ""))
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(name, path="/", httponly=True, samesite="Strict")
        return response
