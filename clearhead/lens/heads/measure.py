"""Running the probes, and what every head scores in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from clearhead.config import MaskConfig
from clearhead.lens.heads import scores
from clearhead.lens.heads.aims import TokenAim
from clearhead.lens.heads.parts import Part
from clearhead.lens.heads.probes import Probe
from clearhead.taps import Mode

SHUFFLES = 8
"""How often rows are shuffled where the control has no closed form."""
AT_ONCE = 4096
"""Tokens that are read at once, about."""
LEAST_SPREAD = 1e-3
"""What a control's spread counts at least: a thousandth of all attention, below which nothing is told apart."""


@dataclass(frozen=True)
class Measure:
    """One thing a head may do. `score` is the attention that goes to where it would look, 0 to 1 and the mean over
    tokens (less than 0 where a rival gets more). `control` is the same where tokens, or the places they are looked at,
    are shuffled: its mean, and its `spread`, a standard deviation.
    """

    score: float
    control: float
    spread: float

    @property
    def effect(self) -> float:
        """How much more attention than in the control."""
        return self.score - self.control

    @property
    def sure(self) -> float:
        """The effect in standard deviations of the control, taken as no smaller than 0.001."""
        return self.effect / max(self.spread, LEAST_SPREAD)


@dataclass(frozen=True)
class Looks:
    """How a head looks in ordinary input: the entropy of a row in nats, and the distance in tokens, in the mean."""

    entropy: float
    distance: float


Where = tuple[int, int]
"""A layer and a head."""
K = TypeVar("K")


@dataclass(frozen=True)
class Found:
    """What was measured in one stack."""

    measures: dict[Where, dict[str, Measure]]
    looks: dict[Where, Looks]


def measure(part: Part, probes: Sequence[Probe], progress: Callable[[int], None] = lambda rows: None) -> Found:
    """Every head's score for every aim of the probes. `progress` is told how many rows more were read."""
    measures: dict[Where, dict[str, Measure]] = defaultdict(dict)
    looks: dict[Where, Looks] = {}
    for probe in probes:
        reader = Reader(part, probe)
        n_tokens = next(iter(probe.batch.values())).shape[-1] if part.kind == "tokens" else 256
        at_once = max(1, AT_ONCE // n_tokens)
        for start in range(0, probe.n_rows, at_once):
            reader.rows = range(start, min(start + at_once, probe.n_rows))
            with torch.no_grad():
                part.run({name: value[start : start + at_once] for name, value in probe.batch.items()}, reader)
            progress(len(reader.rows))
        for where, found in reader.measures().items():
            measures[where].update(found)
        looks.update(reader.looks())
    return Found(dict(measures), looks)


class Reader:
    """Taps that take from each pattern what is asked about it, and let it go."""

    def __init__(self, part: Part, probe: Probe) -> None:
        self.probe = probe
        self.rows = range(0)
        self._layers = {part.mixer(layer): (layer, mask) for layer, mask in part.layers.items()}
        self._at_tokens: dict[tuple[int, str], Tensor] = {}
        self._at_places: dict[tuple[int, str], Tensor] = {}
        self._looks: dict[int, Tensor] = {}
        self._shared: dict[int, Tensor] = {}
        self._generator = torch.Generator().manual_seed(0)

    def mode(self, path: str, name: str) -> Mode:
        return "read" if name == "pattern" and path in self._layers else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        if self.mode(path, name) == "read":
            self._read(*self._layers[path], value.detach().float().cpu())
        return value

    def _read(self, layer: int, mask: MaskConfig, pattern_BHTS: Tensor) -> None:
        probe, group_B = self.probe, self.probe.group_B[self.rows.start : self.rows.stop]
        for aim in probe.token_aims:
            here = _within(aim, self.rows)
            _add(self._at_tokens, (layer, aim.name), scores.at_tokens(pattern_BHTS, here, group_B, probe.n_groups))
        plain_BHTS = pattern_BHTS[group_B == 0]
        if not probe.place_aims or not len(plain_BHTS):
            return
        allowed_TS = scores.allowed(mask, pattern_BHTS.shape[-1])
        for place in probe.place_aims:
            found_H, mean_H, variance_H, n = scores.at_places(plain_BHTS, place, allowed_TS)
            sums_4H = torch.stack([found_H, mean_H, variance_H, torch.full_like(found_H, n)])
            _add(self._at_places, (layer, place.name), sums_4H)
        looks_2H = torch.stack([scores.entropy(plain_BHTS), scores.mean_distance(plain_BHTS)])
        _add(self._looks, layer, looks_2H * len(plain_BHTS))
        if probe.shared is not None:
            controls = (scores.shuffled(plain_BHTS, self._generator) for _ in range(SHUFFLES))
            shared_XH = torch.stack([scores.most_shared(x_BHTS) for x_BHTS in (plain_BHTS, *controls)])
            _add(self._shared, layer, shared_XH * len(plain_BHTS))

    def measures(self) -> dict[Where, dict[str, Measure]]:
        found: dict[Where, dict[str, Measure]] = defaultdict(dict)
        n_queries = {aim.name: aim.n_queries for aim in self.probe.token_aims}
        for (layer, name), sums_GH in self._at_tokens.items():
            means_GH = sums_GH.double() / n_queries[name]
            spread_H = means_GH[1:].std(0)
            for head, (score, *controls) in enumerate(means_GH.T.tolist()):
                found[layer, head][name] = Measure(score, sum(controls) / len(controls), float(spread_H[head]))
        for (layer, name), sums_4H in self._at_places.items():
            for head, (score, control, variance, n) in enumerate(sums_4H.T.tolist()):
                if n:
                    found[layer, head][name] = Measure(score / n, control / n, variance**0.5 / n)
        for layer, shared_XH in self._shared.items():
            assert self.probe.shared is not None
            for head, shares_X in enumerate((shared_XH / self._n_plain).T):
                controls = shares_X[1:]
                found[layer, head][self.probe.shared] = Measure(
                    float(shares_X[0]), float(controls.mean()), float(controls.std())
                )
        return found

    @property
    def _n_plain(self) -> int:
        return int((self.probe.group_B == 0).sum())

    def looks(self) -> dict[Where, Looks]:
        return {
            (layer, head): Looks(*(value / self._n_plain for value in values))
            for layer, sums_2H in self._looks.items()
            for head, values in enumerate(sums_2H.T.tolist())
        }


def _within(aim: TokenAim, rows: range) -> TokenAim:
    """The aim's cells in some of the rows, which are counted from the first of them."""
    here_N = (aim.row_N >= rows.start) & (aim.row_N < rows.stop)
    row_N, query_N, key_N, weight_N = (x[here_N] for x in (aim.row_N, aim.query_N, aim.key_N, aim.weight_N))
    return replace(aim, row_N=row_N - rows.start, query_N=query_N, key_N=key_N, weight_N=weight_N)


def _add(sums: dict[K, Tensor], key: K, value: Tensor) -> None:
    sums[key] = sums[key] + value if key in sums else value
