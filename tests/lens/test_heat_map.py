"""Tables of numbers, with and without words: colours by the scale, numbers as they are, holes left open."""

from __future__ import annotations

import io
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import pytest
import torch
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.pruning.prune import PruningCurve
from clearhead.lens.views.drawn import Drawn
from clearhead.lens.views.heatmap import MOST_CELLS
from clearhead.lens.views.palette import tones
from clearhead.lens.views.scale import Scale, scale_of
from tests.lens.pages import Page

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Sweep(Drawn):
    """A result as others make them: no more than the four attributes."""

    title: str
    values: Tensor
    row_labels: list[str]
    column_labels: list[str]


@dataclass(frozen=True)
class Lens(Sweep):
    cells: list[list[str]]
    note: str = "How likely each layer finds its best token."
    corner: str = "depth \\ place"


def sweep(rows: int = 3, columns: int = 4) -> Sweep:
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    values[0, 1] = math.nan
    return Sweep(
        "Patching", values, [f"layer {row}" for row in range(rows)], ["<bos>", " the", "\n", "שלום"][:columns] * 1
    )


def lens() -> Lens:
    values = torch.tensor([[0.2, 0.02], [0.91, 1.0]])
    return Lens("Lens", values, ["layer 0", "layer 1"], ["a", "b"], [[" the", "<script>"], ["עם", ""]])


