"""Activation patching: put values of one run into another, place by place, and see which matter (Meng 2022, ROME)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Arguments, Inputs
from clearhead.lens.edit import edit
from clearhead.lens.metrics import Metric, measured
from clearhead.lens.pairs import Scale, TwoRuns, given, n_rows, repeated, scale_of, token_labels, two_runs
from clearhead.lens.record import look
from clearhead.lens.table import Table
from clearhead.lens.targets import logits_of
from clearhead.progress import progress_bar
from clearhead.taps import catalogue, resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Over = Literal["position", "head"]
AXES = {"position": "TS", "head": "HG"}
"""The letters of a shape that a sweep may go along."""
AT_ONCE = 2**25
"""Numbers of output computed at a time: 128 MB in float32."""


@dataclass(frozen=True, eq=False)
class Sweep(Table):
    """A row a layer; a column a place or a head. `values`: how much of the way from the corrupted run's metric to the
    clean one's the patched run went; 0 is corrupted, 1 is clean.
    """

    note: ClassVar[str] = "0 is the corrupted run, 1 the clean one."
    site: str
    over: Over
    scale: Scale

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        own = {"site": self.site, "over": self.over, "clean": self.scale.clean, "corrupted": self.scale.corrupted}
        return {**super().to_json(), **own}


def patching(
    model: Transformer,
    clean: Inputs,
    corrupted: Inputs,
    metric: Metric,
    *,
    site: str = "resid_pre",
    over: Over = "position",
    noising: bool = False,
) -> Sweep:
    """Patch `site` in every layer, one place or one head at a time.

    The corrupted text is run with values of the clean run in it, which shows what is enough to restore the answer;
    `noising` the other way round, which shows what the answer needs (Heimersheim 2024, section 2). site: what follows
    `layers.N.` in an address (`resid_pre`, `mixer.out`, `ffn.out`, `mixer.z`, `mixer.pattern`, ...); layers without it
    are left out. metric: of the logits; see `logit_difference`. Of a batch, the mean.

    Raises:
        ClearheadError: texts of unequal length, a site that is not there or has no such axis, or a metric that is the
            same for both.
    """
    *_, whole = patching_by_layer(model, clean, corrupted, metric, site=site, over=over, noising=noising)
    return whole


def patching_by_layer(
    model: Transformer,
    clean: Inputs,
    corrupted: Inputs,
    metric: Metric,
    *,
    site: str = "resid_pre",
    over: Over = "position",
    noising: bool = False,
) -> Iterator[Sweep]:
    """`patching` as it comes: a table after each layer, with one row more than the one before."""
    places = swept(model, site, over)
    runs = two_runs(model, clean, corrupted)
    base, donor = (runs.clean, runs.corrupted) if noising else (runs.corrupted, runs.clean)
    given_by = look(model, given(donor), *places.addresses)
    base_output = edit(model, given(base), {})
    ends = (base_output, given_by.output) if noising else (given_by.output, base_output)
    scale = scale_of(metric, *ends)
    at_once = max(1, AT_ONCE // logits_of(base_output).numel())
    way = "corrupted into clean" if noising else "clean into corrupted"
    widest = max(given_by[where].shape[places.axis] for where in places.addresses)
    columns = column_labels(model, runs, places, widest)
    rows, total = [], sum(given_by[where].shape[places.axis] for where in places.addresses)
    with progress_bar("patching", total) as advance:
        for where in places.addresses:
            value = given_by[where]
            row: list[float] = []
            for start in range(0, value.shape[places.axis], at_once):
                some = range(start, min(start + at_once, value.shape[places.axis]))
                row += _patched(model, base, metric, where, value, places.axis, some)
                advance(len(some))
            rows.append([scale.share(measure) for measure in row])
            yield Sweep(
                title=f"Patching {site}, {way}",
                values=padded(rows, widest),
                row_labels=places.row_labels[: len(rows)],
                column_labels=columns,
                site=site,
                over=over,
                scale=scale,
            )


def _patched(
    model: Transformer, base: Arguments, metric: Metric, where: str, donor: Tensor, axis: int, columns: range
) -> list[float]:
    """The metric with each of these columns patched; all in one pass, a copy of the batch for each."""
    n, B = len(columns), n_rows(base)

    def patch(value: Tensor) -> Tensor:
        value = value.clone()
        for copy, column in enumerate(columns):
            value[copy * B : (copy + 1) * B].select(axis, column).copy_(donor.select(axis, column))
        return value

    output = edit(model, repeated(base, n), {where: patch})
    return [float(measured(metric, part)) for part in logits_of(output).chunk(n)]


# ---- where a sweep goes


@dataclass(frozen=True)
class Places:
    """The addresses of a sweep, one a layer, and which axis of their values it goes along."""

    addresses: list[str]
    row_labels: list[str]
    letter: str
    axis: int


def swept(model: Transformer, site: str, over: Over) -> Places:
    """Where a sweep of `site` goes.

    Raises:
        ClearheadError: no layer has it, or its shape has no such axis.
    """
    if not hasattr(model, "layers"):
        raise ClearheadError("a sweep goes through the layers of one stack, and this model has two towers")
    if over not in AXES:
        raise ClearheadError(f"over is {over!r}; a sweep goes over {' or '.join(AXES)}")
    known = catalogue(model)
    addresses = [where for layer in range(len(model.layers)) if (where := f"layers.{layer}.{site}") in known]
    if not addresses:
        resolve(model, [f"layers.0.{site}"])  # which says what is near
    letters = known[addresses[0]].split()
    axis = next((i for i, letter in enumerate(letters) if letter in AXES[over]), None)
    if axis is None:
        raise ClearheadError(f"{addresses[0]} is {' '.join(letters)}: it has no {over}s to sweep over")
    return Places(addresses, [f"layer {where.split('.')[1]}" for where in addresses], letters[axis], axis)


def column_labels(model: Transformer, runs: TwoRuns, places: Places, n: int) -> list[str]:
    """Heads by number, places by their tokens."""
    if places.letter in AXES["head"]:
        return [str(head) for head in range(n)]
    crossed = places.letter == "S" and ".cross." in places.addresses[0]
    return token_labels(model, runs, n, of_source=crossed)


def padded(rows: list[list[float]], width: int | None = None) -> Tensor:
    """Rows of unequal length as one tensor, NaN where there is nothing; as wide as the longest, or as asked."""
    width = max(map(len, rows)) if width is None else width
    return torch.tensor([[*row, *[torch.nan] * (width - len(row))] for row in rows], dtype=torch.float64)
