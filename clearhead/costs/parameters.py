"""How many numbers a model has, by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clearhead.costs.names import EXPERTS, PARTS
from clearhead.costs.weights import Weight


@dataclass(frozen=True)
class Parameters:
    """Numbers that loading allocates; what is tied or shared counts once."""

    parts: dict[str, int]
    """By part: embedding, attention, scan, recurrence, feed-forward, experts, router, norms, heads; those that a model
    has."""
    total: int
    active: int
    """Those that work on one token: of the experts only the chosen."""
    trained: int
    """Those that take a gradient, as published numbers count them: a router's correction is set by counting."""

    @property
    def experts(self) -> int:
        """In all experts together."""
        return self.parts.get(EXPERTS, 0)

    @property
    def active_experts(self) -> int:
        """In the experts that one token is sent to."""
        return self.experts - (self.total - self.active)


def parameters(weights: Iterable[Weight]) -> Parameters:
    """Counted from the list of all weights."""
    found = list(weights)
    by_part = {part: sum(w.size for w in found if w.part == part) for part in PARTS}
    return Parameters(
        parts={part: size for part, size in by_part.items() if size},
        total=sum(w.size for w in found),
        active=sum(w.active for w in found),
        trained=sum(w.size for w in found if w.trained),
    )
