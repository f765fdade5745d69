"""What it costs to run a model, from its config alone, and what the machine has to give."""

from __future__ import annotations

from clearhead.costs.count import Counts, counts

__all__ = ["Counts", "counts"]
