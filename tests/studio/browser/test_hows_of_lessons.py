"""Every number of the lesson, of the costs and of the claims says where it comes from."""

from __future__ import annotations

import pytest

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import LESSON
from tests.studio.browser.test_hows import CARD

ANSWERED = "/learn/check?v=1&a=0,0,0,0,0,0"
"""The check has figures where its scenarios are answered."""
PAGES = (*(ANSWERED if "check" in page else page for page in LESSON), "/cost", "/claims", "/claims/ten-words")
MOST = 30
"""Numbers of a page that are visited: some of all, from its beginning to its end."""
WRONG = ("undefined", "NaN", "null", "Infinity", "[object")


@pytest.mark.parametrize("route", PAGES)
def test_every_number_says_where_it_comes_from(opened: Opener, route: str) -> None:
    page = opened("reduced").open(route)
    page.wait_for_selector("main button.num")
    numbers = [one for one in page.locator("main button.num").all() if one.is_visible()]
    assert numbers
    for number in numbers[:: max(1, len(numbers) // MOST)]:
        # Some are one of many that the arrow keys go between: the pointer reaches all.
        number.scroll_into_view_if_needed()
        number.dispatch_event("pointerenter")
        page.wait_for_selector("[role=tooltip] .formula .katex")
        told = page.evaluate(CARD)
        shown = number.text_content()
        assert all(told.values()), f"{shown} of {route} tells too little: {told}"
        assert not any(word in text for text in told.values() for word in WRONG), f"{shown} of {route}: {told}"
        assert page.locator("[role=tooltip] .katex-error").count() == 0, f"{shown} of {route}: {told['formula']}"
        number.dispatch_event("pointerleave")
