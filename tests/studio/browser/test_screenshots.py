"""A page looks the same every time: pixels of two visits are compared, with times of computation hidden."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import LESSON, OTHERS, VIEWS

HIDE = ".ms { visibility: hidden !important; } * { caret-color: transparent !important; }"
LOOKS: dict[str, dict[str, object]] = {
    "light": {"reduced_motion": "reduce"},
    "dark": {"reduced_motion": "reduce", "color_scheme": "dark"},
    "phone": {"reduced_motion": "reduce"},
}
TOLERANCE = 1e-3
"""The share of pixels that may differ."""


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("route", [*LESSON, *VIEWS, *OTHERS])
def test_two_visits_look_the_same(opened: Opener, route: str, look: str) -> None:
    first, second = (picture(opened, route, look) for _ in range(2))
    assert first.shape == second.shape
    assert float((first != second).any(-1).mean()) <= TOLERANCE


def picture(opened: Opener, route: str, look: str) -> np.ndarray:
    watched = opened(look, **LOOKS[look])
    page = watched.open(route)
    page.add_style_tag(content=HIDE)
    watched.settle()
    with Image.open(io.BytesIO(page.screenshot(full_page=True))) as image:
        return np.asarray(image.convert("RGB"))
