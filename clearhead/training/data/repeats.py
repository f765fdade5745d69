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

from clearhead.config import TransformerConfig
from clearhead.training.data.batches import Batch, RowBatches, generator

REPEATS = 3
"""What a random number is for (see `batches`)."""
SHORTEST = 8
RUN = 64
"""Half of the rows hold texts of so many tokens, a quarter of twice as many, and so on: among few tokens the one before
is soon found, which all else builds on."""


class Repeating:
    """The batches of a text, each with `n` more rows of repeated random tokens."""

    labels: tuple[str, ...] = ()

    def __init__(self, texts: RowBatches, n: int, length: int, ordinary: NDArray[np.int64]) -> None:
        """ordinary: the ids that stand for text, which tokens are drawn from."""
        self.texts, self.n, self.length, self.ordinary = texts, n, length, ordinary

    def step(self, number: int) -> Batch:
        batch = self.texts.step(number)
        made = [self._row(number, i) for i in range(self.n)]
        tokens, targets, documents = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*made, strict=True))
        of_text = batch.inputs.get("documents", torch.zeros_like(batch.targets))
        inputs = {
            "tokens_BT": torch.cat([batch.inputs["tokens_BT"], tokens]),
            "documents": torch.cat([of_text, documents]),
        }
        return Batch(inputs, torch.cat([batch.targets, targets]))

    def _row(self, number: int, i: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Texts of one length, each of between a few and half as many tokens, over and over: the tokens, those that
        come next, and the number of the text.
        """
        rng = generator(self.texts.seed, REPEATS, number, i)
        size = min(RUN * 2 ** (int(rng.geometric(0.5)) - 1), self.length)
        periods = rng.integers(SHORTEST, max(size // 2, SHORTEST) + 1, size=-(-self.length // size))
        texts = [np.resize(rng.choice(self.ordinary, n), size + 1) for n in periods]
        tokens, targets = (np.concatenate([text[a : size + a] for text in texts])[: self.length] for a in (0, 1))
        return tokens, targets, np.arange(self.length) // size

    def held_out(self) -> Iterator[Batch]:
        return self.texts.held_out()

    def describe(self) -> dict[str, Any]:
        return {**self.texts.describe(), "repeated": self.n}

    def check(self, config: TransformerConfig) -> None:
        self.texts.check(config)
