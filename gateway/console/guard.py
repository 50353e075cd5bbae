"""The one door of the console: every request passes Host, origin and login here before any handler."""

import ipaddress
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.console.auth import Logins, Verdict
from gateway.server import Handler

logger = logging.getLogger("sanqiao.console")

OPEN = frozenset({"/login", "/static/{name}"})
"""Resources that need no login; whatever is not named here does."""

_PAGES = frozenset({"/", "/overview", "/conversations", "/conversations/{id}", "/traces", "/traces/{trace}", "/config"})
"""Whoever opens one of these without login is shown where to log in."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NETLOC = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?")
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it, browsers send `Origin: null` from the login form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


async def harden(request: web.Request, response: web.StreamResponse) -> None:
    """Puts the security headers on every answer, errors and streams too."""
    response.headers.update(HEADERS)


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """UTF-8 JSON; half characters, which UTF-8 has no form for, become ``?``."""
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def refusal(request: web.Request, status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """An answer without content: JSON below /api, one line of text elsewhere."""
    if request.path.startswith("/api/"):
        return json_response({"error": message}, status, headers)
    return web.Response(text=message, status=status, headers=headers)


@dataclass(frozen=True, slots=True)
class Sender:
    """Where a request comes from, as far as it can be believed.

    `peer` is who is counted by the throttle. `host` is the console's name as the browser wrote it, `forwarded` whether
    a trusted proxy says so. `tls`: the browser speaks TLS.
    """

    peer: str
    host: str
    forwarded: bool
    tls: bool


class Guard:
    """Decides on every request. `host` is the address the console listens on, `trusted_proxies` addresses or networks.

    Raises ValueError for a proxy that is neither.
    """

    def __init__(self, logins: Logins, host: str, trusted_proxies: Sequence[str] = ()) -> None:
        self._logins = logins
        self._any_address = host in _ANY_ADDRESS
        own = f"[{host}]" if ":" in host else host.lower()
        self._own_names = frozenset({own, "localhost", "127.0.0.1", "[::1]"})
        self._proxies = tuple(ipaddress.ip_network(proxy, strict=False) for proxy in trusted_proxies)

    @staticmethod
    def cookie_name(request: web.Request) -> str:
        """Cookies know no ports: two gateways on one machine need two names."""
        return f"sanqiao-{_local_port(request)}"

    def sender(self, request: web.Request) -> Sender:
        """Reads `X-Forwarded-*` only when a trusted proxy is at the other end."""
        peer = request.remote or ""
        if not self._trusted(peer):
            return Sender(_counted(peer), request.headers.get("Host", "").lower(), False, request.secure)
        chain = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
        client = next((hop for hop in reversed(chain) if not self._trusted(hop)), peer)
        forwarded = request.headers.get("X-Forwarded-Host", "").split(",")[0].strip().lower()
        tls = bool(forwarded) and request.headers.get("X-Forwarded-Proto", "https").lower() == "https"
        host = forwarded or request.headers.get("Host", "").lower()
        return Sender(_counted(client), host, bool(forwarded), request.secure or tls)

    def _trusted(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self._proxies)

    def _own_host(self, request: web.Request, sender: Sender) -> bool:
        found = _NETLOC.fullmatch(sender.host)
        if not found:
            return False
        if sender.forwarded:
            return True
        name, port = found[1], int(found[2] or 80)
        if port != _local_port(request):
            return False
        # A rebound DNS name is never an address, so addresses are safe where any may be ours.
        return name in self._own_names or (self._any_address and _is_address(name))

    @staticmethod
    def _own_origin(request: web.Request, sender: Sender) -> bool:
        site = request.headers.get("Sec-Fetch-Site", "").lower()
        if site == "cross-site" or (site == "same-site" and request.method not in _SAFE):
            return False
        origin = request.headers.get("Origin")
        return origin is None or origin.lower() in (f"http://{sender.host}", f"https://{sender.host}")

    def _login(self, request: web.Request, sender: Sender) -> Verdict | None:
        """None: no credentials at all."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return self._logins.present(token.strip(), sender.peer)
        session = request.cookies.get(self.cookie_name(request), "")
        if session and self._logins.session_alive(session):
            return Verdict.RIGHT
        return None

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Host, then origin, then login; only then the handler."""
        sender = self.sender(request)
        if not self._own_host(request, sender):
            logger.info("console_refused reason=host peer=%s host=%s", sender.peer, ascii(sender.host[:100]))
            return refusal(
                request,
                403,
                "403：不是控制台自己的地址；经反向代理访问时，代理须在 console.trusted-proxies 里并传 X-Forwarded-Host",
            )
        if not self._own_origin(request, sender):
            logger.info("console_refused reason=origin peer=%s", sender.peer)
            return refusal(request, 403, "403：不接受来自其他网站的请求；请在地址栏直接打开控制台")
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in OPEN:
            return await handler(request)
        verdict = self._login(request, sender)
        if verdict is Verdict.RIGHT:
            if request.method in _SAFE:
                return await handler(request)
            return await _recorded(request, handler, sender, resource.canonical if resource else "-")
        if verdict is Verdict.THROTTLED:
            return refusal(request, 429, "失败次数过多，请一分钟后再试", {"Retry-After": "60"})
        if verdict is Verdict.WRONG:
            logger.warning("console_refused reason=token peer=%s", sender.peer)
        if request.headers.get("HX-Request") == "true":  # a part of a page whose login has ended
            return refusal(request, 401, "需要重新登录", {"HX-Redirect": "/login"})
        if request.method in _SAFE and resource is not None and resource.canonical in _PAGES:
            raise web.HTTPFound("/login")
        return refusal(request, 401, "需要登录：请带上控制台令牌", {"WWW-Authenticate": "Bearer"})


async def _recorded(request: web.Request, handler: Handler, sender: Sender, route: str) -> web.StreamResponse:
    """One line for everything that may change something: where, who, and what came of it (``-``: no answer)."""
    status = "-"
    try:
        response = await handler(request)
        status = str(response.status)
        return response
    except web.HTTPException as error:
        status = str(error.status)
        raise
    finally:
        logger.info("console_write route=%s peer=%s status=%s", route, sender.peer, status)


def _local_port(request: web.Request) -> int:
    address = request.transport.get_extra_info("sockname") if request.transport else None
    return int(address[1]) if address else 0


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _counted(peer: str) -> str:
    """One household of IPv6 addresses counts as one peer."""
    try:
        ip = ipaddress.ip_address(peer)
    except ValueError:
        return "?"
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)
