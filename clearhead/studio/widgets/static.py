"""A figure without its widget: HTML that needs no kernel and runs no script of ours, and files."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearhead.lens.views.heatmap import HeatMap

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn
    from clearhead.studio.operations import Answer

MOST = 4_000
"""A matrix of more numbers is not drawn as the still form of a figure."""


@dataclass(frozen=True)
class Still:
    """drawn: what stands for the figure; none where there is nothing to draw. python: what computes its numbers."""

    drawn: Drawn | None
    title: str = ""
    python: str = ""

    def html(self) -> str:
        parts = [f"<p><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.drawn is None:
            parts.append("<p>This figure is drawn by its kernel: run the cell to see it.</p>")
        if self.drawn is not None:
            parts.append(self.drawn._repr_mimebundle_().get("text/html", "") if not self.python else self._picture())
        if self.python:
            parts.append(f"<details><summary>The same in Python</summary><pre>{escape(self.python)}</pre></details>")
        return "\n".join(parts)

    def plain(self) -> str:
        return self.drawn._repr_mimebundle_()["text/plain"] if self.drawn is not None else self.title

    def save(self, path: str | Path) -> Path:
        from clearhead.errors import ClearheadError

        if self.drawn is None:
            raise ClearheadError(
                f"{self.title}: its numbers come when it is shown; show it, then save it, or save it from its own menu"
            )
        return self.drawn.save(path)

    def _picture(self) -> str:
        import base64

        assert self.drawn is not None
        picture = base64.b64encode(self.drawn.figure().svg().encode()).decode("ascii")
        return f'<img alt="{escape(self.title)}" src="data:image/svg+xml;base64,{picture}" style="max-width:100%">'


def of_answer(name: str, op: str, answer: Answer | None) -> Still:
    """The still form of a lesson's figure: its first matrix as a table of colours, else the numbers its code prints."""
    title = f"{name} (clearhead studio)"
    if answer is None:
        return Still(None, title)
    for key, array in answer.arrays.items():
        values = torch.as_tensor(array)
        if values.ndim == 2 and 0 < values.numel() <= MOST:
            rows, columns = (_labels(answer, n) for n in values.shape)
            numbers = values.float().where(values.isfinite(), torch.nan)
            return Still(HeatMap(f"{title}: {key}", numbers, rows, columns), title, answer.python)
    if answer.printed:
        values = torch.tensor([list(answer.printed[:64])])
        return Still(HeatMap(title, values, [op], [str(i) for i in range(values.shape[1])]), title, answer.python)
    return Still(None, title, answer.python)


def _labels(answer: Answer, n: int) -> list[str]:
    """The first list of as many words that came with the answer; else numbers."""
    for value in answer.data.values():
        if _is_words(value) and len(value) == n:
            return list(value)
    return [str(i) for i in range(n)]


def _is_words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
