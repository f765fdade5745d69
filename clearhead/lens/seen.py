"""What a look at a model brought back."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.views.drawn import Drawn, Figure
from clearhead.lens.views.head_map import HeadMap
from clearhead.lens.views.heads import Grid, check_heads
from clearhead.lens.views.layers import layers_of
from clearhead.lens.views.links import Links

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.lens.aliases import Alias
    from clearhead.lens.places import Slots


class Values(Mapping[str, Tensor]):
    """{address: tensor}. An alias of an address is answered too, with the axes that are usual where it comes from."""

    def __init__(self, values: Mapping[str, Tensor], aliases: Mapping[str, Alias] | None = None) -> None:
        self._values = dict(values)
        self._aliases = aliases or {}

    def __getitem__(self, address: str) -> Tensor:
        alias = self._aliases.get(address)
        if alias is not None and not alias.differs and alias.address in self._values:
            return alias.turned(self._values[alias.address])
        try:
            return self._values[address]
        except KeyError:
            raise KeyError(f"{address!r} was not looked at; there are {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Seen(Values, Drawn):
    """{address: tensor}, the model's `output` of the same pass, and the `tokens` of each row as readable text.

    `sources` are the tokens of what an encoder beside the decoder read, `gradients` {address: tensor} where they were
    asked for. `print(seen)` lists addresses and shapes. `seen.map(...)` is the pattern of one head, `seen.grid()` those
    of all, `seen.links()` lines between tokens: each has `.show()`, `.save(path)` and a form for notebooks.
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        letters: Mapping[str, str],
        output: Any,
        tokens: Sequence[Sequence[str]],
        *,
        sources: Sequence[Sequence[str]] = (),
        gradients: Mapping[str, Tensor] | None = None,
        aliases: Mapping[str, Alias] | None = None,
        slots: Mapping[str, Slots] | None = None,
    ) -> None:
        super().__init__(values, aliases)
        self._letters = dict(letters)
        self._slots = dict(slots or {})
        self.output = output
        self.tokens = [list(row) for row in tokens]
        self.sources = [list(row) for row in sources]
        self.gradients = Values(gradients or {}, aliases)

    def letters(self, address: str) -> str:
        """The axes of a value, in the library's letters: "B H T S"."""
        return self._letters.get(address, "")

    def slots(self, stack: str) -> Slots | None:
        """What the stack of this path read ("" is the model itself): how many slots, and which hold a token."""
        return self._slots.get(stack)

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
        """Draw one pattern in the terminal, as `map` chooses it."""
        self.map(address, head, row=row).show(console=console)

    def figure(self) -> Figure:
        return self.grid()

    def map(self, address: str | None = None, head: int | None = None, *, row: int = 0) -> HeadMap:
        """One pattern: the first one if no address is given; the mean over heads if no head is.

        Raises:
            ClearheadError: there is no such pattern or head.
        """
        layer = layers_of(self, () if address is None else (address,), row)[0]
        if head is not None:
            check_heads(layer, [head])
        pattern_TS = layer.pattern_HTS.mean(0) if head is None else layer.pattern_HTS[head]
        title = f"{layer.name}, {'mean over heads' if head is None else f'head {head}'}"
        return HeadMap(title, pattern_TS, layer.queries, layer.keys)

    def grid(self, *addresses: str, row: int = 0) -> Grid:
        """Every head of every pattern that was looked at, or of those that `addresses` name, as small maps.

        Raises:
            ClearheadError: there is no such pattern.
        """
        return Grid("Every head", layers_of(self, addresses, row))

    def links(
        self, address: str | None = None, heads: Sequence[int] = (), *, first: bool = True, row: int = 0
    ) -> Links:
        """Lines between two rows of tokens. address: the layer shown first, the first one if not given; a page has
        them all to choose from. heads: those of its heads that are shown; all if none is given. first: with links to
        the first token, where heads rest.

        Raises:
            ClearheadError: there is no such pattern or head.
        """
        layers = layers_of(self, (), row)
        shown = layers[0] if address is None else layers_of(self, (address,), row)[0]
        check_heads(shown, heads)
        chosen = [layer.name for layer in layers].index(shown.name)
        return Links("Links between tokens", layers, chosen, tuple(heads), first)

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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For notebooks: the grid of the first row's patterns, or the table of what was looked at."""
        if any(name.endswith(".pattern") for name in self):
            return super()._repr_mimebundle_(include, exclude)
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._table()]
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        return {"text/plain": str(self), "text/html": table}


def _aligned(rows: list[tuple[str, str, str, str]]) -> Iterator[list[str]]:
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        yield [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)] + [row[3]]
