"""The parts that costs are told by, and how sizes are checked."""

from __future__ import annotations

from typing import Any

from clearhead.errors import ClearheadError

EMBEDDING = "embedding"
ATTENTION = "attention"
SCAN = "scan"
RECURRENCE = "recurrence"
FEED_FORWARD = "feed-forward"
EXPERTS = "experts"
ROUTER = "router"
NORMS = "norms"
HEADS = "heads"
WORKING = "working"
PARTS = (EMBEDDING, ATTENTION, SCAN, RECURRENCE, FEED_FORWARD, EXPERTS, ROUTER, NORMS, HEADS)


def not_understood(config: Any) -> ClearheadError:
    """The refusal of a part without a formula."""
    return ClearheadError(
        f"nothing is known of what a {type(config).__name__} costs; give a TransformerConfig, a TwoTowersConfig or a "
        "model"
    )


def check_size(name: str, value: int, least: int = 1) -> None:
    """Refuse a size that is no whole number, or less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ClearheadError(f"{name} is {value}; it must be a whole number, {least} or more")
