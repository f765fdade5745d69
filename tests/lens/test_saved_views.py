"""Files: well-formed, of the right size, with the numbers in them, whole or not there."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from PIL import Image

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import check_extension
from clearhead.lens.report import Token
from clearhead.lens.views import png, sheet
from clearhead.lens.views.palette import LEVELS, THEMES, colour, level
from tests.lens.conftest import make_report
from tests.lens.pages import Page

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("n", "causal"), [(1, True), (12, True), (12, False), (100, True)])
def test_svg_is_xml_with_a_title_for_every_cell(tmp_path, n, causal):
    report = make_report(n, causal)
    root = ElementTree.fromstring(report.save(tmp_path / "map.svg").read_text(encoding="utf-8"))
    assert root.tag == SVG + "svg"
    hints = [title.text for title in root.iterfind(f"{SVG}rect/{SVG}title")]
    if n <= 64:
        assert len(hints) == (n * (n + 1) // 2 if causal else n * n) + len(report.next_tokens)
        assert f"The → <bos>: {report.pattern_TS[1, 0]:.4f}" in hints if n > 1 else True
    words = [text.text for text in root.iter(SVG + "text")]
    assert report.title in words
    assert "·are" in words
    width = float(root.get("width"))
    for box in root.iter(SVG + "rect"):
        if box.get("width") != "100%":
            assert float(box.get("x")) + float(box.get("width")) <= width


def test_a_long_text_is_one_picture_that_follows_the_theme(tmp_path):
    report = make_report(200)
    root = ElementTree.fromstring(report.save(tmp_path / "map.svg").read_text(encoding="utf-8"))
    for theme, image in zip(("light", "dark"), root.iter(SVG + "image"), strict=True):
        assert image.get("class") == theme
        picture = Image.open(io.BytesIO(base64.b64decode(image.get("href").split(",")[1]))).convert("RGB")
        assert picture.size == (200, 200)
        for query, key in ((0, 0), (5, 3), (199, 0), (120, 119), (3, 150)):
            assert picture.getpixel((key, query)) == colour(level(float(report.pattern_TS[query, key])), theme)
    assert (tmp_path / "map.svg").stat().st_size < 200_000


def test_tokens_can_not_break_a_file(tmp_path):
    report = dataclasses.replace(
        make_report(3), tokens=(Token(0, "a\x00\ud800b"), Token(1, "</script>@DATA@"), Token(2, "]]>&"))
    )
    root = ElementTree.fromstring(report.save(tmp_path / "map.svg").read_text(encoding="utf-8"))
    assert {"ab", "</script>@DATA@", "]]>&"} <= {text.text for text in root.iter(SVG + "text")}
    clean = Page(make_report(3).page())
    page = Page(report.save(tmp_path / "map.html").read_text(encoding="utf-8"))
    assert page.tags == clean.tags
    assert list(page.scripts) == list(clean.scripts)
    assert page.data["sides"][0]["queries"] == [token.text for token in report.tokens]
    Image.open(report.save(tmp_path / "map.png"))


@pytest.mark.parametrize(("n", "causal"), [(1, True), (12, True), (12, False), (100, True)])
def test_png_opens_with_the_size_of_its_layout_and_has_the_cells_in_it(tmp_path, n, causal):
    report = make_report(n, causal)
    layout = report.sheet()
    image = Image.open(report.save(tmp_path / "map.png"))
    assert image.size == (round(2 * layout.width), round(2 * layout.height))
    cells = [box for box in layout.boxes if box.hint and box.tone not in ("c0", "bar")]
    for box in cells[:: max(1, len(cells) // 50)]:
        # The corner of a cell, away from the number in it.
        assert image.getpixel((round(2 * box.x) + 2, round(2 * box.y) + 2)) == colour(int(box.tone[1:]), "light")


def test_png_of_a_huge_text_is_kept_small(monkeypatch):
    monkeypatch.setattr(png, "_MOST_PIXELS", 10_000)
    image = Image.open(io.BytesIO(png.draw(sheet.Sheet("", 4000, 1000))))
    assert image.size == (200, 50)


@pytest.mark.parametrize(("n", "causal"), [(1, True), (12, True), (12, False), (100, True)])
def test_html_stands_alone_and_holds_the_numbers(tmp_path, n, causal):
    report = make_report(n, causal)
    page = Page(report.save(tmp_path / "map.html").read_text(encoding="utf-8"))
    assert page.stands_alone()
    (only,) = page.data["maps"]
    assert [only["size"], only["head"], only["triangle"]] == [[n, n], None, causal]
    # What is shown, four places, is the tensor's number.
    held = page.numbers(only["id"], only["size"])
    assert [f"{x:.4f}" for x in held.flatten()] == [f"{x:.4f}" for x in report.pattern_TS.flatten()]
    assert page.data["sides"] == [{**page.data["sides"][0], "queries": [t.text for t in report.tokens], "keys": None}]
    assert page.data["next"][0] == ["·are", 0.31]
    assert {theme: len(shades["c"]) for theme, shades in page.data["colours"].items()} == dict.fromkeys(
        THEMES, LEVELS + 1
    )


def test_json_holds_the_pattern_exactly(tmp_path):
    report = make_report()
    data = json.loads(report.save(tmp_path / "map.json").read_text())
    assert torch.equal(torch.tensor(data["pattern"]), report.pattern_TS)
    assert data == json.loads(json.dumps(report.to_json()))
    assert [data["layer"], data["head"]] == [5, 0]
    assert data["tokens"][1] == {"id": 1, "text": "The"}
    assert data["links"][0] == {"query": 0, "key": 0, "weight": 1.0}
    assert data["next"][0] == {"id": 7, "text": "·are", "probability": 0.31}


@pytest.mark.parametrize("name", ["map.gif", "map", "map.svg.zip"])
def test_an_unknown_ending_is_refused_with_the_known_ones(tmp_path, name):
    with pytest.raises(UsageError, match=r"\.svg, \.png, \.html, \.json"):
        check_extension(tmp_path / name)
    with pytest.raises(UsageError):
        make_report().save(tmp_path / name)


def test_a_folder_that_is_not_there_and_a_name_that_is_a_folder(tmp_path):
    with pytest.raises(ClearheadError, match="no folder"):
        check_extension(tmp_path / "nowhere" / "map.svg")
    (tmp_path / "map.json").mkdir()
    with pytest.raises(ClearheadError, match="could not be written"):
        make_report().save(tmp_path / "map.json")
    assert [path.name for path in tmp_path.iterdir()] == ["map.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = make_report(3).save(tmp_path / "map.json")
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ClearheadError, match="No space left"):
        make_report(5).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_capital_endings_are_endings(tmp_path):
    assert make_report(2).save(tmp_path / "MAP.PNG").read_bytes().startswith(b"\x89PNG")


def test_steps_go_by_the_square_root():
    assert [level(weight) for weight in (-1, 0, 1, 2)] == [0, 0, LEVELS, LEVELS]
    assert level(0.02) > level(0.005) > 0
