"""Rows of random tokens that repeat, beside rows of text. Nothing in them can be told but by looking back for what came
after the same token before, which is what induction heads do (Olsson 2022, "In-context Learning and Induction Heads",
where such rows are the measure of it). Text teaches it too, after many more tokens than a small run reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import TransformerConfig
from clearhead.training.data.batches import Batch, RowBatches, generator

REPEATS = 3
"""What a random number is for (see `batches`)."""
SHORTEST = 8


class Repeating:
    """The batches of a text, each with `n` more rows of repeated random tokens."""

    labels: tuple[str, ...] = ()

    def __init__(self, texts: RowBatches, n: int, length: int, ordinary: NDArray[np.int64]) -> None:
        """ordinary: the ids that stand for text, which tokens are drawn from."""
        self.texts, self.n, self.length, self.ordinary = texts, n, length, ordinary

    def step(self, number: int) -> Batch:
        batch = self.texts.step(number)
        rows_NT = torch.from_numpy(np.stack([self._row(number, i) for i in range(self.n)]))
        more: dict[str, Tensor] = {"tokens_BT": rows_NT[:, :-1]}
        if "documents" in batch.inputs:
            more["documents"] = torch.zeros_like(more["tokens_BT"])
        inputs = {name: torch.cat([x, more[name]]) for name, x in batch.inputs.items()}
        return Batch(inputs, torch.cat([batch.targets, rows_NT[:, 1:]]))

    def _row(self, number: int, i: int) -> NDArray[np.int64]:
        """Between a few and half a row of tokens, over and over."""
        rng = generator(self.texts.seed, REPEATS, number, i)
        n = int(rng.integers(SHORTEST, self.length // 2 + 1))
        return np.resize(rng.choice(self.ordinary, n), self.length + 1)

    def held_out(self) -> Iterator[Batch]:
        return self.texts.held_out()

    def describe(self) -> dict[str, Any]:
        return {**self.texts.describe(), "repeated": self.n}

    def check(self, config: TransformerConfig) -> None:
        self.texts.check(config)
