"""What fits in a memory, and what tokens cost: the longest text, how many users, the price of a million tokens."""

from __future__ import annotations

from collections.abc import Callable

from clearhead.config import LearnedPositions, SinusoidalPositions, TransformerConfig
from clearhead.costs.count import Counts
from clearhead.costs.state import state_bytes
from clearhead.errors import UsageError

LENGTHS = (8192, 131072)
"""At these the state is told beside the one asked about."""
NO_END = 2**40
"""Tokens that no text has: what holds so far holds for any."""


def made_for(counts: Counts) -> int | None:
    """The longest text a model was made for, in tokens; what its picture or sound becomes; None where it has no end."""
    if not isinstance(config := counts.config, TransformerConfig):
        return made_for(Counts(config.text))
    if counts.fixed_tokens is not None:
        return counts.fixed_tokens
    places = config.stack.embed.positions
    limits = [] if config.context is None else [config.context]
    if isinstance(places, LearnedPositions):
        limits.append(places.n - (places.offset if places.pad_id is None else places.pad_id + 1))
    elif isinstance(places, SinusoidalPositions):
        limits.append(places.n)
    return min(limits, default=None)


def writes(counts: Counts) -> bool:
    """Whether the model has a decoder, which writes token after token and keeps a state."""
    return isinstance(counts.config, TransformerConfig) and counts.config.decoder is not None


def state_at(counts: Counts, batch: int, context: int, width: int) -> int:
    """Bytes of state of `batch` texts, however long; beyond what the model was made for, as if that were more."""
    config, end = counts.config, made_for(counts)
    if end is None or context <= end or not isinstance(config, TransformerConfig):
        return counts.state(batch, context, width).total
    of_source = counts.state(batch, end, width).kinds.get("cross", 0)
    return state_bytes(config.decoder, config.d_model, batch, context, width, 0).total + of_source


def weight_bytes(counts: Counts, width: int) -> int:
    """Of all weights."""
    return counts.parameters.total * width


def users(counts: Counts, context: int, memory: int, width: int) -> int | None:
    """How many texts of `context` tokens can be written at once where weights and states share `memory` bytes; None
    where a text keeps nothing.
    """
    room, each = memory - weight_bytes(counts, width), counts.state(1, context, width).total
    if each == 0:
        return None
    return max(0, room // each)


def longest(counts: Counts, batch: int, memory: int, width: int) -> int | None:
    """How long the texts of a batch can be in `memory` bytes, the weights beside them; 0 where those don't fit, and
    None where there is no end (all layers keep what they need in a fixed place).
    """
    room = memory - weight_bytes(counts, width)
    if room < 0:
        return 0
    first_over = _first(lambda n: state_at(counts, batch, n, width) > room)
    return None if first_over is None else first_over - 1


def outweighs(counts: Counts, batch: int, width: int) -> int | None:
    """The length from which the states of a batch take as many bytes as the weights; None where that never comes."""
    weights = weight_bytes(counts, width)
    return _first(lambda n: state_at(counts, batch, n, width) >= weights)


def _first(holds: Callable[[int], bool]) -> int | None:
    """The least number from 1 on for which it holds, where from there on it always does; None beyond NO_END."""
    if not holds(NO_END):
        return None
    low, high = 0, NO_END
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def devices_needed(n_bytes: int, memory: int) -> int:
    """How many memories of this size hold so much."""
    return max(1, -(-n_bytes // memory))


def price_per_million(seconds: float, n_tokens: int, price_per_hour: float) -> float:
    """Of tokens of which `n_tokens` take `seconds` on something hired by the hour.

    Raises:
        UsageError: the price is below 0.
    """
    if price_per_hour < 0:
        raise UsageError(f"a price per hour is 0 or more, and not {price_per_hour:g}")
    return seconds / n_tokens * 1e6 * price_per_hour / 3600
