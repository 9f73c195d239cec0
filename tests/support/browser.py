"""A real browser, Chromium, driven by playwright (the extra `browser`).

Tests that import this are skipped where one of them is missing. `axe-core` is looked for in the cache folder:
npm install --prefix ~/.cache/gbnf/axe-core axe-core
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.system.folders import cache_folder

sync_api: Any = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium", allow_module_level=True)

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_ARGUMENTS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
_PATIENCE_MS = 180_000  # of a machine that does much else, so that only what never happens fails

AXE = cache_folder() / "axe-core" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS, timeout=_PATIENCE_MS)
        yield browser
        browser.close()


def new_context(browser: Any, **options: Any) -> Any:
    """A context of its own, with much patience."""
    context = browser.new_context(**options)
    context.set_default_timeout(_PATIENCE_MS)
    sync_api.expect.set_options(timeout=_PATIENCE_MS)
    return context


def wait_until_idle(page: Any) -> None:
    """Wait for what the page has asked the server.

    `wait_for_function` would evaluate its text in the page again and again, which the page's policy refuses.
    """
    page.wait_for_selector("body:not(:has([aria-busy]))")


def served(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a page while it is served."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gbnf_server", "inspect", "--no-open", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env={**os.environ, "GBNF_CONFIG": ""},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Watched:
    """A page with what went wrong in it, and where its requests went."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def check(self, url: str) -> None:
        assert self.errors == []
        home = url.partition("?")[0]
        assert [one for one in self.requests if not one.startswith((home, "data:,"))] == []
        assert self.page.title() != "wrong"


def check_accessibility(page: Any, *rules: str) -> None:
    """No serious violation of the rules, or of any, in what the page shows. It has axe-core already."""
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []


def check_states(
    browser: Any,
    url: str,
    states: Callable[[Any], Iterator[None]],
    *,
    width: int,
    scheme: str,
    axe: bool,
) -> None:
    """The page fits the width in each of its states, without errors.

    `axe`: and axe-core, if it is installed, finds no serious violation.
    """
    axe = axe and AXE.is_file()
    viewport = {"width": width, "height": 2 * width if width < 1000 else width // 2}
    context = new_context(browser, viewport=viewport, color_scheme=scheme, bypass_csp=axe)
    watched = Watched(context)
    page = watched.page
    page.goto(url)
    if axe:
        page.evaluate(AXE.read_text("utf-8"))
    for _ in states(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if axe:
            check_accessibility(page)
    watched.check(url)
    context.close()


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    context = new_context(browser, viewport={"width": 1280, "height": 800})
    yield Watched(context)
    context.close()
