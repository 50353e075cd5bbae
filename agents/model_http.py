"""The HTTP client below the SDK, for one address that is asked again and again: aiohttp, and as little as can be above it.

What httpx2.AsyncClient does for every request (merging defaults, cookies, authentication flows, hooks, redirects) costs
more than the request itself and means nothing to a server of models.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2

MOST_BYTES = 8 << 20
"""The most that is read of one answer; reading more raises ValueError."""


class ModelHttp(httpx2.AsyncClient):
    """What the SDK needs of its client. Proxies are those of the environment. Raises aiohttp.ClientError.

    No time-outs: whoever asks has its own. Close it (`aclose`), or its connections are reported at the end.
    """

    def __init__(self, *, connections: int) -> None:
        """At most so many connections at a time."""
        super().__init__(timeout=None, transport=_Nothing())
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._known: dict[str, httpx2.URL] = {}
        self._proxies: dict[str, str | None] = {}

    def build_request(  # type: ignore[override]  # the keys that the SDK gives for a request with a ready body
        self,
        method: str,
        url: httpx2.URL | str,
        *,
        headers: Sequence[tuple[str, str]],
        content: bytes,
        **more: Any,
    ) -> httpx2.Request:
        """A request with these headers and no others."""
        address = str(url)
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = httpx2.URL(address)
        return httpx2.Request(method, known, headers=headers, content=content)

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """The response, unread. It is to be read to its end or closed."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # httpx2.Response does that
            )
        got = await self._session.request(
            request.method,
            str(request.url),
            headers=request.headers,
            data=request.content,
            proxy=self._proxy(request.url),
        )
        return httpx2.Response(got.status, headers=got.raw_headers, stream=_Body(got), request=request)

    def _proxy(self, url: httpx2.URL) -> str | None:
        """The environment's proxy for this address (``HTTPS_PROXY``, ``NO_PROXY`` …), looked up once."""
        place = f"{url.scheme}://{url.netloc.decode()}"
        if place not in self._proxies:
            known = getproxies()
            proxy = None if proxy_bypass(url.netloc.decode()) else known.get(url.scheme) or known.get("all")
            self._proxies[place] = f"http://{proxy}" if proxy and "://" not in proxy else proxy
        return self._proxies[place]

    async def aclose(self) -> None:
        """Closes the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await super().aclose()


class _Body(httpx2.AsyncByteStream):
    """The bytes of a response as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        try:
            async for piece in self._response.content.iter_any():
                left -= len(piece)
                if left < 0:
                    raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
                yield piece
        except BaseException:
            self._response.close()
            raise

    async def aclose(self) -> None:
        self._response.release()


class _Nothing(httpx2.AsyncBaseTransport):
    """Stands where httpx2 would make a transport of its own, and read certificates for it."""
