"""One Chromium for each module: its launch costs more than most tests."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> "AsyncIterator[Browser]":
    from playwright.async_api import async_playwright

    from tests.browser.watching import CHROMIUM, FLAGS

    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()
