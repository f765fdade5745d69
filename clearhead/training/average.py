"""The mean of a model's weights over the steps, which does better than the last ones (Polyak 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """An exponential mean of the weights that are trained, in float32 at least; in each step, `stay` of it stays.

    It begins as the first weights, and forgets them fast: after n steps at most (1 + n) / (10 + n) stays (as
    `tf.train.ExponentialMovingAverage` does with `num_updates`).
    """

    def __init__(self, model: nn.Module, stay: float) -> None:
        self.stay = stay
        self._named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.means = {name: p.detach().to(_wide(p), copy=True) for name, p in self._named.items()}

    @torch.no_grad()
    def add(self, n: int) -> None:
        """Take the weights in, as they are after step `n`, counted from 1."""
        weights = [p.detach().to(_wide(p)) for p in self._named.values()]
        torch._foreach_lerp_(list(self.means.values()), weights, 1 - min(self.stay, (1 + n) / (10 + n)))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it, the model has the mean as its weights."""
        before = [p.detach().clone() for p in self._named.values()]
        self.settle()
        try:
            yield
        finally:
            self._write(before)

    def settle(self) -> None:
        """Make the mean the weights of the model for good."""
        self._write(list(self.means.values()))

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        # One by one: torch has no such operation on lists of tensors that several processes share.
        for p, value in zip(self._named.values(), values, strict=True):
            p.copy_(value)

    def set_state(self, means: dict[str, Tensor]) -> None:
        """Go on from the means of a checkpoint."""
        for name, mean in self.means.items():
            mean.copy_(means[name])


def _wide(p: Tensor) -> torch.dtype:
    return torch.promote_types(p.dtype, torch.float32)
