"""Heads in the terminal, with and without colour, wide and narrow; and the table that is drawn elsewhere."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from clearhead.lens.heads.circuits import Copying, Reads
from clearhead.lens.heads.measure import Looks, Measure
from clearhead.lens.heads.table import Head, Heads


def head(layer: int, number: int, role: str | None, part: str = "") -> Head:
    measures = {"first token": Measure(0.05, 0.02, 0.01)}
    if role is not None:
        measures[role] = Measure(0.8, 0.1, 0.01)
    reads = (Reads(0, 1, "k", 0.2, 2.5),) if role == "induction" else ()
    return Head(part, layer, number, measures, Looks(1.25, 3.5), Copying(0.5, 0.0, 0.1), reads)


@pytest.fixture
def found() -> Heads:
    """Layers 0 and 2, of two heads and three; between them none."""
    return Heads(
        [
            head(0, 0, None),
            head(0, 1, "previous token"),
            head(2, 0, "induction"),
            head(2, 1, "first token"),
            head(2, 2, "2 back"),
        ],
        left_out=["same word: there are no words"],
    )


def shown(found: Heads, width: int, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        no_color=not colour,
    )
    found.show(console=console)
    return console.file.getvalue()


def test_a_line_a_head(found) -> None:
    said = shown(found, 200)
    line = next(line for line in said.splitlines() if line.startswith("2.0"))
    assert line.split() == "2.0 induction 0.80 0.10 70 sd 0.05 1.2 3.5 +0.50 k of 0.1 2.5x".split()
    assert "20% of 5 heads do nothing" in said
    assert "Not asked: same word: there are no words." in said


@pytest.mark.parametrize(("width", "row"), [(200, "2 induct first  2 back "), (12, "2 in fi 2  ")])
def test_the_picture_fits(found, width, row) -> None:
    assert row in shown(found, width).splitlines()


def test_each_role_has_a_colour_of_its_own(found) -> None:
    said = shown(found, 200, colour=True)
    grounds = {part.split("m")[0] for part in said.split("48;2;")[1:]}
    assert len(grounds) == 4
    assert "\x1b[" not in shown(found, 200)


def test_the_table_that_is_drawn(found) -> None:
    assert (found.row_labels, found.column_labels) == (["0", "2"], ["0", "1", "2"])
    assert found.cells == [["?", "prev", ""], ["induct", "first", "2 back"]]
    (nothing, before, hole), *_ = found.values.tolist()
    assert (nothing, round(before, 6)) == (0.0, 0.7)
    assert math.isnan(hole)
    two = Heads([head(0, 0, None, "encoder"), head(0, 0, None)])
    assert two.row_labels == ["encoder 0", "0"]
    assert [one.address for one in two] == ["encoder.layers.0.mixer", "layers.0.mixer"]
