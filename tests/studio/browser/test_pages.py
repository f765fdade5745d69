"""Every page, in every way a reader may have set up their browser: nothing fails, nothing leaves the machine, nothing
is cut off, and nothing stands in the way of those who see or steer differently.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studio.browser.conftest import VARIANTS, Opener
from tests.studio.browser.routes import ALL

AXE = Path(__file__).parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIOLATIONS = """async rules => {
  const found = await axe.run(document, { runOnly: { type: 'tag', values: rules }, resultTypes: ['violations'] });
  return found.violations.flatMap(one => one.nodes.map(node =>
    `${one.id}: ${node.target.join(' ')}: ${node.failureSummary.split('\\n').slice(1).join('; ').trim()}`));
}"""
CUT_OFF = """() => [...document.querySelectorAll('main *')].filter(one => {
  const style = getComputedStyle(one), text = [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const hides = style.overflowX === 'hidden' && style.textOverflow !== 'ellipsis';
  // What is there for screen readers alone is cut to nothing on purpose.
  const heard = style.clipPath !== 'none' || style.clip !== 'auto';
  return text && hides && !heard && one.scrollWidth > one.clientWidth + 1;
}).map(one => `${one.className}: ${one.textContent.trim().slice(0, 60)}`)"""
SIDEWAYS = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  return [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > room + 1)
    .slice(0, 5).map(one => `${one.tagName}.${one.className}`);
}"""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("route", ALL)
def test_page(opened: Opener, route: str, variant: str) -> None:
    watched = opened(variant)
    page = watched.open(route)
    assert page.locator("h1").count() == 1
    assert (page.locator("h1").inner_text() == "There is no such page") == (route == "/nowhere")
    assert page.title().endswith("clearhead studio")
    assert page.evaluate(SIDEWAYS) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.locator("figure [role=alert]").all_inner_texts() == [], "a figure shows an error"
    for figure in page.locator("main figure").all():
        said = figure.locator(".says").first
        assert said.inner_text().strip(), "a figure without a sentence"
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS, RULES) == []
