"""A Studio as its user starts it, and a Chromium to look at it with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from tests.studio.conftest import CHROMIUM

STATIC = Path(__file__).parents[3] / "clearhead" / "studio" / "static"
QUIET = """() => {
  const busy = document.querySelector('[aria-busy=true]') || document.fonts.status !== 'loaded';
  const now = performance.now();
  if (busy || !window.quietSince) window.quietSince = busy ? 0 : now;
  return !busy && now - window.quietSince > 400;
}"""
VARIANTS: dict[str, dict[str, object]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "forced": {"forced_colors": "active"},
    "reduced": {"reduced_motion": "reduce"},
}
"""What a page is looked at with: the settings of a browser's context."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of these tests starts nothing by itself but uses a browser and a server of its process."""
    reason = None
    if CHROMIUM is None:
        reason = "there is no Chromium on this machine: install the package chromium"
    elif os.environ.get("CLEARHEAD_SKIP_FRONTEND", "0") not in ("", "0"):
        reason = "CLEARHEAD_SKIP_FRONTEND leaves the Studio's pages out"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Served:
    """A Studio that runs: its address, and the link that lets a browser in."""

    origin: str
    link: str


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    built = (STATIC / "index.html").is_file()
    assert built, "the Studio's pages are not built: install the project where the npm registry can be reached"
    process = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "studio", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path_factory.mktemp("studio"),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Where the tests run in the background, the signal by which it is stopped is ignored in its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        link = json.loads(line)["url"]
        parts = urlsplit(link)
        yield Served(origin=f"{parts.scheme}://{parts.netloc}", link=link)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert code in (0, 130), "the Studio did not end quietly"


@dataclass
class Watched:
    """A page, and what went wrong on it."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def on_request(self, request: Request) -> None:
        inside = (self.origin, self.origin.replace("http", "ws"), "data:", "blob:")
        if not request.url.startswith(inside):
            self.complaints.append(f"a request leaves the machine: {request.url}")

    def open(self, path: str, timeout: float = 60_000) -> Page:
        """Go to a page and wait until every figure on it shows its numbers."""
        self.page.goto(self.origin + path, wait_until="load")
        self.settle(timeout)
        return self.page

    def settle(self, timeout: float = 60_000) -> None:
        """Wait until nothing on the page is at work, and has not been for a moment."""
        self.page.wait_for_selector("main h1", timeout=timeout)
        self.page.wait_for_function(QUIET, timeout=timeout)


Opener = Callable[..., Watched]


@pytest.fixture
def opened(served: Served, chromium: Browser) -> Iterator[Opener]:
    """Make a page that watches itself; what went wrong on it fails the test."""
    made: list[Watched] = []

    def make(variant: str = "light", **settings: object) -> Watched:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **VARIANTS[variant], **settings})
        page = context.new_page()
        watched = Watched(page, served.origin)
        page.on("console", watched.on_console)
        page.on("pageerror", lambda error: watched.complaints.append(f"error: {error}"))
        page.on("request", watched.on_request)
        page.goto(served.link)
        made.append(watched)
        return watched

    yield make
    for one in made:
        one.page.context.close()
    assert [complaint for one in made for complaint in one.complaints] == []
