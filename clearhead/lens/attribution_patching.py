"""Attribution patching: what a sweep would find, from one gradient (Nanda 2023; Syed 2023, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs
from clearhead.lens.metrics import Metric, measured
from clearhead.lens.pairs import given, scale_of, two_runs
from clearhead.lens.patching import Over, Places, Sweep, column_labels, padded, swept
from clearhead.lens.record import look

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


class Gap(NamedTuple):
    """How far an estimate is from the sweep it estimates, in the sweep's unit (1 is the whole way to clean)."""

    worst: float
    mean: float
    correlation: float


@dataclass(frozen=True, eq=False)
class Estimate(Sweep):
    """A sweep as its gradient foresees it."""

    def gap(self, real: Sweep) -> Gap:
        """How far it is from the real sweep of the same place.

        Raises:
            ClearheadError: the other is of another place, other texts, or another model.
        """
        if (real.site, real.over, real.values.shape) != (self.site, self.over, self.values.shape):
            raise ClearheadError(f"{real.title!r} goes over other places than {self.title!r}; sweep the same site")
        there = ~real.values.isnan()
        both = torch.stack([self.values[there], real.values[there]])
        off = (both[0] - both[1]).abs()
        return Gap(float(off.max()), float(off.mean()), float(torch.corrcoef(both)[0, 1]))


def attribution_patching(
    model: Transformer,
    clean: Inputs,
    corrupted: Inputs,
    metric: Metric,
    *,
    site: str = "resid_pre",
    over: Over = "position",
    noising: bool = False,
) -> Estimate:
    """What `patching` with the same arguments would give, to first order: (clean - corrupted) . gradient, at every
    place, from two passes and one gradient (of the run that would be patched).

    It is exact where the metric is linear in what is patched, and poor where something saturates on the way: a norm, or
    a pattern that is nearly 0 or 1. `estimate.gap(patching(...))` says by how much.

    Raises:
        ClearheadError: as `patching`; and a site that is chosen among, which has no gradient.
    """
    places = swept(model, site, over)
    runs = two_runs(model, clean, corrupted)
    base, donor = (runs.clean, runs.corrupted) if noising else (runs.corrupted, runs.clean)
    given_by = look(model, given(donor), *places.addresses)
    if not given_by[places.addresses[0]].is_floating_point():
        raise ClearheadError(f"{site} is chosen among, so it has no gradient; use patching")
    at_base = look(model, given(base), *places.addresses, gradient_of=lambda output: measured(metric, output))
    ends = (at_base.output, given_by.output) if noising else (given_by.output, at_base.output)
    scale = scale_of(metric, *ends)
    start = scale.clean if noising else scale.corrupted
    rows = []
    for where in places.addresses:
        moved = _moved(given_by[where], at_base[where], at_base.gradients[where], places)
        rows.append([scale.share(start + by) for by in moved.tolist()])
    way = "corrupted into clean" if noising else "clean into corrupted"
    return Estimate(
        title=f"Patching {site}, {way}, by gradient",
        values=padded(rows),
        row_labels=places.row_labels,
        column_labels=column_labels(model, runs, places, max(map(len, rows))),
        site=site,
        over=over,
        scale=scale,
    )


def _moved(donor: Tensor, base: Tensor, gradient: Tensor, places: Places) -> Tensor:
    """How far the metric moves, along the axis of the sweep."""
    # Masked scores are minus infinity on both sides, and do not move.
    step = torch.where(donor == base, 0.0, donor.double() - base.double())
    moved: Tensor = (step * gradient.double()).movedim(places.axis, 0).flatten(1).sum(1)
    return moved
