"""Curves, with their numbers as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.costs import charts
from clearhead.costs.terminal import in_terminal
from clearhead.lens.views.drawn import Figure
from clearhead.lens.views.heatmap import HeatMap

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class CurveFigure(Figure):
    """A chart, and the numbers it shows: a row a curve."""

    chart: charts.Chart
    table: HeatMap

    def parts(self, console: Console) -> list[RenderableType]:
        return [in_terminal(self.chart, min(console.width, 100)), *self.table.parts(console)[1:]]

    def svg(self) -> str:
        return charts.svg([self.chart])

    def png(self) -> bytes:
        return charts.png([self.chart])

    def page(self) -> str:
        return self.table.page(above=f"<figure>{self.svg()}</figure>")

    def to_json(self) -> dict[str, Any]:
        return self.table.to_json()
