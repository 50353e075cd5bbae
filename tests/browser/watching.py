"""A page in a real browser, and whatever happens in it that must not."""

import shutil
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: no browser tests")
from playwright.async_api import ConsoleMessage, Page, Request, expect  # noqa: E402

from tests.waiting import until_told  # noqa: E402

expect.set_options(timeout=30_000)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SHOTS = Path(__file__).parent / "shots"
NAMELESS = (
    "[...document.querySelectorAll('button, input, select, textarea, summary, a, [tabindex=\"0\"]')].filter(e => "
    "!(e.textContent.trim() || e.ariaLabel || e.getAttribute('aria-labelledby') || e.labels?.length))"
    ".map(e => e.outerHTML)"
)

NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM on this machine: the console's pages go untested"),
]


class Watched:
    """One page of a site at `base`. `wrong` holds console errors, foreign requests and failed ones."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda r: r.url.startswith(base) or self.wrong.append(f"foreign: {r.url}"))
        page.on("requestfailed", self._failed)

    def _said(self, message: ConsoleMessage) -> None:
        cut_off = message.text.startswith(("htmx:sendAbort", "htmx:afterRequest"))  # by a navigation; others say more
        if message.type in ("error", "warning") and not cut_off:
            self.wrong.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        # What a navigation cuts off is aborted, and now and then a stream that was read to its very end.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"failed: {request.url} {request.failure}")

    async def shot(self, name: str, *, whole: bool = False) -> None:
        SHOTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)

    async def settled(self) -> None:
        """Asked from outside: a page that polls itself would need what its policy forbids."""
        still = (
            "document.readyState === 'complete' && !document.querySelector('.htmx-request, [hx-trigger=load]:empty')"
        )
        await until_told(lambda: self.page.evaluate(still), True)

    async def fits(self) -> None:
        wide = await self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px too wide"

    async def named(self) -> None:
        nameless = await self.page.evaluate(NAMELESS)
        assert nameless == []


__all__ = ["CHROMIUM", "FLAGS", "NEEDS_CHROMIUM", "SHOTS", "Watched", "expect"]
