"""Every number that a view of the explorer writes says where it comes from: formula, values put in, their place."""

from __future__ import annotations

import pytest

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import FAMILIES, VIEWS

UNTOLD = """() => [...document.querySelectorAll('main span.num')].map(
  one => `${one.textContent} in: ${one.parentElement.textContent.trim().slice(0, 90)}`)"""
TOLD = "main button.num, main .bars button.number, main .reading button"
CARD = """() => {
  const card = document.querySelector('[role=tooltip]');
  const part = name => card?.querySelector(name)?.textContent.trim() ?? '';
  return { formula: part('.formula'), put: part('.put'), value: part('.value'), from: part('.from') };
}"""
PAGES = (
    *(view for view in VIEWS if not view.endswith("generate")),
    "/explore/clear-gpt/attention?v=1&dot=1",
    "/explore/clear-gpt/predict?v=1&next.by=head&next.t=0.7&next.k=9",
    "/explore/clear-gpt/generate?v=1&write.on=1&write.n=3&write.t=0.8",
    "/explore/clear-gpt/ablate?v=1&ablate.off=3.1,2.mlp",
    "/explore/clear-gpt/shapes?v=1&tap=layers.2.mixer.z",
    "/explore/clear-vit/picture",
    "/explore/clear-vit/picture?v=1&heat=rollout",
    "/compare",
    *FAMILIES,
)
MOST = 24
"""Numbers of a page that are visited: the first ones, and then some of all the others."""


@pytest.mark.parametrize("route", PAGES)
def test_every_number_says_where_it_comes_from(opened: Opener, route: str) -> None:
    page = opened("reduced").open(route)
    page.wait_for_selector(TOLD)
    assert page.evaluate(UNTOLD) == [], "these numbers tell nothing"
    numbers = page.locator(TOLD).all()
    step = max(1, len(numbers) // MOST)
    for number in numbers[::step]:
        number.focus()
        # KaTeX is fetched when the first formula is asked for.
        page.wait_for_selector("[role=tooltip] .formula .katex")
        told = page.evaluate(CARD)
        assert all(told.values()), f"{number.text_content()} of {route} tells too little: {told}"
        for word in ("undefined", "NaN", "null", "Infinity", "[object"):
            assert not any(word in text for text in told.values()), told
