"""What a widget is told of a result of the lens: which view draws it, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.report import AttentionReport
from clearhead.lens.seen import Seen
from clearhead.lens.views.chart import CurveFigure
from clearhead.lens.views.head_map import HOW, HeadMap
from clearhead.lens.views.heads import Grid, Layer
from clearhead.lens.views.heatmap import HeatMap
from clearhead.lens.views.links import Links
from clearhead.lens.views.pattern import is_triangle
from clearhead.studio.operations import Answer

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn

MOST = 64 << 20
"""Numbers that a view is sent at the most: 256 MiB."""


@dataclass(frozen=True)
class View:
    """name: the component that draws it. answer: what it asks for."""

    name: str
    answer: Answer
    result: Drawn


def view_of(result: Drawn) -> View:
    """The view of a result.

    Raises:
        UsageError: none draws it, or it is too large to send.
    """
    if isinstance(result, Seen) and not any(name.endswith(".pattern") for name in result):
        return View("view.shapes", _shapes(result), result)
    drawn = result.figure()
    match drawn:
        case AttentionReport():
            labels = [token.text for token in drawn.tokens]
            following = [{"text": token.text, "p": token.probability} for token in drawn.next_tokens]
            told = _map(drawn.title, drawn.pattern_TS, labels, labels, {"next": following})
            return View("view.map", told, result)
        case HeadMap():
            return View("view.map", _map(drawn.title, drawn.pattern_TS, drawn.queries, drawn.keys, {}), result)
        case Grid():
            return View("view.grid", _maps(drawn.title, drawn.layers, {"note": drawn.note}), result)
        case Links():
            _, heads = drawn.shown
            more = {"note": "Choose a token for its links alone.", "chosen": drawn.chosen, "head": heads[0]}
            return View("view.links", _maps(drawn.title, drawn.layers, more), result)
        case CurveFigure():
            return View("view.table", _table(drawn.table), result)
        case HeatMap():
            return View("view.table", _table(drawn), result)
    raise UsageError(f"{type(drawn).__name__} has no view in a notebook; .save('name.html') writes it as a page")


def _sized(values: Tensor) -> Tensor:
    if values.numel() > MOST:
        raise UsageError(f"{values.numel():,} numbers are too many for a notebook; look at fewer layers or tokens")
    return values.detach().float().cpu().contiguous()


def _map(title: str, pattern_TS: Tensor, queries: Sequence[str], keys: Sequence[str], more: dict[str, Any]) -> Answer:
    data = {
        "title": title,
        "note": HOW,
        "rows": list(queries),
        "columns": list(keys),
        "triangle": is_triangle(pattern_TS),
        **more,
    }
    return Answer(data=data, arrays={"values": _sized(pattern_TS)})


def _maps(title: str, layers: Sequence[Layer], more: dict[str, Any]) -> Answer:
    """Every layer in one tensor, of the layers that are as large as the first: others have tokens of another text."""
    shape = layers[0].pattern_HTS.shape
    alike = [layer for layer in layers if layer.pattern_HTS.shape == shape]
    left_out = len(layers) - len(alike)
    if left_out:
        more["note"] = f"{more['note']} {left_out} of another size are left out: look at them by themselves."
    told = [
        {
            "name": layer.name,
            "queries": list(layer.queries),
            "keys": list(layer.keys),
            "triangle": all(map(is_triangle, layer.pattern_HTS)),
        }
        for layer in alike
    ]
    maps_LHTS = _sized(torch.stack([layer.pattern_HTS for layer in alike]))
    return Answer(data={"title": title, "layers": told, **more}, arrays={"maps": maps_LHTS})


def _table(table: HeatMap) -> Answer:
    scale, (row, column) = table.scale, _corner(table.corner)
    data = {
        "title": table.title,
        "note": table.note,
        "rows": list(table.row_labels),
        "columns": list(table.column_labels),
        "rowName": row,
        "columnName": column,
        "words": None if table.words is None else [list(line) for line in table.words],
        "kind": scale.kind,
        "max": scale.high,
        "quantity": {"share": "share", "amount": "amount", "signed": "difference"}[scale.kind],
    }
    return Answer(data=data, arrays={"values": _sized(table.values)})


def _corner(corner: str) -> tuple[str, str]:
    """What rows and columns are: "layer \\ head"."""
    row, _, column = corner.partition("\\")
    return row.strip() or "row", column.strip() or "column"


def _shapes(seen: Seen) -> Answer:
    shapes = [
        [name, seen.letters(name), " × ".join(map(str, value.shape)), str(value.dtype).removeprefix("torch.")]
        for name, value in seen.items()
    ]
    return Answer(data={"title": "What was looked at", "note": "", "shapes": shapes})
