"""Each process' rows of one and the same batch."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.ops.losses import IGNORE
from clearhead.training.data.batches import Batch


def rows_of(batch: Batch, at: int, n: int) -> Batch:
    """Every n-th row of a batch from row `at` on: what the process at place `at` of `n` works on.

    All get equally many, so that they meet as often: where rows are missing, there are some without a target. Lengths
    stay those of the whole batch, so that padding is alike.
    """
    n_rows = len(batch.targets)
    n_mine = -(-n_rows // n)
    row_N = torch.arange(at, n_mine * n, n)
    there_N = row_N < n_rows
    row_N = torch.where(there_N, row_N, 0)
    targets = batch.targets[row_N]
    if not bool(there_N.all()):
        targets[~there_N] = _none(targets)
    return Batch({name: value[row_N] for name, value in batch.inputs.items()}, targets)


def _none(targets: Tensor) -> float | int:
    """What stands where there is no target."""
    return float("nan") if targets.is_floating_point() else IGNORE
