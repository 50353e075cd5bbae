"""The login page: by token, or by a one-time link; and the way out."""

from aiohttp import web

from gateway.console.api import form_of
from gateway.console.auth import Logins, Verdict
from gateway.console.guard import Guard
from gateway.console.templating import page

_TELLING = {
    Verdict.WRONG: (401, "令牌不对，或登录链接已经用过、过期。"),
    Verdict.THROTTLED: (429, "失败次数过多，请一分钟后再试。"),
}


class LoginPage:
    """Handlers of ``/login`` and ``/logout``."""

    def __init__(self, logins: Logins, guard: Guard) -> None:
        self._logins = logins
        self._guard = guard

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_route("GET", "/login", self.show)
        app.router.add_route("POST", "/login", self.login)
        app.router.add_route("POST", "/logout", self.logout)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The form; or, with a one-time code, straight in, so that the code stays in no history."""
        code = request.query.get("once")
        if code is None:
            return await page("login.html", message="")
        return await self._entered(request, self._logins.redeem(code, self._guard.sender(request).peer))

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Takes the form."""
        token = (await form_of(request)).get("token", "")
        return await self._entered(request, self._logins.present(token.strip(), self._guard.sender(request).peer))

    async def _entered(self, request: web.Request, verdict: Verdict) -> web.StreamResponse:
        if verdict is not Verdict.RIGHT:
            status, message = _TELLING[verdict]
            return await page("login.html", status, message=message)
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
