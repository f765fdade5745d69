"""How much of what the machine has to give a run gets out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from clearhead.costs.counter import count_flops
from clearhead.costs.machine import matmul_peak
from clearhead.training import checkpoint
from clearhead.training.data.batches import split
from clearhead.training.precision import precision

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.training.config import TrainConfig
    from clearhead.training.data.batches import Batches
    from clearhead.training.objectives import Objective


@dataclass(frozen=True)
class Work:
    """What a place in the batch costs, and what there is."""

    flops_per_slot: float
    """Forward and backward, of the model as it is written: what is recomputed is not counted."""
    peak: float
    """Floating-point operations a second, of all processes together."""

    def utilisation(self, slots_per_second: float) -> float:
        """The share of the peak."""
        return slots_per_second * self.flops_per_slot / self.peak


def work_of(
    config: TrainConfig, model: Transformer, objective: Objective, batches: Batches, n_processes: int = 1
) -> Work:
    """Counted on the first micro-batch of a run, and measured; the model and all random numbers stay as they are.

    A batch of other lengths is taken to cost as much a place.
    """
    first = batches.step(0)
    part = split(first, config.batch.micro_rows or len(first.targets))[0]
    random, training = checkpoint.random_state(), model.training

    def learn() -> None:
        with precision(config.run.dtype, model.device):
            loss, _ = objective.loss(model, part)
        loss.backward()

    model.train()
    try:
        flops = count_flops(learn)
    finally:
        model.zero_grad(set_to_none=True)
        model.train(training)
        checkpoint.set_random_state(random)
    dtype = torch.float32 if config.run.dtype == "float32" else torch.bfloat16
    return Work(flops / part.n_slots, n_processes * matmul_peak(dtype, model.device))
