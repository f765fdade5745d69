"""What a place of a batch costs, by the formula; and that counting leaves everything as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from clearhead.training import checkpoint, utilisation
from clearhead.training.config import BatchConfig
from clearhead.training.data.batches import Batch
from clearhead.training.objectives import NextToken
from clearhead.training.utilisation import Work, work_of
from tests.training.samples import VOCAB, same, tiny, tiny_model


class Full:
    """Rows without padding."""

    def step(self, number: int) -> Batch:
        tokens_BT = torch.arange(4 * 32).view(4, 32) % VOCAB
        return Batch({"tokens_BT": tokens_BT}, tokens_BT)


def test_operations_of_a_decoder(monkeypatch: Any) -> None:
    """2 a weight and token forward and 4 backward; in the kernel of attention two products forward and five backward;
    in the head, whose gradients are made together with its loss, three of the scores.
    """
    monkeypatch.setattr(utilisation, "matmul_peak", lambda *args: 1e9)
    config = tiny(batch=BatchConfig(rows=4, length=32, micro_rows=2))
    assert not isinstance(config.model, str)
    config = replace(config, model=replace(config.model, dropout=0.0))
    model: Any = tiny_model(config).eval()
    work = work_of(config, model, NextToken(), Full(), 2)  # type: ignore[arg-type]
    weights = sum(p.numel() for p in model.layers.parameters() if p.ndim == 2) + VOCAB * 16
    attention = 2 * 7 * 2 * 32 * 16
    assert work.flops_per_slot == 6 * weights + attention
    assert work.peak == 2e9
    assert Work(100.0, 1000.0).utilisation(5.0) == 0.5


def test_nothing_is_disturbed() -> None:
    config = tiny()
    model: Any = tiny_model(config).train()
    before = checkpoint.random_state(), {name: p.clone() for name, p in model.named_parameters()}
    work_of(config, model, NextToken(), Full())  # type: ignore[arg-type]
    random = checkpoint.random_state()
    assert same({**random, "python": 0}, {**before[0], "python": 0})
    assert same(dict(model.named_parameters()), {name: torch.nn.Parameter(p) for name, p in before[1].items()})
    assert all(p.grad is None for p in model.parameters())
    assert model.training
