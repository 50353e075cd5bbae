"""HTTP for one address that is asked again and again: aiohttp, with nothing above it that a server of models needs not.

The package openai (3.57.0) takes for each request, beside sending it, about twice the time of sending it: it merges
headers and options that never change, joins and parses an address that never changes, and walks through its retries.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

MOST_BYTES = 8 << 20
"""The most that is read of one answer; reading more raises ValueError."""


class ModelHttp:
    """Posts ready bodies to `url`, with `headers` and over at most so many `connections` at a time.

    Proxies are those of the environment. No time-outs: whoever asks has its own. Belongs to one event loop; close it,
    or its connections are reported at the end.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, connections: int) -> None:
        self._url = URL(url)
        self._headers = CIMultiDict(headers)
        self._connections = connections
        self._proxy = environment_proxy(url)
        self._session: aiohttp.ClientSession | None = None

    def post(self, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The response, its body unread (see `pieces`). Entering it raises aiohttp.ClientError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session.post(self._url, data=body, headers=self._headers, proxy=self._proxy)

    async def close(self) -> None:
        """Closes the connections; asked again it opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def environment_proxy(url: str) -> str | None:
    """The environment's proxy for this address (``HTTPS_PROXY``, ``NO_PROXY`` …)."""
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc):
        return None
    known = getproxies()
    proxy = known.get(parts.scheme) or known.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


async def pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The bytes of an answer as they come. Raises ValueError where they are too many, and aiohttp.ClientError."""
    left = MOST_BYTES
    while piece := await response.content.readany():
        left -= len(piece)
        if left < 0:
            response.close()
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
        yield piece


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """All bytes of an answer; raises as `pieces` does."""
    return b"".join([piece async for piece in pieces(response)])
