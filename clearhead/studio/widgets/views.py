"""What a widget is told of a result of the lens: which view draws it, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.accumulated import Accumulated
from clearhead.lens.attribution import Attribution
from clearhead.lens.heads.table import Heads
from clearhead.lens.integrated_gradients import IntegratedGradients
from clearhead.lens.logit_lens import LogitLens
from clearhead.lens.patching import Sweep
from clearhead.lens.paths import Paths
from clearhead.lens.pruning.prune import PruningCurve
from clearhead.lens.report import AttentionReport
from clearhead.lens.seen import Seen
from clearhead.lens.views.chart import CurveFigure
from clearhead.lens.views.head_map import HOW, HeadMap
from clearhead.lens.views.heads import Grid, Layer
from clearhead.lens.views.heatmap import HeatMap
from clearhead.lens.views.links import Links
from clearhead.lens.views.pattern import is_triangle
from clearhead.lens.vocabulary import Words
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
            return View("view.table", _table(drawn.table, result), result)
        case HeatMap():
            return View("view.table", _table(drawn, result), result)
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


def _table(table: HeatMap, result: Drawn) -> Answer:
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
        **_made(result),
    }
    return Answer(data=data, arrays={"values": _sized(table.values)})


FORMULAS: tuple[tuple[type, str, str], ...] = (
    (LogitLens, r"p=\mathrm{softmax}(W_U\,\mathrm{norm}(x_\ell))_v", "clearhead.lens.logit_lens"),
    (Sweep, r"\frac{m-m_{\mathrm{corrupted}}}{m_{\mathrm{clean}}-m_{\mathrm{corrupted}}}", "clearhead.lens.patching"),
    (Paths, r"\frac{m-m_{\mathrm{clean}}}{m_{\mathrm{corrupted}}-m_{\mathrm{clean}}}", "clearhead.lens.path_patching"),
    (Attribution, r"u\cdot\mathrm{norm}(x_i)", "clearhead.lens.attribution"),
    (
        IntegratedGradients,
        r"\textstyle\sum_d (x_d-x'_d)\int_0^1 \partial m/\partial x_d",
        "clearhead.lens.integrated_gradients",
    ),
    (
        Accumulated,
        r"\lVert\textstyle\sum_{i\le p}x_i\rVert,\ \text{or}\ u\cdot\sum_{i\le p}x_i",
        "clearhead.lens.accumulated",
    ),
    (Words, r"W_U\,x", "clearhead.lens.vocabulary"),
    (Heads, r"\text{score}-\text{control}", "clearhead.heads"),
    (PruningCurve, r"m\ \text{without so many heads}", "clearhead.lens.pruning"),
)
"""What the numbers of a result are, in TeX, and the function that gave them."""


def _made(result: Drawn) -> dict[str, str]:
    """Where a table's numbers come from; put: the numbers that all of them share."""
    formula, source = next(
        ((formula, source) for kind, formula, source in FORMULAS if isinstance(result, kind)), ("", "clearhead.lens")
    )
    scale = getattr(result, "scale", None)
    put = (
        f"m of the clean run {scale.clean:.4g}, of the corrupted one {scale.corrupted:.4g}" if scale is not None else ""
    )
    return {"formula": formula, "from": source, "put": put}


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
