"""What is added to the scores of a query and a key because of where they stand: ALiBi and T5's relative bias.

A bias is a value with one method, `term(head, q_pos, k_pos)`, on index tensors that broadcast against each other, so
that one definition serves the dense matrix, a tile of it, and FlexAttention's scalar calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Bias:
    """A term added to the scaled scores, before the mask."""

    def term(self, head: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The term of each cell. The arguments are integer tensors that broadcast together."""
        raise AssertionError(f"{type(self).__name__} defines no term()")

    def tensors(self) -> tuple[Tensor, ...]:
        """The floating-point tensors the term is made from: what a gradient could reach."""
        return ()

    def widened(self) -> Bias:
        """The same bias with its tensors in float32 at least, so that gradients are summed in it."""
        return self

    @property
    def is_trainable(self) -> bool:
        """Whether a gradient is wanted for any of its tensors now."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors())


@dataclass(frozen=True, eq=False)
class Alibi(Bias):
    """Scores fall linearly with distance, by a slope a head (Press 2021, ALiBi)."""

    slopes_H: Float[Tensor, "H"]

    def term(self, head: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return -self.slopes_H[head] * (q_pos - k_pos).abs()

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.slopes_H,)

    def widened(self) -> Alibi:
        return replace(self, slopes_H=_widened(self.slopes_H))


def alibi_slopes(n_heads: int) -> Float[Tensor, "H"]:
    """The slopes of ALiBi, float32: 2^(-8/n), 2^(-16/n), ... for n a power of two.

    For other counts the slopes of the next lower power come first, then every other one of the next higher
    (Press 2021, the authors' code).
    """

    def of_power(n: int) -> Sequence[float]:
        return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]

    lower = 2 ** int(math.log2(n_heads))
    slopes = [*of_power(lower), *of_power(2 * lower)[0::2]][:n_heads]
    return torch.tensor(slopes, dtype=torch.float32)


@dataclass(frozen=True, eq=False)
class RelativeBias(Bias):
    """A learned number per head and bucket of distance (Raffel 2019, T5). The table is (n_buckets, H)."""

    table_NH: Float[Tensor, "N H"]
    bidirectional: bool = True
    max_distance: int = 128

    def term(self, head: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        bucket = relative_bucket(k_pos - q_pos, self.table_NH.shape[0], self.bidirectional, self.max_distance)
        return self.table_NH[bucket, head]

    def of_heads(self, heads: Sequence[int]) -> RelativeBias:
        """The same for some of the heads."""
        return replace(self, table_NH=self.table_NH[:, list(heads)])

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.table_NH,)

    def widened(self) -> RelativeBias:
        return replace(self, table_NH=_widened(self.table_NH))


def _widened(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def relative_bucket(
    distance: Int[Tensor, "*dims"], n_buckets: int, bidirectional: bool, max_distance: int
) -> Int[Tensor, "*dims"]:
    """The bucket of a distance `k_pos - q_pos`.

    Half of the buckets hold one distance each; the rest grow with its logarithm up to `max_distance`, beyond which
    all share the last. A two-sided table keeps its upper half for keys ahead of the query; a one-sided one puts
    them all into bucket 0. Logarithms are natural and in float32: another precision moves the borders.
    """
    if bidirectional:
        n_buckets //= 2
        side = torch.where(distance > 0, n_buckets, 0)
        far = distance.abs()
    else:
        side = torch.zeros_like(distance)
        far = (-distance).clamp(min=0)
    n_exact = n_buckets // 2
    growth = torch.log(far.clamp(min=1).float() / n_exact) / math.log(max_distance / n_exact)
    logarithmic = (n_exact + (growth * (n_buckets - n_exact)).to(far.dtype)).clamp(max=n_buckets - 1)
    return side + torch.where(far < n_exact, far, logarithmic)
