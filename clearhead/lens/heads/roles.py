"""From what was measured to what a head is said to do."""

from __future__ import annotations

from collections.abc import Mapping

from clearhead.lens.heads.measure import Measure

UNKNOWN = "unknown"
RESTS = ("first token", "end token", "one patch")
"""Where a head looks that has nothing to look at (Xiao 2023, "attention sinks"; Darcet 2023, "Vision Transformers Need
Registers"): its role only if nothing else is.
"""
EFFECT, SURE = 0.15, 4.0
"""What a role gets beyond its control, at least: so much of all attention, and so many of its standard deviations."""


def stands_out(measure: Measure) -> bool:
    return measure.effect >= EFFECT and measure.sure >= SURE


def role_of(measures: Mapping[str, Measure]) -> str:
    """What gets most attention beyond its control, of what stands out; resting where nothing else does."""
    found = {name: measure.effect for name, measure in measures.items() if stands_out(measure)}
    does = {name: effect for name, effect in found.items() if name not in RESTS}
    return max(does or found, key=lambda name: found[name], default=UNKNOWN)
