"""A link holds the whole state of a page; back and forward go through the pages as they were."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import LESSON, VIEWS

STATE = """() => [...document.querySelectorAll('main figure')].map(figure => ({
  id: figure.id,
  says: figure.querySelector('.says')?.textContent.replace(/\\s+/g, ' ').trim(),
  values: [...figure.querySelectorAll('[data-value]')].map(one => Number(one.dataset.value)),
}))"""


def move_everything(page: Page) -> int:
    """Move every slider, turn every switch and take the last of every choice; how many there were."""
    moved = 0
    for slider in page.locator("main input[type=range]:visible:enabled").all():
        slider.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        moved += 1
    for switch in page.locator("main [role=switch]:visible:enabled").all():
        switch.press("Space")
        moved += 1
    for choice in page.locator("main select:visible:enabled").all():
        # What can be chosen may hang on what was chosen before.
        page.wait_for_function("() => !document.querySelector('main figure[aria-busy=true]')")
        options = choice.locator("option:not([disabled])").all()
        if len(options) > 1 and "model" not in (choice.get_attribute("aria-label") or "").lower():
            choice.select_option(index=len(options) - 1)
            moved += 1
    return moved


@pytest.mark.parametrize("route", [*LESSON[:8], "/cost"])
def test_a_link_restores_the_exact_state(opened: Opener, route: str) -> None:
    watched = opened("reduced")
    page = watched.open(route)
    assert move_everything(page), "nothing to move"
    page.wait_for_timeout(600)  # what is typed or dragged is written into the address after a moment
    watched.settle()
    there = opened("reduced")
    other = there.open(page.url.removeprefix(watched.origin))
    assert other.url == page.url
    assert other.evaluate(STATE) == page.evaluate(STATE)


def test_back_and_forward_find_pages_as_they_were(opened: Opener) -> None:
    watched = opened("reduced")
    page = watched.open("/learn/3-attention?q=1&mask=causal")
    before = page.evaluate(STATE)
    page.get_by_role("link", name="Explore", exact=True).first.click()
    page.wait_for_url("**/explore**")
    watched.settle()
    page.go_back()
    page.wait_for_url("**/learn/3-attention**")
    watched.settle()
    assert "q=1" in page.url and "mask=causal" in page.url
    assert page.evaluate(STATE) == before
    page.go_forward()
    page.wait_for_url("**/explore**")


@pytest.mark.parametrize("route", ["/learn/3-attention", *VIEWS[:3]])
@pytest.mark.parametrize(
    "query",
    [
        "q=99&k=-1&beta=1e999&mask=%00&step=<script>alert(1)</script>",
        "v=2&unknown=1&q=NaN&scale=perhaps",
        "text=" + "%F0%9F%92" + "&pos=1e9&l=-3&h=999",
    ],
)
def test_a_hostile_link_shows_the_page_all_the_same(opened: Opener, route: str, query: str) -> None:
    page = opened().open(f"{route}?{query}")
    assert page.locator("main figure").count() >= 1
    assert page.locator("main figure .says").first.inner_text().strip()
