"""What a look at a model brought back."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from rich.console import Console

_PICTURES = 24
"""The most heads that a notebook shows at once."""


class Seen(Mapping[str, Tensor]):
    """{address: tensor}, the model's `output` of the same pass, and the `tokens` of each row as readable text.

    `print(seen)` lists addresses and shapes; `seen.show(...)` draws a pattern in the terminal; a notebook draws them.
    """

    def __init__(
        self, values: Mapping[str, Tensor], letters: Mapping[str, str], output: Any, tokens: Sequence[Sequence[str]]
    ) -> None:
        self._values = dict(values)
        self._letters = dict(letters)
        self.output = output
        self.tokens = [list(row) for row in tokens]

    def __getitem__(self, address: str) -> Tensor:
        try:
            return self._values[address]
        except KeyError:
            raise KeyError(f"{address!r} was not looked at; there are {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        """A line an address: shape in the library's letters, in numbers, and the dtype."""
        return "\n".join("  ".join(column) for column in _aligned(self._table())) or "nothing was looked at"

    def __repr__(self) -> str:
        return (
            f"<Seen: {len(self)} values of {', '.join(self._values)}>"
            if len(self) < 4
            else f"<Seen: {len(self)} values>"
        )

    def show(
        self, address: str | None = None, head: int | None = None, *, row: int = 0, console: Console | None = None
    ) -> None:
        """Draw a pattern in the terminal: the first one if no address is given; the mean over heads if no head is."""
        from rich.console import Console as NewConsole
        from rich.text import Text

        from clearhead.lens.views.screen import theme_of
        from clearhead.lens.views.terminal import attention_map

        address = address or next((name for name in self if name.endswith(".pattern")), None)
        if address is None:
            raise ClearheadError('no pattern was looked at; look at "layers.*.mixer.pattern" to have one drawn')
        pattern_HTS = self.pattern(address, row)
        if head is not None and not 0 <= head < len(pattern_HTS):
            raise ClearheadError(f"{address} has heads 0 to {len(pattern_HTS) - 1}, not {head}")
        pattern_TS = pattern_HTS.mean(0) if head is None else pattern_HTS[head]
        console = console or NewConsole()
        console.print(Text(f"{address}, {'mean over heads' if head is None else f'head {head}'}", style="bold"))
        console.print(
            attention_map(pattern_TS, self.labels(row), width=console.width, theme=theme_of(console)), soft_wrap=True
        )

    def pattern(self, address: str, row: int = 0) -> Tensor:
        """The heads' patterns of one row of the batch: (H, T, S), float32 on the CPU, rows summing to one."""
        if not address.endswith(".pattern"):
            raise ClearheadError(f"{address} is not an attention pattern; only those can be drawn as a map")
        pattern_BHTS = self[address]
        if not 0 <= row < len(pattern_BHTS):
            raise ClearheadError(f"the batch has rows 0 to {len(pattern_BHTS) - 1}, not {row}")
        return pattern_BHTS[row].detach().float().cpu()

    def labels(self, row: int = 0) -> list[str]:
        """The row's tokens, safe to print."""
        from clearhead.lens.views.labels import visible

        return [visible(token) for token in self.tokens[row]]

    def _table(self) -> list[tuple[str, str, str, str]]:
        return [
            (name, self._letters.get(name, ""), str(tuple(value.shape)), str(value.dtype).removeprefix("torch."))
            for name, value in self.items()
        ]

    def _repr_html_(self) -> str:
        """For notebooks: the first row's patterns as small maps, and the table."""
        heads = [
            (name, head)
            for name, value in self.items()
            if name.endswith(".pattern") and self.tokens
            for head in range(value.shape[1])
        ]
        pictures = "".join(self._figure(name, head) for name, head in heads[:_PICTURES])
        more = f"<p>{len(heads) - _PICTURES} more heads are not drawn</p>" if len(heads) > _PICTURES else ""
        text = html.escape(" ".join(self.labels())) if self.tokens else ""
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._table()]
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        return (
            f'<p style="font-size:12px">{text}</p>'
            f'<div style="display:flex;flex-wrap:wrap;gap:10px">{pictures}</div>{more}'
            f"<details{'' if pictures else ' open'}><summary>{len(self)} values</summary>{table}</details>"
        )

    def _figure(self, address: str, head: int) -> str:
        from clearhead.lens.views.thumbnail import thumbnail

        image = base64.b64encode(thumbnail(self.pattern(address)[head])).decode("ascii")
        label = html.escape(f"{address.removesuffix('.pattern')} \N{MIDDLE DOT} {head}")
        return (
            f'<figure style="margin:0"><img alt="{label}" src="data:image/png;base64,{image}"'
            ' style="width:132px;height:132px;image-rendering:pixelated">'
            f'<figcaption style="font-size:11px">{label}</figcaption></figure>'
        )


def _aligned(rows: list[tuple[str, str, str, str]]) -> Iterator[list[str]]:
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        yield [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)] + [row[3]]
