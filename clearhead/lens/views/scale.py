"""How numbers become colours and short texts: weights, numbers with a sign, and others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.lens.views.palette import LEVELS, level

Kind = Literal["share", "amount", "signed"]
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""The weights a key shows."""


@dataclass(frozen=True)
class Scale:
    """share: 0 to 1, by the square root. amount: from `low` to `high`. signed: from -`high` to `high`."""

    kind: Kind = "share"
    low: float = 0.0
    high: float = 1.0

    def tone(self, value: float) -> str:
        """The colour's name, as `palette.tones` knows it; "none" for what is not a number."""
        if math.isnan(value):
            return "none"
        if self.kind == "share":
            return f"c{level(value)}"
        span = self.high - self.low
        place = min(max((value - self.low) / span, 0.0), 1.0) if span else 0.0
        return f"{'d' if self.kind == 'signed' else 'c'}{math.floor(place * LEVELS + 0.5)}"

    def say(self, value: float) -> str:
        """The number in full: four places for a weight, five digits for the rest."""
        if math.isnan(value):
            return "no number"
        return f"{value:.4f}" if self.kind == "share" else f"{value:.5g}"

    def short(self, value: float) -> str:
        """The number in at most five characters, as it stands in a cell: percent for a weight."""
        if math.isnan(value):
            return ""
        if self.kind == "share":
            return f"{100 * value:.0f}"
        text = f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
        text = text.replace("-0.00", "0.00")
        return text if len(text) <= 5 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")

    def to_json(self) -> dict[str, Any]:
        """For a page's script."""
        return {"kind": self.kind, "low": self.low, "high": self.high, "key": self.key()}

    def key(self) -> list[float]:
        """The numbers that a key of the colours shows, lowest first."""
        if self.kind == "share":
            return list(SHARES)
        steps = 6 if self.kind == "signed" else 7
        return [self.low + (self.high - self.low) * step / steps for step in range(steps + 1)]


def scale_of(values: Tensor, kind: Kind | None = None) -> Scale:
    """The scale that fits: signed where there is a number below zero, share where none is above one."""
    known = values[torch.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 1.0)
    if kind is None:
        kind = "signed" if low < 0 else "share" if high <= 1 + 1e-6 else "amount"
    if kind == "share":
        return Scale()
    if kind == "signed":
        most = max(abs(low), abs(high)) or 1.0
        return Scale(kind, -most, most)
    return Scale(kind, low, high)
