"""What a figure shows is what the library computes: the Python that it offers for copying is taken from the page and
run here, and every number that it prints stands on the page.
"""

from __future__ import annotations

import re

import pytest

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import FAMILIES, LESSON, VIEWS
from tests.studio.snippets import printed_by

SHOWN = """figure => [...figure.querySelectorAll('[data-printed]')].map(
  one => [Number(one.dataset.printed), Number(one.dataset.value),
    one.textContent.trim() || one.getAttribute('aria-label')])"""
ANSWERED = "/learn/check?v=1&a=0,0,0,0,0,0"
"""The check has figures where its scenarios are answered."""
COMPUTING = ("/cost", "/compare", *(ANSWERED if "check" in page else page for page in LESSON), *VIEWS, *FAMILIES)
"""The pages whose figures are computed."""
STARTS = re.compile("^(Sweep|Write|Measure the heads|Compute it|Ask Gemma)$")
"""What a reader presses where a figure takes long and waits to be asked."""


@pytest.mark.parametrize("route", COMPUTING)
def test_what_the_copied_python_prints_is_what_the_page_shows(opened: Opener, route: str) -> None:
    watched = opened()
    page = watched.open(route)
    for button in page.locator("main").get_by_role("button", name=STARTS).all():
        button.click()
    page.wait_for_function("() => [...document.querySelectorAll('pre[data-python]')].some(one => one.textContent)")
    watched.settle()
    figures = page.locator("main figure:has(pre[data-python])")
    checked = 0
    for figure in figures.all():
        name, python = figure.get_attribute("id"), figure.locator("pre[data-python]").text_content() or ""
        if not python.strip():
            continue
        shown: dict[int, float] = {}
        for index, value, text in figure.evaluate(SHOWN):
            assert shown.setdefault(index, value) == value, f"{name}: number {index} is shown as two values"
            assert text, f"{name}: number {index} is on the page but can't be read"
        printed = printed_by(python)
        assert printed, f"{name}: its code prints no number"
        assert sorted(shown) == list(range(len(printed))), f"{name}: not every number that the code prints is shown"
        assert [shown[index] for index in range(len(printed))] == pytest.approx(printed, rel=1e-6, abs=1e-6), name
        checked += 1
    assert checked, "no figure of this page offers code"
