"""Routers and the balance loss, against their formulas and the published numbers."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.ops.routing import balance_loss, choose, weigh
from tests.oracles import error

LOGITS = torch.tensor([[1.0, 3.0, 2.0, -1.0], [0.5, 0.4, 0.3, 0.2]], dtype=torch.float64)


def test_softmax_then_the_best():
    chosen = choose(LOGITS, 2)
    assert chosen.tolist() == [[1, 2], [0, 1]]
    p = LOGITS.exp() / LOGITS.exp().sum(-1, keepdim=True)
    best = torch.stack([p[0, [1, 2]], p[1, [0, 1]]])
    assert error(weigh(LOGITS, chosen), best) <= 1e-12
    assert error(weigh(LOGITS, chosen, renormalise=True), best / best.sum(-1, keepdim=True)) <= 1e-12
    assert error(weigh(LOGITS, chosen, scale=2.5), 2.5 * best) <= 1e-12


def test_the_best_then_softmax():
    chosen = choose(LOGITS, 2, "topk_softmax")
    weights = weigh(LOGITS, chosen, "topk_softmax")
    first = 1 / (1 + torch.exp(torch.tensor(-1.0, dtype=torch.float64)))  # 3 against 2
    assert error(weights[0], torch.stack([first, 1 - first])) <= 1e-12
    assert error(weights.sum(-1), torch.ones(2)) <= 1e-12


def test_a_correction_chooses_and_never_weighs():
    correction = torch.tensor([0.0, 0.0, 0.0, 5.0], dtype=torch.float64)
    chosen = choose(LOGITS, 2, "sigmoid", correction_E=correction)
    assert sorted(chosen[0].tolist()) == [1, 3]
    weights = weigh(LOGITS, chosen, "sigmoid", renormalise=True, scale=2.0)
    raw = torch.sigmoid(LOGITS.gather(1, chosen))
    assert error(weights, 2 * raw / raw.sum(-1, keepdim=True)) <= 1e-12


def test_groups_count_as_their_best_two():
    """Groups (0, 1, 2), (3, 4, 5): the best expert is in the second, and the best two are in the first."""
    logits = torch.tensor([[2.0, 2.0, -9.0, 3.0, -9.0, -9.0]])
    assert choose(logits, 1, "sigmoid").tolist() == [[3]]
    chosen = choose(logits, 2, "sigmoid", n_groups=2, n_chosen_groups=1)
    assert sorted(chosen[0].tolist()) == [0, 1]
    # The correction counts in the groups' worth too.
    correction = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    chosen = choose(logits, 2, "sigmoid", correction_E=correction, n_groups=2, n_chosen_groups=1)
    assert sorted(chosen[0].tolist()) == [3, 4]
    # Groups of one are worth their expert.
    assert choose(logits, 1, "sigmoid", n_groups=6, n_chosen_groups=1).tolist() == [[3]]


def test_sigmoids_that_are_all_zero_weigh_nothing():
    logits = torch.full((1, 4), -200.0)
    weights = weigh(logits, choose(logits, 2, "sigmoid"), "sigmoid", renormalise=True)
    assert weights.isfinite().all()


# ---- balance


def test_balance_leaves_padding_out():
    """Case H13: the masked value is that of the tokens alone."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 4, generator=generator)
    present = torch.tensor([1, 1, 1, 1, 0, 0]).bool()
    assert float(balance_loss([torch.zeros(6, 4)], 2)) == pytest.approx(2.0, abs=1e-6)
    assert float(balance_loss([logits], 2)) == pytest.approx(1.97492, abs=1e-5)
    assert float(balance_loss([logits], 2, present)) == pytest.approx(2.09354, abs=1e-5)
    assert error(balance_loss([logits], 2, present), balance_loss([logits[:4]], 2)) <= 1e-6
    shaped = logits.view(2, 3, 4), present.view(2, 3)
    assert error(balance_loss([shaped[0]], 2, shaped[1]), balance_loss([logits[:4]], 2)) <= 1e-6


def test_balance_pools_the_tokens_of_all_layers():
    layers = [torch.randn(5, 8), torch.randn(5, 8), torch.randn(5, 8)]
    assert error(balance_loss(layers, 3), balance_loss([torch.cat(layers)], 3)) <= 1e-6


def test_balance_of_a_single_token_and_of_none():
    step = torch.randn(2, 1, 4)
    assert balance_loss([step], 2, torch.ones(2, 1).bool()).isfinite()
    assert float(balance_loss([step], 2, torch.zeros(2, 1).bool())) == 0.0
    with pytest.raises(ClearheadError, match="this pass alone"):
        balance_loss([step], 2, torch.ones(2, 7).bool())
    with pytest.raises(ClearheadError, match="no router logits"):
        balance_loss([], 2)


def test_balance_falls_along_its_gradient():
    logits = (torch.randn(64, 4) + torch.tensor([2.0, 0.0, 0.0, 0.0])).requires_grad_()
    loss = balance_loss([logits], 1)
    loss.backward()
    with torch.no_grad():
        after = balance_loss([logits - 5.0 * logits.grad], 1)
    assert float(after) < float(loss.detach())
    assert logits.grad[:, 0].mean() > 0 > logits.grad[:, 1:].mean()
