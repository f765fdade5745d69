"""Curves where their numbers are: in a page, in files that stand alone, and in the terminal."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from clearhead.costs.charts import Chart, png, save, svg
from clearhead.costs.curves import Axes, Curve, draw, lay_out, log_ticks, size_ticks, ticks
from clearhead.costs.terminal import in_terminal
from clearhead.errors import ClearheadError, UsageError

LINE = Curve("a", [(1, 1.0), (10, 10.0), (100, 100.0)])


def test_a_curve_is_where_its_numbers_are() -> None:
    """Highest first, and the end is the last value."""
    drawn = draw([Curve("a", [(0, 10.0), (50, 0.0), (100, 5.0), (110, float("nan"))])], "{:.1f}".format)
    tree = ElementTree.fromstring(drawn)
    (line,) = (one for one in tree if one.tag == "polyline")
    (ax, ay), (bx, by), (cx, cy) = (map(float, pair.split(",")) for pair in line.attrib["points"].split())
    assert ax < bx < cx and (cx - ax) == pytest.approx(2 * (bx - ax))
    assert ay < cy < by and (by - cy) == pytest.approx(by - (ay + by) / 2)
    assert [one.text for one in tree if one.attrib.get("class") == "end dot0"] == ["5.0"]
    assert draw([Curve("a", [])], str) == ""


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 5, 10]), (0, 0.006, [0, 0.002, 0.004, 0.006]), (3.1, 3.1, [3.1]), (4.2, 6.9, [4, 5, 6, 7])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 1000, [1, 10, 100, 1000]),
        (100, 1000, [100, 200, 500, 1000]),
        (3, 4, [3]),
        (1, 1e12, [1, 100, 1e4, 1e6, 1e8, 1e10, 1e12]),
    ],
)
def test_ticks_by_factors_are_round(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(2**30, 2**33, [2**30, 2**31, 2**32, 2**33]), (1, 2**20, [1, 16, 256, 2**12, 2**16, 2**20]), (5, 6, [5])],
)
def test_sizes_are_round_at_powers_of_two(low: float, high: float, expected: list[float]) -> None:
    assert size_ticks(low, high) == expected


def test_a_power_is_a_straight_line_by_factors() -> None:
    drawing = lay_out([LINE], Axes("{:g}".format, log_x=True, log_y=True))
    assert drawing is not None
    (ax, ay), (bx, by), (cx, cy) = next(s.points for s in drawing.strokes if s.number == 0)
    assert bx - ax == pytest.approx(cx - bx) and ay - by == pytest.approx(by - cy)


def test_what_has_no_logarithm_is_left_out() -> None:
    drawing = lay_out(
        [Curve("a", [(0, 1.0), (1, 0.0), (2, 3.0), (4, 5.0)])], Axes("{:g}".format, log_x=True, log_y=True)
    )
    assert drawing is not None
    assert len(next(s.points for s in drawing.strokes if s.number == 0)) == 2


def charts() -> list[Chart]:
    measured = Curve("runs <1>", [(2, 3.0), (50, 40.0)], dots=True)
    axes = Axes("{:g}".format, x="tokens", log_x=True, log_y=True)
    return [Chart("first & last", (LINE, measured), axes), Chart("second", (LINE,), axes)]


def test_a_file_of_svg_stands_alone() -> None:
    tree = ElementTree.fromstring(svg(charts()))
    words = [one.text for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"first & last", "second", "runs <1>", "a", "tokens"} <= set(words)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}circle"))) == 1 + 2 + 1
    assert not any("href" in key for one in tree.iter() for key in one.attrib)
    heights = [float(one.attrib["y"]) for one in tree.iter("{http://www.w3.org/2000/svg}text") if one.text == "a"]
    assert heights[1] - heights[0] == 340


def test_a_png_has_the_curves_colour() -> None:
    image = Image.open(io.BytesIO(png(charts())))
    assert image.size == (1520, 1360)
    colours = {colour for _, colour in image.getcolors(1 << 20) or []}
    assert {(0x2F, 0x78, 0xBD), (0xD2, 0x49, 0x3F)} <= colours


def test_the_terminal_has_a_rising_line() -> None:
    text = in_terminal(charts()[1], width=40, height=8).plain.splitlines()
    assert text[0] == "second" and "a" in text[1]
    rows = text[2:10]
    places = [[i for i, char in enumerate(row) if 0x2800 < ord(char) < 0x2900] for row in rows]
    filled = [row for row in places if row]
    assert filled[0][-1] == max(map(max, filled)) and filled[-1][0] == min(map(min, filled))
    assert all(len(line) <= 40 + 12 for line in text)
    assert "100" in text[2] and "tokens" in text[-1]


def test_a_character_has_eight_dots() -> None:
    """In one row of characters: the least value is the lowest dot on the left, the most the highest on the right."""
    chart = Chart("two", (Curve("a", [(0, 0.0), (1, 1.0)], dots=True),), Axes("{:g}".format))
    drawn = [char for char in in_terminal(chart, width=20, height=1).plain if 0x2800 < ord(char) < 0x2900]
    assert drawn == ["\u2840", "\u2808"]


def test_saving(tmp_path: Path) -> None:
    assert save(charts(), tmp_path / "a.svg").read_text().startswith("<svg")
    assert save(charts(), str(tmp_path / "a.PNG")).read_bytes()[1:4] == b"PNG"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.PNG", "a.svg"]
    with pytest.raises(UsageError, match=r"saved as \.svg or \.png"):
        save(charts(), tmp_path / "a.pdf")
    with pytest.raises(ClearheadError, match="no folder"):
        save(charts(), tmp_path / "none" / "a.svg")
    with pytest.raises(ClearheadError, match="nothing to draw"):
        save([Chart("empty", (Curve("a", []),), Axes(str))], tmp_path / "b.svg")
