"""The console as one aiohttp application: the guard, the API, the pages."""

import time

from aiohttp import web

from gateway.console.api import HEARTBEAT_SECONDS, Api, errors_told
from gateway.console.auth import ONCE_SECONDS, Clock, Logins
from gateway.console.backend import ConsoleBackend
from gateway.console.guard import Guard, harden
from gateway.console.pages.chat import ChatPage
from gateway.console.pages.config import ConfigPage
from gateway.console.pages.conversations import ConversationPage, ConversationsPage
from gateway.console.pages.files import Files
from gateway.console.pages.login import LoginPage
from gateway.console.pages.overview import OverviewPage
from gateway.console.pages.traces import TracesPage
from gateway.console.trace_api import TraceApi
from gateway.server import new_application

MAX_BODY = 1024 * 1024


class Console:
    """Builds the application once. `host` is the address it will listen on; `token` must not be empty.

    Raises ValueError for an empty token or a trusted proxy that is no address or network.
    """

    def __init__(
        self,
        backend: ConsoleBackend,
        *,
        token: str,
        host: str,
        trusted_proxies: tuple[str, ...] = (),
        max_body: int = MAX_BODY,
        heartbeat: float = HEARTBEAT_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._logins = Logins(token, clock=clock)
        guard = Guard(self._logins, host, trusted_proxies)
        self._app = new_application(max_body, [guard.middleware, errors_told])
        self._app.on_response_prepare.append(harden)
        Api(backend, heartbeat=heartbeat).add_to(self._app)
        TraceApi(backend).add_to(self._app)
        for part in (
            Files(),
            LoginPage(self._logins, guard),
            ChatPage(),
            OverviewPage(backend, time.time),
            ConversationsPage(backend),
            ConversationPage(backend),
            ConfigPage(backend),
            TracesPage(backend),
        ):
            part.add_to(self._app)

    @property
    def app(self) -> web.Application:
        """What a Listener serves."""
        return self._app

    def login_path(self, lifetime: float = ONCE_SECONDS) -> str:
        """The path and query of a new login link: good once, for `lifetime` seconds."""
        return f"/login?once={self._logins.make_once(lifetime)}"
