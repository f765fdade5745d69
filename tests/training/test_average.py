"""The mean of the weights: its formula, where it is used, and that a run goes on with it to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.training import checkpoint
from clearhead.training.average import Average
from clearhead.training.run import _go_on, save
from clearhead.training.trainer import Step, Trainer
from tests.training.samples import same, tiny, tiny_trainer
from tests.training.test_resume import _known


def averaged(stay: float = 0.8) -> Trainer:
    config = tiny()
    return tiny_trainer(replace(config, run=replace(config.run, average=stay)))


def after(trainer: Trainer, n: int) -> list[Step]:
    """So many steps, with random numbers from the beginning."""
    torch.manual_seed(7)
    return [trainer.step() for _ in range(n)]


def test_the_mean_is_the_formula_in_float64() -> None:
    """m_n = s m_(n-1) + (1 - s) w_n with s = min(stay, (1 + n) / (10 + n)), from the first weights on."""
    weight = torch.nn.Linear(3, 2)
    average = Average(weight, 0.5)
    expected = weight.weight.detach().double()
    for n in range(1, 20):
        with torch.no_grad():
            weight.weight.normal_()
        average.add(n)
        stays = min(0.5, (1 + n) / (10 + n))
        expected = stays * expected + (1 - stays) * weight.weight.detach().double()
    assert torch.allclose(average.means["weight"].double(), expected, atol=1e-6)


def test_what_does_not_move_has_no_mean_and_halves_are_averaged_in_float32() -> None:
    model = torch.nn.Linear(3, 2).bfloat16()
    model.bias.requires_grad_(False)
    average = Average(model, 0.9)
    assert {name: mean.dtype for name, mean in average.means.items()} == {"weight": torch.float32}


def test_steps_are_those_of_a_run_without_it() -> None:
    plain, trainer = tiny_trainer(), averaged()
    assert after(trainer, 4) == after(plain, 4)
    assert same(dict(trainer.model.named_parameters()), dict(plain.model.named_parameters()))


def test_the_mean_is_what_is_measured_and_saved(tmp_path: Path) -> None:
    trainer = averaged()
    for _ in range(4):
        trainer.step()
    raw = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    means = trainer.average.means
    assert not torch.equal(raw["norm.weight"], means["norm.weight"])
    measured = trainer.held_out()
    folder = save(trainer, tmp_path)
    assert same(raw, {name: p.detach() for name, p in trainer.model.named_parameters()})
    saved = clearhead.load(folder)
    assert same(dict(saved.named_parameters()), {name: torch.nn.Parameter(mean) for name, mean in means.items()})
    ended = trainer.end()
    assert same({name: p.detach() for name, p in ended.named_parameters()}, dict(means))
    trainer.average = None
    assert trainer.held_out() == measured


def test_a_run_goes_on_with_it_to_the_bit(tmp_path: Path) -> None:
    straight, first = averaged(), averaged()
    after(straight, 6)
    undisturbed = straight.state()
    after(first, 3)
    folder = save(first, tmp_path)
    second = averaged()
    _go_on(second, folder, checkpoint.read_state(folder))
    for _ in range(3):
        second.step()
    assert same(_known(second.state()), _known(undisturbed))
    assert same(dict(second.model.named_parameters()), dict(straight.model.named_parameters()))


@pytest.mark.parametrize("stay", [-0.1, 1.0])
def test_a_share_that_is_none_is_refused(stay: float) -> None:
    with pytest.raises(clearhead.errors.UsageError, match=r"run\.average"):
        replace(tiny().run, average=stay)
