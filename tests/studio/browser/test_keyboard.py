"""A keyboard alone is enough."""

from __future__ import annotations

import pytest

from tests.studio.browser.conftest import Opener
from tests.studio.browser.routes import LESSON, OTHERS, VIEWS

CONTROLS = """() => {
  const wanted = 'a[href], button, input, select, textarea, summary, [tabindex]';
  const list = [...document.querySelectorAll(wanted)].filter(one => {
    const shown = one.checkVisibility({ checkVisibilityCSS: true, checkOpacity: false });
    // Of radio buttons of one name, and of cells with a moving focus, one alone is reached by Tab.
    const one_of_many = one.type === 'radio' && !one.checked;
    return shown && !one.disabled && one.tabIndex >= 0 && !one_of_many && !one.closest('[inert]');
  });
  list.forEach((one, n) => { one.dataset.reached = String(n); });
  return list.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return { n: one.dataset.reached ?? '', ring: ring || style.boxShadow !== 'none' || one.matches('svg *, canvas'),
    seen: box.bottom > 0 && box.top < innerHeight, what: `${one.tagName}.${one.className?.baseVal ?? one.className}` };
}"""


@pytest.mark.parametrize("route", [*LESSON, *VIEWS, *OTHERS])
def test_tab_reaches_everything_and_shows_where_it_is(opened: Opener, route: str) -> None:
    page = opened("reduced").open(route)
    count = page.evaluate(CONTROLS)
    assert count
    reached, unseen = set(), []
    for _ in range(count + 60):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUSED)
        if focus is None:
            break
        reached.add(focus["n"])
        if not (focus["ring"] and focus["seen"]):
            unseen.append(focus["what"])
    assert unseen == [], "the focus can't be seen"
    missing = [n for n in map(str, range(count)) if n not in reached]
    names = [
        page.locator(f"[data-reached='{n}']").first.evaluate("one => one.outerHTML.slice(0, 120)") for n in missing
    ]
    assert names == [], "Tab does not reach these"


def test_the_stepper_is_walked_by_keys(opened: Opener) -> None:
    watched = opened("reduced")
    page = watched.open("/learn/3-attention?q=7&step=softmax")
    said = page.locator("figure .says").first
    before = said.inner_text()
    slider = page.locator("main input[type=range]").first
    slider.focus()
    page.keyboard.press("End")
    watched.settle()
    assert said.inner_text() != before


def test_the_first_stop_is_a_way_past_the_menu(opened: Opener) -> None:
    page = opened().open("/learn/3-attention")
    page.keyboard.press("Tab")
    assert "skip" in (page.evaluate("() => document.activeElement.textContent") or "").lower()
    page.keyboard.press("Enter")
    assert page.evaluate("() => !!document.activeElement.closest('main')")
