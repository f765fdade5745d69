"""Hostile texts in the explorer, typed and given by link: drawn harmlessly or refused with a sentence, never run."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from tests.studio.browser.conftest import Opener, Watched

SCRIPT = '<script>alert(1)</script><img src=x onerror="window.hacked=1"><svg onload=alert(2)> {{7*7}} ${7*7} "\'`'
TEXTS = {
    "script": SCRIPT,
    "right to left": "abc \u202e\u2066cba \u200f\u2069 \u05d0\u05d1\u05d2 \u202dend",
    "long words": " ".join(("w" * 400, "\u0301" * 20, "\U0001f468\u200d" * 8)),
    "nuls": "a\x00b\x00\x01\x1b[31m\x7f\u2028\ufeff end",
    "special tokens": "<|endoftext|><eos>[MASK]<pad>",
    "half an emoji": "The \ud83d cat \udc00",
    "blank": " \t\u00a0\u200b",
}
REFUSED = {
    "half emoji, many": ("The \ud83d cat " * 200, "half a character"),
    "100,000 characters": ("word " * 20_000, "tokens"),
    "100,000 letters without a space": ("w" * 100_000, "tokens"),
    "more than fits": ("a" * 100_001, "100,000"),
}
PLAIN = "The cat sat on the mat"
DONE = """() => {
  const one = document.querySelector('.explore .frame:not([aria-busy=true]), .explore .notice.problem');
  return one && !document.querySelector('.explore .status')?.textContent.includes('reads the text');
}"""
# As the browser holds them, half characters and all: what a person pastes does not go through a keyboard.
PASTE = """(box, codes) => {
  box.value = codes.map(code => String.fromCharCode(code)).join('');
  box.dispatchEvent(new Event('change', { bubbles: true }));
}"""


def paste(page: Page, text: str, box: str = "Text") -> None:
    raw = text.encode("utf-16-le", "surrogatepass")
    codes = [raw[i] + 256 * raw[i + 1] for i in range(0, len(raw), 2)]
    page.get_by_label(box, exact=True).evaluate(PASTE, codes)


def settled(watched: Watched) -> Page:
    page = watched.page
    page.wait_for_timeout(150)
    page.wait_for_function(DONE, timeout=90_000)
    watched.settle(90_000)
    return page


def harmless(page: Page) -> None:
    """Nothing of a text has become a part of the page, and the page is no wider for it."""
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("main script, main img[src=x], main svg[onload]").count() == 0
    width, room = page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= room


def lives_on(watched: Watched) -> None:
    """A plain text is read as ever."""
    paste(watched.page, PLAIN)
    page = settled(watched)
    assert page.locator(".explore .notice.problem").count() == 0
    assert PLAIN in page.locator(".tokens").first.text_content().replace("\u00b7", " ")  # type: ignore[union-attr]


@pytest.fixture
def watched(opened: Opener) -> Watched:
    """The explorer; a dialog fails the test."""
    found = opened("reduced")
    found.page.on("dialog", lambda dialog: (found.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_pasted(watched: Watched, name: str) -> None:
    watched.open("/explore/clear-gpt/attention")
    paste(watched.page, TEXTS[name])
    page = settled(watched)
    assert page.locator(".tokens [role=option]").count() >= 1
    drawn = page.locator(".tokens").first.inner_text()
    assert not set(drawn) & set("\0\x1b\u202e\u202d\u2066\u200f\u2028\ufeff")
    if name == "script":
        assert "script" in drawn and page.locator("#cell .says").inner_text().strip()
    harmless(page)
    lives_on(watched)


@pytest.mark.parametrize("view", ["attention", "predict", "lens"])
def test_a_long_word_on_a_phone(opened: Opener, view: str) -> None:
    watched = opened("phone")
    watched.open(f"/explore/clear-gpt/{view}?text={'w' * 400}")
    harmless(settled(watched))


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_that_is_refused(watched: Watched, name: str) -> None:
    text, words = REFUSED[name]
    watched.open("/explore/clear-gpt/attention")
    paste(watched.page, text)
    page = settled(watched)
    told = page.locator(".explore .notice.problem").inner_text()
    assert words in told and len(told) < 400
    harmless(page)
    lives_on(watched)


@pytest.mark.parametrize("view", ["attention", "predict", "lens", "ablate", "shapes"])
def test_a_text_that_a_link_gives(watched: Watched, view: str) -> None:
    text = SCRIPT + TEXTS["right to left"] + "w" * 400
    watched.open(f"/explore/clear-gpt/{view}?text={quote(text)}")
    page = settled(watched)
    assert page.locator(".tokens [role=option]").count() > 20
    harmless(page)


@pytest.mark.parametrize(
    "query",
    [
        "text=%00%00a%1b[31m",
        "text=%ED%A0%BD%ED%B8%80&pos=-5",
        "text=%E2%80%AE%E2%81%A6cba",
        f"text={'w' * 20_000}",
        f"text={quote(SCRIPT)}&tap={quote(SCRIPT)}&picture={quote(SCRIPT)}&l=1e9&h=-1",
        f"run={'0' * 64}",
        f"run={quote('../../etc/passwd')}",
        f"run={quote(SCRIPT)}",
    ],
)
def test_a_link_that_is_hostile(watched: Watched, query: str) -> None:
    watched.open(f"/explore/clear-gpt/attention?{query}")
    page = settled(watched)
    assert page.locator(".tokens [role=option]").count() >= 1
    if query.startswith("run=") and "script" not in query:
        assert "does not keep that run" in page.locator(".explore .notice").inner_text()
    harmless(page)
    lives_on(watched)


@pytest.mark.parametrize("name", ["script", "nuls"])
def test_a_source_that_is_pasted(watched: Watched, name: str) -> None:
    watched.open("/explore/clear-translate/attention")
    paste(watched.page, TEXTS[name], "Source")
    page = settled(watched)
    assert page.locator(".tokens [role=option]").count() or page.locator(".explore .notice.problem").inner_text()
    harmless(page)


@pytest.mark.parametrize(
    "data",
    [b"", b"GIF89a", b"<svg onload=alert(1)>", b"\x89PNG\r\n\x1a\n" + b"\0" * 100],
    ids=["nothing", "gif", "svg", "png"],
)
def test_a_file_that_is_no_picture(watched: Watched, data: bytes) -> None:
    watched.open("/explore/clear-vit/picture")
    file = {"name": "<img src=x onerror=alert(1)>.png", "mimeType": "image/png", "buffer": data}
    watched.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    watched.page.wait_for_selector(".given .notice.problem")
    assert "picture" in watched.page.locator(".given .notice.problem").inner_text()
    page = settled(watched)
    harmless(page)
