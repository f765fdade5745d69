"""What every result of the lens can do: draw itself in a terminal, in a file and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from clearhead.lens.views.sheet import Sheet


class Tabular(Protocol):
    """What a result of rows and columns has. `cells`, `note`, `corner` and `kind` are its own to have or not.

    cells: list[list[str]], a word for each number. note: a sentence on how to read it. corner: what rows and columns
    are ("layer \\\\ head"). kind: "share", "amount" or "signed", where the numbers alone do not tell (see `scale`).
    """

    @property
    def title(self) -> str: ...
    @property
    def values(self) -> Tensor:
        """(rows, columns); not a number where there is nothing."""
        ...

    @property
    def row_labels(self) -> Sequence[str]: ...
    @property
    def column_labels(self) -> Sequence[str]: ...


class Drawn:
    """A base for results. What has title, values, row_labels and column_labels (see `Tabular`) is drawn as a heat map;
    others say in `figure` what they are drawn as.
    """

    def figure(self) -> Figure:
        from clearhead.lens.views.heatmap import heat_map

        return heat_map(cast("Tabular", self))

    def show(self, *, console: Console | None = None) -> None:
        """Draw it in the terminal, as wide as that is."""
        from rich.console import Console as NewConsole
        from rich.text import Text

        console = console or NewConsole()
        for part in self.figure().parts(console):
            console.print(part, soft_wrap=not isinstance(part, Text))

    def save(self, path: str | Path) -> Path:
        """Write .svg, .png, .html or .json, by the file's ending; other endings are a UsageError."""
        from clearhead.lens.views.save import save

        return save(self, path)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        return self.figure().to_json()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from clearhead.lens.views.notebook import bundle

        return bundle(self.figure())


class Figure(Drawn, ABC):
    """Something to draw, with a form for each place it may be drawn in."""

    def figure(self) -> Figure:
        return self

    @abstractmethod
    def parts(self, console: Console) -> list[RenderableType]:
        """For the terminal, from top to bottom."""

    @abstractmethod
    def svg(self) -> str: ...

    @abstractmethod
    def png(self) -> bytes: ...

    @abstractmethod
    def page(self) -> str:
        """One HTML file, complete."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...


class SheetFigure(Figure):
    """A figure that is laid out once for both kinds of picture."""

    @abstractmethod
    def sheet(self) -> Sheet: ...

    def svg(self) -> str:
        from clearhead.lens.views import svg

        return svg.draw(self.sheet())

    def png(self) -> bytes:
        from clearhead.lens.views import png

        return png.draw(self.sheet())
