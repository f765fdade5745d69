"""What training keeps beside what it computes: weights, their gradients, and what the optimiser remembers, in bytes.

    adamw       two numbers a weight, and how many steps were made, a tensor (Loshchilov and Hutter 2017)
    muon        one number a weight of the matrices inside blocks, and AdamW's for the rest (Jordan 2024)
    adafactor   a number a row and one a column of a matrix, a number each of what is none (Shazeer and Stern 2018)

as `clearhead.training.optimiser` makes them. Processes that share every weight (FSDP2) cut each tensor along its first
dimension, into parts as large as the largest; those that share matrices (Megatron-LM) have some heads and some hidden
units each, and all else whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any, Literal

from clearhead.config import AttentionConfig, BlockConfig, ExpertsConfig, FeedForwardConfig
from clearhead.costs.weights import Weight, heads_stand_apart, sublayers
from clearhead.errors import ClearheadError

OptimiserName = Literal["adamw", "muon", "adafactor"]
OPTIMISERS: tuple[OptimiserName, ...] = ("adamw", "muon", "adafactor")
STEP = 4
"""Bytes of the number of steps made, which is kept for each tensor."""


@dataclass(frozen=True)
class TrainedBytes:
    """Bytes that training keeps beside activations."""

    weights: int
    gradients: int
    state: int
    """What the optimiser remembers."""
    gathered: int = 0
    """On one of several processes that share every weight: what is whole for a while. Those are the weights outside
    the blocks, those of two blocks (one is fetched while the other is computed), and the gradient of one of them."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.state + self.gathered


def remembered(weight: Weight, name: OptimiserName, width: int) -> int:
    """Bytes that an optimiser keeps for one tensor.

    Raises:
        ClearheadError: there is no such optimiser.
    """
    if name not in OPTIMISERS:
        raise ClearheadError(f"there is no optimiser {name!r}; choose one of {', '.join(OPTIMISERS)}")
    if not weight.trained:
        return 0
    if name == "muon" and weight.matrix:
        return weight.size * width
    if name != "adafactor":
        return 2 * weight.size * width + STEP
    return _factors(weight) * width + STEP


def _factors(weight: Weight) -> int:
    """Of the last two dimensions, a number for each row and for each column."""
    if len(weight.shape) < 2:
        return weight.size
    *others, n_rows, n_columns = weight.shape
    return prod(others) * (n_rows + n_columns)


def trained_bytes(weights: Sequence[Weight], name: OptimiserName, width: int) -> TrainedBytes:
    """Of one process that has everything.

    Raises:
        ClearheadError: there is no such optimiser, or nothing for it to move.
    """
    _check_muon(weights, name)
    return TrainedBytes(
        weights=width * sum(w.size for w in weights),
        gradients=width * sum(w.size for w in weights if w.trained),
        state=sum(remembered(w, name, width) for w in weights),
    )


def _check_muon(weights: Iterable[Weight], name: OptimiserName) -> None:
    if name == "muon" and not any(w.matrix for w in weights):
        raise ClearheadError("Muon moves the matrices inside blocks, and there are none here; use adamw")


# ---- one of several processes


def rank_bytes(weights: Sequence[Weight], name: OptimiserName, width: int, shard: int, tensor: int) -> TrainedBytes:
    """Of the process that has most, where `shard` x `tensor` share a model.

    Raises:
        ClearheadError: there is no such optimiser, it needs its matrices whole, or has nothing to move.
    """
    if name == "adafactor" and shard * tensor > 1:
        raise ClearheadError(
            "torch's adafactor needs every matrix whole, and several processes share them; use adamw or muon"
        )
    here = [_split(w, w.split, tensor) for w in weights]
    alone = trained_bytes([_split(w, 0, shard) for w in here], name, width)
    return replace(alone, gathered=width * _gathered(here) if shard > 1 else 0)


def _split(weight: Weight, dim: int | None, n: int) -> Weight:
    """The largest part of a tensor that `n` processes share along a dimension."""
    if dim is None or n == 1 or not weight.shape:
        return weight
    shape = list(weight.shape)
    shape[dim] = -(-shape[dim] // n)
    return replace(weight, shape=tuple(shape))


def _gathered(weights: Iterable[Weight]) -> int:
    """Numbers that are whole for a while (Zhao 2023, PyTorch FSDP, section 4)."""
    units: Counter[str | None] = Counter()
    for weight in weights:
        units[weight.block] += weight.size
    outside = units.pop(None, 0)
    largest = max(units.values(), default=0)
    return outside + min(2, len(units)) * largest + max(outside, largest)


@singledispatch
def check_shared(op: Any, path: str, n: int) -> None:
    """Refuse to share a part among `n` processes that is not cut evenly by them. Parts without a plan are whole.

    Raises:
        ClearheadError: heads or hidden units would be left over.
    """


@check_shared.register
def _attention(op: AttentionConfig, path: str, n: int) -> None:
    if heads_stand_apart(op):
        for count, what in ((op.n_heads, "heads"), (op.n_kv_heads, "key-value heads")):
            _check_even(path, count, what, n)


@check_shared.register
def _feed_forward(op: FeedForwardConfig, path: str, n: int) -> None:
    _check_even(path, op.d_ff, "hidden units", n)


@check_shared.register
def _experts(op: ExpertsConfig, path: str, n: int) -> None:
    if op.shared is not None:
        _feed_forward(op.shared, f"{path}.shared", n)


def _check_even(path: str, count: int, what: str, n: int) -> None:
    if count % n:
        raise ClearheadError(f"{path} has {count} {what}, which {n} processes can't share evenly; choose a divisor")


def check_blocks(blocks: Sequence[BlockConfig], n: int) -> None:
    """`check_shared` of every part of every block."""
    for i, block in enumerate(blocks):
        for sublayer in sublayers(block):
            check_shared(sublayer.op, f"layers.{i}", n)
