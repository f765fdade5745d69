"""The attention patterns of many heads: small multiples, or lines between two rows of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.views.drawn import SheetFigure
from clearhead.lens.views.labels import names
from clearhead.lens.views.pack import packed
from clearhead.lens.views.pattern import is_triangle
from clearhead.lens.views.scale import Scale, scale_of
from clearhead.lens.views.sheet import MARGIN, SMALL, Map, Sheet, Word
from clearhead.lens.views.thumbnail import steps
from clearhead.lens.views.webpage import page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SIDE = 96
"""How wide a small map is in a picture, in pixels."""
_GAP = 8
NOTHING_MORE: dict[str, Any] = {"chosen": 0, "next": [], "glances": [], "heading": ""}
"""What a report adds to its page, and a grid does not."""
_FINE = 128
"""The most cells that a small map in a picture has a side."""


class Layer(NamedTuple):
    """The patterns of one attention: (H, T, S), the tokens that look and those looked at."""

    name: str
    pattern_HTS: Tensor
    queries: Sequence[str]
    keys: Sequence[str]


@dataclass(frozen=True)
class Grid(SheetFigure):
    """Every head as a small map, a row a layer. In a page, the chosen one is drawn large below or beside them."""

    title: str
    layers: Sequence[Layer]
    note: str = "A row of a map is what one token looks at; it sums to one."

    def parts(self, console: Console) -> list[RenderableType]:
        from clearhead.lens.views.terminal_heads import grid

        return grid(self, console)

    def sheet(self) -> Sheet:
        sheet = Sheet(self.title)
        top = sheet.heading([self.note]) + 10
        left = MARGIN + max(len(layer.name) for layer in self.layers) * SMALL * 0.6 + 8
        step = _SIDE + _GAP
        for head in range(max(len(layer.pattern_HTS) for layer in self.layers)):
            sheet.words.append(Word(left + head * step + _SIDE / 2, top, str(head), SMALL, "middle", "faint"))
        for row, layer in enumerate(self.layers):
            y = top + 12 + row * step
            sheet.words.append(Word(left - 8, y + _SIDE / 2, layer.name, SMALL, "end", "faint"))
            for head, pattern_TS in enumerate(layer.pattern_HTS):
                x = left + head * step
                sheet.maps.append(Map(x, y, _SIDE, _SIDE, steps(pattern_TS, _FINE), f"{layer.name}, head {head}"))
                sheet.reach(x + _SIDE, y + _SIDE)
        sheet.key(scale_of(self.layers[0].pattern_HTS, "share"), sheet.height - MARGIN + 18)
        return sheet

    def page(self) -> str:
        data, packs = heads_data(self.layers)
        note = f"{self.note} Arrow keys go from head to head."
        return page("maps", self.title, note, {**data, **NOTHING_MORE}, packs)

    def to_json(self) -> dict[str, Any]:
        return layers_json(self.title, self.layers)


def check_heads(layer: Layer, heads: Sequence[int]) -> None:
    """Raise a ClearheadError if the layer has not all of these heads."""
    for head in heads:
        if not 0 <= head < len(layer.pattern_HTS):
            raise ClearheadError(f"{layer.name} has heads 0 to {len(layer.pattern_HTS) - 1}, not {head}")


def heads_data(layers: Sequence[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """What the pages of heads share: {maps, rows, sides, scale} for the script, and each map packed under its name."""
    maps: list[dict[str, Any]] = []
    rows, sides, packs = [], [], {}
    for layer in layers:
        side = _side(layer)
        if side not in sides:
            sides.append(side)
        rows.append([len(maps) + head for head in range(len(layer.pattern_HTS))])
        for head, pattern_TS in enumerate(layer.pattern_HTS):
            name = f"m{len(maps)}"
            packs[name] = packed(pattern_TS, "share")
            maps.append(
                {
                    "name": layer.name,
                    "head": head,
                    "id": name,
                    "size": list(pattern_TS.shape),
                    "side": sides.index(side),
                    "triangle": is_triangle(pattern_TS),
                }
            )
    scale = scale_of(layers[0].pattern_HTS, "share")
    return {"maps": maps, "rows": rows, "sides": sides, "scale": scale.to_json()}, packs


def maps_page(
    title: str, note: str, values_RC: Tensor, rows: Sequence[str], columns: Sequence[str], scale: Scale, **more: Any
) -> str:
    """A page of one map alone, of numbers of any kind. more: what a report adds, in place of `NOTHING_MORE`."""
    data, _ = heads_data([Layer("", values_RC[None], rows, columns)])
    data["maps"][0]["head"] = None
    packs = {"m0": packed(values_RC, scale.kind)}
    return page("maps", title, note, {**data, **NOTHING_MORE, **more, "scale": scale.to_json()}, packs)


def _side(layer: Layer) -> dict[str, Any]:
    """The tokens of both sides, and their names in a sentence; keys None where a text looks at itself."""
    queries, keys = list(layer.queries), list(layer.keys)
    own = queries == keys
    return {
        "queries": queries,
        "queryNames": names(queries),
        "keys": None if own else keys,
        "keyNames": None if own else names(keys),
    }


def layers_json(title: str, layers: Sequence[Layer]) -> dict[str, Any]:
    return {
        "title": title,
        "layers": [
            {
                "name": layer.name,
                "queries": list(layer.queries),
                "keys": list(layer.keys),
                "pattern": layer.pattern_HTS.tolist(),
            }
            for layer in layers
        ],
    }
