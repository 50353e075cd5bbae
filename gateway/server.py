"""HTTP listeners: what every request meets first (size, time, one border for errors), and the public routes."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from channels.channel import Route
from channels.message import GatewayClosed

logger = logging.getLogger("sanqiao.server")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rejected = Callable[[str, int], None]
"""Is told the route and status of a request that was turned away before anything of it was believed."""
Health = Callable[[], tuple[int, str]]
"""The status of `/healthz` and its word: ``ok``, ``degraded``, ``starting`` or ``draining``."""

BODY_SECONDS = 10.0
_LINGER_SECONDS = 2.0


class ListenFailed(Exception):
    """A listener cannot open its port; the message (Chinese) names the address and the remedy."""


class PortTaken(ListenFailed):
    """Another program listens on this port."""


class _WithoutTraceback(logging.Filter):
    """What aiohttp logs about a connection becomes one line; what it cannot even parse is the sender's affair."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            logger.debug("request_malformed error=%s", type(error).__name__)
            return False
        if error is not None:
            record.msg, record.args = "request_failed error=%s", (type(error).__name__,)
            record.exc_info = record.exc_text = None
        return True


_wire = logging.getLogger("sanqiao.server.wire")
_wire.addFilter(_WithoutTraceback())


def new_application(max_body: int, middlewares: Sequence[Middleware] = ()) -> web.Application:
    """An empty application of either listener: errors end at one border, bodies over `max_body` bytes are 413.

    `middlewares` run inside the border and before the body is read.
    """
    app = web.Application(client_max_size=max_body, middlewares=[_border, *middlewares, _bounded_body(max_body)])
    app.on_response_prepare.append(_no_banner)
    return app


async def _no_banner(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Server", None)


@web.middleware
async def _border(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where an error of a handler ends. The sender learns nothing from it but the status."""
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except GatewayClosed:
        return web.Response(status=503, text="closed", headers={"Retry-After": "5"})
    except (web.RequestPayloadError, ConnectionError):
        return web.Response(status=400, text="bad request")
    except (ValueError, RecursionError) as error:
        # What parsing raises comes from what was sent. It is our omission all the same, hence the log line.
        return _failed(request, error, 400, "bad request")
    except Exception as error:  # border: one HTTP handler
        return _failed(request, error, 500, "internal error")


def _failed(request: web.Request, error: Exception, status: int, text: str) -> web.Response:
    path = request.match_info.route.resource.canonical if request.match_info.route.resource else "?"
    logger.error("handler_failed route=%s status=%s error=%s", path, status, type(error).__name__)
    logger.debug("handler_failed route=%s", path, exc_info=error)
    return web.Response(status=status, text=text)


def _bounded_body(limit: int) -> Middleware:
    @web.middleware
    async def bounded_body(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reads the body before its handler runs, in bounded size and time; a handler's `read()` finds it there."""
        if request.match_info.http_exception is not None:
            return await handler(request)
        if request.content_length is not None and request.content_length > limit:
            raise web.HTTPRequestEntityTooLarge(limit)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        return await handler(request)

    return bounded_body


def _counting(rejected: Rejected) -> Middleware:
    @web.middleware
    async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        try:
            response = await handler(request)
        except web.HTTPException as error:
            if resource is not None and 400 <= error.status < 500:
                rejected(resource.canonical, error.status)
            raise
        if resource is not None and 400 <= response.status < 500:
            rejected(resource.canonical, response.status)
        return response

    return counting


def build_public(
    routes: Sequence[Route], health: Health, max_body: int, *, rejected: Rejected | None = None
) -> web.Application:
    """The application platforms reach: the routes of the channels, `GET` and `HEAD /healthz`, nothing else."""
    app = new_application(max_body, [_counting(rejected)] if rejected else [])

    async def healthz(request: web.Request) -> web.StreamResponse:
        status, word = health()
        return web.json_response({"status": word}, status=status)

    for route in routes:
        app.router.add_route(route.method, route.path, route.handler)
    for method in ("GET", "HEAD"):  # monitors ask either way
        app.router.add_route(method, "/healthz", healthz)
    return app


class Listener:
    """One application on one port. `key` is the part of the config that sets it, for messages.

    `grace` bounds, in seconds, how long `stop` waits for requests under way; then they are cut off.
    """

    def __init__(self, app: web.Application, host: str, port: int, *, key: str = "server", grace: float = 5.0) -> None:
        self._host, self._key = host, key
        self._wanted_port = port
        # aiohttp's own default keeps silent connections for an hour and traces every malformed request.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_wire,
            shutdown_timeout=grace,
            keepalive_timeout=75.0,
            lingering_time=_LINGER_SECONDS,
        )
        self._site: web.TCPSite | None = None

    @property
    def port(self) -> int:
        """The port listened on; after `start`, the real one where 0 was asked for."""
        return self._site.port if self._site else self._wanted_port

    async def start(self) -> None:
        """Opens the port. Raises PortTaken, ListenFailed."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._wanted_port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise self._explained(error) from None
        self._site = site
        logger.info("listening part=%s host=%s port=%s", self._key, self._host, self.port)

    def _explained(self, error: OSError) -> ListenFailed:
        where = f"{self._host}:{self._wanted_port}"
        if error.errno == errno.EADDRINUSE:
            return PortTaken(f"端口 {where} 已被占用；请结束占用它的程序，或改 {self._key}.port")
        if error.errno == errno.EACCES:
            return ListenFailed(f"没有权限监听 {where}；请把 {self._key}.port 改为 1024 以上的端口")
        return ListenFailed(
            f"无法监听 {where}（{errno.errorcode.get(error.errno or 0, '地址无效')}）；请改 {self._key}.host"
        )

    async def stop(self) -> None:
        """Closes the port, waits for requests under way within `grace`, cuts off the rest. Safe to call twice."""
        await self._runner.cleanup()
        self._site = None
