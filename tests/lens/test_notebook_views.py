"""What a notebook is given: a page in a frame of its own, a picture, plain text; and right-to-left text is drawn so."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser

import pytest
from PIL import Image, features

from clearhead.lens import look
from clearhead.lens.views import notebook, png
from clearhead.lens.views.heads import Grid
from clearhead.lens.views.labels import isolated, leftward
from tests.lens.conftest import make_report
from tests.lens.pages import Page
from tests.lens.test_head_views import layers


class Frame(HTMLParser):
    """The attributes of every element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def picture_of(bundle: dict[str, str]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))


@pytest.mark.parametrize("figure", [make_report(), Grid("Heads <i>", layers())], ids=["report", "grid"])
def test_a_figure_is_a_page_a_picture_and_text(figure):
    bundle = figure._repr_mimebundle_()
    ((tag, about),) = Frame(bundle["text/html"]).elements
    assert tag == "iframe"
    assert about["srcdoc"] == figure.page()
    assert about["sandbox"] == "allow-scripts"
    sheet = figure.sheet()
    assert picture_of(bundle).size == (round(2 * sheet.width), round(2 * sheet.height))
    assert bundle["text/plain"].splitlines()[0] == figure.title
    assert "\x1b" not in bundle["text/plain"]


def test_a_page_too_large_for_a_notebook_is_its_picture(monkeypatch):
    monkeypatch.setattr(notebook, "MOST", 1000)
    figure = Grid("Heads", layers())
    bundle = figure._repr_mimebundle_()
    tags = [tag for tag, _ in Frame(bundle["text/html"]).elements]
    assert tags == ["img", "p", "code"]
    assert bundle["image/png"] in bundle["text/html"]


def test_what_look_gives_shows_every_head_or_else_what_there_is(model):
    bundle = look(model, "<i>keys")._repr_mimebundle_()
    ((_, about),) = Frame(bundle["text/html"]).elements
    page = Page(about["srcdoc"] or "")
    assert [its["name"] for its in page.data["maps"]] == ["layers.0.mixer"] * 4 + ["layers.1.mixer"] * 4
    assert "i" not in page.tags
    many = look(model, "keys", "layers.*.mixer.z")._repr_mimebundle_()
    assert many["text/html"].count("<tr>") == 2
    assert "layers.1.mixer.z" in many["text/plain"]
    assert set(many) == {"text/plain", "text/html"}


def test_right_to_left_text_is_isolated_in_a_sentence_and_turned_round_for_a_plain_pen(monkeypatch):
    assert isolated("keys") == "keys"
    assert isolated("שלום") == "\u2068שלום\u2069"
    assert leftward("·שלום, keys") == "·םולש, keys"
    monkeypatch.setattr(features, "check", lambda name: False)
    (run,) = png._runs("אב", "plain", 20)
    assert run[0] == "בא" or "\\u05d1" in run[0]
    monkeypatch.setattr(features, "check", lambda name: True)
    (run,) = png._runs("\u2068אב\u2069", "plain", 20)
    assert run[0] == "אב" or "\\u05d0" in run[0]
