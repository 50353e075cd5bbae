"""The HTTP client below the SDK, for one address that is asked again and again."""

from collections.abc import Sequence
from typing import Any

import httpx2
from openai import DefaultAioHttpClient


class ModelHttp(DefaultAioHttpClient):
    """The SDK's client over aiohttp; it puts a request together without parsing the same address and defaults each time."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._known: dict[str, httpx2.URL] = {}

    def build_request(  # type: ignore[override]  # the keys that the SDK gives for a request with a ready body
        self,
        method: str,
        url: httpx2.URL | str,
        *,
        headers: Sequence[tuple[str, str]],
        content: bytes,
        **more: Any,
    ) -> httpx2.Request:
        """See httpx2.AsyncClient. No cookies, no defaults of the client's own beside what the SDK says; no time-outs."""
        known = self._known.get(str(url))
        if known is None:
            known = self._known[str(url)] = httpx2.URL(url)
        return httpx2.Request(method, known, headers=headers, content=content, extensions={"timeout": {}})
