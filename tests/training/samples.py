"""A tiny run that costs nothing: a model of two layers, ten texts, and an objective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from clearhead.model.build import build
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    DecoderConfig,
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.batches import Batch
from clearhead.training.data.documents import Corpus
from clearhead.training.models import decoder
from clearhead.training.objectives import NextToken
from clearhead.training.trainer import Trainer

IGNORE = -100
VOCAB = 31


class Samples:
    """Texts of unequal lengths, padded, in another order every epoch; it notes which were asked for."""

    def __init__(self, n: int = 10, length: int = 12, rows: int = 4, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens_NT = torch.randint(VOCAB, (n, length + 1), generator=generator)
        self.lengths_N = torch.randint(2, length + 1, (n,), generator=generator)
        self.rows, self.seed, self.asked = rows, seed, []

    def step(self, number: int) -> Batch:
        n = len(self.tokens_NT)
        at = range(number * self.rows, (number + 1) * self.rows)
        orders = {i // n: torch.randperm(n, generator=torch.Generator().manual_seed(i // n)).tolist() for i in at}
        chosen = [orders[i // n][i % n] for i in at]
        self.asked.append(chosen)
        return self._batch(chosen)

    def _batch(self, chosen: list[int]) -> Batch:
        tokens_BT = self.tokens_NT[chosen]
        there_BT = torch.arange(tokens_BT.shape[1] - 1) < self.lengths_N[chosen][:, None]
        inputs = {"tokens_BT": tokens_BT[:, :-1], "present": there_BT}
        return Batch(inputs=inputs, targets=tokens_BT[:, 1:].masked_fill(~there_BT, IGNORE))

    def describe(self) -> dict[str, Any]:
        return {"kind": "samples", "n": len(self.tokens_NT), "seed": self.seed, "sum": int(self.tokens_NT.sum())}

    def held_out(self) -> Iterator[Batch]:
        yield self._batch([0, 1])
        yield self._batch([2])

    def check(self, config: Any) -> None:
        """Any model will do."""


# Any registered family with attention dropout serves; tests don't depend on which.
def tiny(**changes: Any) -> TrainConfig:
    """A run of twelve steps: batches of two, two of them a step, with dropout."""
    config = TrainConfig(
        model=DecoderConfig(
            family="llama", d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=24, qk_norm=False, dropout=0.1
        ),
        data=DataConfig(corpus=Corpus(path="nowhere"), tokenizer="bytes"),
        batch=BatchConfig(rows=4, length=12, micro_rows=2),
        optim=OptimConfig(lr=1e-2),
        schedule=ScheduleConfig(kind="cosine", warmup=3),
        run=RunConfig(steps=12),
        every=EveryConfig(log=1, evaluate=0, save=2, keep=2),
    )
    return replace(config, **changes)


def tiny_model(config: TrainConfig, dtype: torch.dtype = torch.float32) -> Any:
    """Its model, always with the same weights."""
    torch.manual_seed(config.run.seed)
    assert isinstance(config.model, DecoderConfig)
    return build(decoder(config.model, VOCAB, config.batch.length)).to(dtype)


def tiny_trainer(config: TrainConfig | None = None, samples: Samples | None = None, **how: Any) -> Trainer:
    config = config or tiny()
    return Trainer(config, tiny_model(config, **how), NextToken(), samples or Samples(rows=config.batch.rows))


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal to the last bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
