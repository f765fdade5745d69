"""Which heads go: those that matter least, as far as key-value heads let them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.pruning.importance import HeadLayer

Cut = dict[str, tuple[int, ...]]
"""By the address of a sub-layer, the heads that go."""


def how_many(fraction: float, layers: Sequence[HeadLayer]) -> int:
    """The number of heads in a share of all below 1, or in a whole number of them. Heads of blocks that run with the
    same weights count once.

    Raises:
        UsageError: it is none, or so many that a sub-layer would keep none.
    """
    total = sum(layer.n_heads for layer in layers)
    most = total - len(layers)
    n = fraction if isinstance(fraction, int) else int(fraction * total + 1e-9) if 0 < fraction < 1 else -1
    if isinstance(fraction, bool) or n <= 0:
        raise UsageError(
            f"{fraction} of {total} heads can't be cut off: give a share between {1 / total:.3g} and 1, or a whole "
            "number from 1 on"
        )
    if n > most:
        raise UsageError(
            f"{n} of {total} heads are to be cut off; each of the {len(layers)} attention sub-layers keeps at least "
            f"one, so at most {most} can go"
        )
    return n


def choose(layers: Sequence[HeadLayer], importance: Sequence[Tensor], n: int) -> Cut:
    """At most `n` heads, the least important first; each sub-layer keeps at least one.

    Where several heads share a key-value head, what goes is all of one's heads, or the least important one of each,
    whichever matters less a head: so each that stays serves as many. It can be fewer than `n` then.
    """
    left = [_Left(layer, scores) for layer, scores in zip(layers, importance, strict=True)]
    while n:
        moves = [(cost, heads, i) for i, one in enumerate(left) for cost, heads in one.moves() if len(heads) <= n]
        if not moves:
            break
        _, heads, i = min(moves)
        left[i].cut(heads)
        n -= len(heads)
    return {address: tuple(sorted(one.gone)) for one in left if one.gone for address in one.addresses}


class _Left:
    """What is left of a sub-layer's heads, by the key-value heads they read."""

    def __init__(self, layer: HeadLayer, importance_H: Tensor) -> None:
        self.addresses = layer.addresses
        self.scores: list[float] = importance_H.tolist()
        shared = layer.n_heads // layer.n_kv_heads
        self.groups = [list(range(g * shared, (g + 1) * shared)) for g in range(layer.n_kv_heads)]
        self.gone: list[int] = []

    def moves(self) -> Iterator[tuple[float, list[int]]]:
        """Heads that can go together, and what they matter, a head."""
        if len(self.groups) > 1:
            yield from ((self._cost(group), group) for group in self.groups)
        if len(self.groups[0]) > 1:
            weakest = [min(group, key=self.scores.__getitem__) for group in self.groups]
            yield self._cost(weakest), weakest

    def cut(self, heads: list[int]) -> None:
        self.gone += heads
        self.groups = [rest for group in self.groups if (rest := [head for head in group if head not in heads])]

    def _cost(self, heads: list[int]) -> float:
        return sum(self.scores[head] for head in heads) / len(heads)