def text_of(drawn: Drawn, width: int = 100, colour: bool = False) -> str:
    system = "truecolor" if colour else None
    console = Console(
        width=width,
        file=io.StringIO(),
        no_color=not colour,
        color_system=system,
        force_terminal=colour,
        legacy_windows=False,
    )
    drawn.show(console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_page_holds_the_very_numbers_and_none_where_there_is_none():
    page = Page(sweep().figure().page())
    assert page.stands_alone()
    held = [[math.nan if value is None else value for value in row] for row in page.data["values"]]
    assert torch.equal(torch.tensor(held).nan_to_num(7), sweep().values.nan_to_num(7))
    assert page.data["values"][0][1] is None
    assert page.data["rows"] == ["layer 0", "layer 1", "layer 2"]
    assert page.data["columns"] == ["<bos>", "·the", "⏎", "שלום"]
    assert page.data["scale"]["kind"] == "signed"


def test_words_stand_in_a_lens_and_are_never_markup(tmp_path):
    page = Page(lens().save(tmp_path / "lens.html").read_text(encoding="utf-8"))
    assert page.data["words"] == [["·the", "<script>"], ["עם", "∅"]]
    assert page.tags == Page(sweep().figure().page()).tags
    assert page.data["scale"]["kind"] == "share"
    assert "How likely each layer" in page.text
    root = ElementTree.fromstring(lens().save(tmp_path / "lens.svg").read_text(encoding="utf-8"))
    hints = [title.text for title in root.iterfind(f"{SVG}rect/{SVG}title")]
    assert hints == [
        "depth layer 0, place a: the 0.2000",
        "depth layer 0, place b: <script> 0.0200",
        "depth layer 1, place a: \u2068עם\u2069 0.9100",
        "depth layer 1, place b: ∅ 1.0000",
    ]
    assert {"·the", "<script>"} <= {text.text for text in root.iter(SVG + "text")}


def test_pixels_and_classes_are_the_tones_of_the_scale(tmp_path):
    drawn, scale = sweep(), scale_of(sweep().values)
    expected = [scale.tone(value) for value in drawn.values.flatten().tolist()]
    root = ElementTree.fromstring(drawn.save(tmp_path / "sweep.svg").read_text(encoding="utf-8"))
    cells = [rect for rect in root.iter(SVG + "rect") if rect.find(SVG + "title") is not None]
    assert [cell.get("class") for cell in cells] == expected
    assert expected[1] == "none"
    image = Image.open(drawn.save(tmp_path / "sweep.png"))
    for cell, tone in zip(cells, expected, strict=True):
        corner = (round(2 * float(cell.get("x"))) + 2, round(2 * float(cell.get("y"))) + 2)
        assert image.getpixel(corner) == tones("light")[tone]


def test_json_is_the_numbers(tmp_path):
    said = json.loads(lens().save(tmp_path / "lens.json").read_text())
    assert torch.equal(torch.tensor(said["values"]), lens().values)
    assert said["cells"][0] == ["·the", "<script>"]
    assert json.loads(sweep().save(tmp_path / "sweep.json").read_text())["values"][0][1] is None


def test_a_table_too_large_for_cells_is_a_map_with_the_same_bits():
    values = torch.randn(3, MOST_CELLS // 2, generator=torch.Generator().manual_seed(0))
    page = Page(Sweep("Big", values, list("abc"), [str(i) for i in range(MOST_CELLS // 2)]).figure().page())
    (only,) = page.data["maps"]
    assert torch.equal(page.numbers(only["id"], only["size"], "signed"), values)
    assert len(page.text) < 2_000_000


def test_numbers_in_the_terminal_stand_below_their_columns():
    lines = text_of(sweep()).splitlines()
    assert lines[0] == "Patching"
    assert lines[1].split() == ["<bos>", "·the", "⏎", "שלום"]
    for line, numbers in zip(lines[2:5], sweep().values.tolist(), strict=True):
        shown = [f"{value:.2f}" for value in numbers if not math.isnan(value)]
        assert line.split()[2:] == shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", text_of(sweep(), colour=True)).splitlines()[:5] == lines[:5]


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize("columns", [3, 40, 300])
@pytest.mark.parametrize("words", [True, False])
def test_a_table_fits_the_screen(columns, width, words):
    values = torch.linspace(-1, 1, 2 * columns).reshape(2, columns)
    labels = ["layer 0", "中文" * 20], [f"token {i}" for i in range(columns)]
    cells = [[f"word {i}" for i in range(columns)]] * 2
    drawn = Lens("T", values, *labels, cells) if words else Sweep("T", values, *labels)
    lines = text_of(drawn, width).splitlines()
    assert max(cell_len(line) for line in lines if not line.startswith(("the last", "How"))) <= width
    cut = [line for line in lines if line.startswith("the last")]
    assert len(cut) == (columns == 300) or columns == 40
    if not cut:
        assert all(sum(label in line for line in lines) >= 1 for label in ("layer 0", "中文"))


def test_labels_that_do_not_fit_the_numbers_are_refused():
    with pytest.raises(ClearheadError, match=r"Patching: 2 rows .* not \(3, 4\)"):
        Sweep("Patching", sweep().values, ["a", "b"], list("abcd")).show()
    with pytest.raises(ClearheadError, match="no numbers"):
        Sweep("Patching", torch.zeros(0, 4), [], list("abcd")).show()


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [([0.0, 1.0], "share", 0, 1), ([2.0, 3.5], "amount", 2, 3.5), ([-0.5, 0.2, math.nan], "signed", -0.5, 0.5)],
)
def test_a_scale_fits_the_numbers(values, kind, low, high):
    assert scale_of(torch.tensor(values)) == Scale(kind, low, high)
    assert scale_of(torch.tensor(values), "share") == Scale()


def test_zero_is_the_middle_of_a_signed_scale_and_both_ends_are_as_far():
    scale = Scale("signed", -2, 2)
    assert [scale.tone(value) for value in (-2, -9, 0, 1, 2, 9)] == ["d0", "d0", "d20", "d30", "d40", "d40"]
    assert scale.tone(math.nan) == "none"
    assert [scale.short(value) for value in (0.5, -0.001, 12.345, -123.4, 1e7)] == [
        "0.50",
        "0.00",
        "12.3",
        "-123",
        "1e7",
    ]
    assert max(len(scale.short(value)) for value in (-1e-9, -12345.6, 99.96, -99.96, 9.996, -9.996e20)) <= 5


def test_a_curve_is_a_chart_with_its_numbers_below(tmp_path):
    values = torch.tensor([[3.0, 3.5, 5.0], [3.0, 4.25, 6.0]], dtype=torch.float64)
    curve = PruningCurve("Loss", values, ("gradient", "random"), ("0%", "25%", "50%"))
    root = ElementTree.fromstring(curve.save(tmp_path / "curve.svg").read_text(encoding="utf-8"))
    assert len([line for line in root.iter(SVG + "polyline") if "line" in (line.get("class") or "").split()]) >= 2
    Image.open(curve.save(tmp_path / "curve.png"))
    page = Page(curve.save(tmp_path / "curve.html").read_text(encoding="utf-8"))
    assert page.data["values"] == values.tolist()
    assert "svg" in page.tags
    text = text_of(curve)
    assert "4.25" in text
    assert "gradient" in text
