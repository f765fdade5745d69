"""One step: what it divides by, what it refuses, and that how a batch is cut changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.training.config import BatchConfig, OptimConfig
from clearhead.training.data.batches import Batch
from clearhead.training.trainer import NotFiniteError
from tests.training.samples import Samples, tiny, tiny_trainer


@dataclass
class Given:
    """An objective whose losses are given, one a target, times a weight of the model that is one."""

    losses: list[list[float]]
    at: int = 0

    def loss(self, model: Any, batch: Batch, taps: Any = None) -> tuple[Tensor, Tensor]:
        losses = torch.tensor(self.losses[self.at])
        self.at += 1
        weight = model.norm.weight[0]
        return losses.sum() * weight, torch.tensor(len(losses))


def test_the_loss_is_the_mean_over_the_targets_of_the_whole_step() -> None:
    """Three targets of loss 4, and one of loss 0 in another micro-batch, are 3, not the 2 of a mean of means (H10)."""
    trainer = tiny_trainer(tiny(optim=OptimConfig(clip=0.0)))
    trainer.objective = Given([[4.0, 4.0, 4.0], [0.0]])
    step = trainer.step()
    assert step.loss == 3.0
    assert step.n_targets == 4
    assert trainer.model.norm.weight.grad[0] == 3.0
    assert step.norm == 3.0


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("micro_rows", [4, 1])
def test_gradients_do_not_depend_on_how_a_batch_is_cut(dtype: torch.dtype, most: float, micro_rows: int) -> None:
    """Ragged rows, 8 at once, 4 x 2 or 8 x 1 (H10)."""
    found = []
    for rows in (8, micro_rows):
        config = tiny(batch=BatchConfig(rows=8, length=12, micro_rows=rows), model=replace(tiny().model, dropout=0.0))
        trainer = tiny_trainer(config, dtype=dtype)
        step = trainer.step()
        found.append((step, [p.grad for p in trainer.model.parameters()]))
    (whole, gradients), (cut, others) = found
    assert abs(whole.loss - cut.loss) <= most * whole.loss
    assert abs(whole.norm - cut.norm) <= most * whole.norm
    for a, b in zip(gradients, others, strict=True):
        assert a is not None and (a - b).abs().max() <= most * max(1.0, float(a.abs().max()))


def test_gradients_are_clipped_to_a_length() -> None:
    trainer = tiny_trainer(tiny(optim=OptimConfig(clip=0.5)))
    trainer.objective = Given([[4.0, 4.0, 4.0], [0.0]])
    assert trainer.step().norm == 3.0
    assert float(trainer.model.norm.weight.grad[0]) == pytest.approx(0.5)


def test_the_rate_follows_the_schedule_from_the_peak() -> None:
    trainer = tiny_trainer()
    rates = [trainer.step().lr for _ in range(12)]
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert trainer.optimiser.param_groups[0]["lr"] == rates[-1]


def test_training_lowers_the_loss() -> None:
    trainer = tiny_trainer(tiny(model=replace(tiny().model, dropout=0.0)), Samples(n=4))
    losses = [trainer.step().loss for _ in range(12)]
    assert losses[-1] < losses[0] - 0.3


def test_held_out_loss_draws_no_random_number_and_leaves_the_model_as_it_was() -> None:
    trainer = tiny_trainer()
    trainer.step()
    before = torch.get_rng_state()
    found = trainer.held_out()
    assert torch.equal(before, torch.get_rng_state())
    assert trainer.model.training
    assert found == trainer.held_out()
    assert found != trainer.held_out(1)


def test_an_infinite_loss_names_the_first_layer_that_gives_one_and_moves_nothing() -> None:
    trainer = tiny_trainer()
    trainer.step()
    ffn = trainer.model.layers[1].ffn
    with torch.no_grad():
        ffn.gate_proj.weight.mul_(1e30)
        ffn.up_proj.weight.mul_(1e30)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    with pytest.raises(NotFiniteError, match=r"step 2 is (nan|inf).* layers\.1\.ffn\."):
        trainer.step()
    assert trainer.number == 1
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_weights_that_are_no_numbers_are_named() -> None:
    trainer = tiny_trainer()
    with torch.no_grad():
        trainer.model.layers[1].mixer.q_proj.weight[0, 0] = float("nan")
    with pytest.raises(NotFiniteError, match=r"the weights layers\.1\.mixer\.q_proj\.weight"):
        trainer.step()


def test_a_gradient_that_is_no_number_is_named() -> None:
    class Root:
        def loss(self, model: Any, batch: Batch, taps: Any = None) -> tuple[Tensor, Tensor]:
            return (model.layers[0].ffn.up_proj.weight * 0).sqrt().sum(), torch.tensor(1)

    trainer = tiny_trainer()
    trainer.objective = Root()
    with pytest.raises(NotFiniteError, match=r"gradient of step 1 .* layers\.0\.ffn\.up_proj\.weight"):
        trainer.step()


def test_a_batch_without_targets_is_refused() -> None:
    trainer = tiny_trainer()
    trainer.objective = Given([[], []])
    with pytest.raises(ClearheadError, match="step 1 has nothing to learn"):
        trainer.step()


def test_bfloat16_products_keep_weights_in_float32() -> None:
    config = tiny(model=replace(tiny().model, dropout=0.0))
    plain = tiny_trainer(config).step()
    trainer = tiny_trainer(replace(config, run=replace(config.run, dtype="bfloat16")))
    step = trainer.step()
    assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in trainer.model.parameters())
    assert step.loss == pytest.approx(plain.loss, rel=1e-2)
    assert step.loss != plain.loss


def test_what_is_read_between_steps_is_of_the_weights_as_they_are() -> None:
    """Norms keep what they make of their weight, by its version, which fused optimisers leave alone."""
    trainer = tiny_trainer(tiny(model=replace(tiny().model, dropout=0.0)))
    trainer.held_out()
    trainer.step()
    found = trainer.held_out()
    for module in trainer.model.modules():
        if hasattr(module, "_twice"):
            module._twice = None
    assert trainer.held_out() == found
