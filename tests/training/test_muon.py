"""Muon in float32 is torch's, but for the rounding of bfloat16."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.training.muon import Muon, orthogonal

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_singular_values_come_near_to_one(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    u, _, vt = torch.linalg.svd(x, full_matrices=False)
    found = orthogonal(x, COEFFICIENTS, 5, 1e-7)
    inner = u.T @ found @ vt.T
    assert inner.diagonal().min() > 0.6 and inner.diagonal().max() < 1.3
    assert (inner - inner.diagonal().diag()).abs().max() < 1e-4


@pytest.mark.parametrize("adjust", ["match_rms_adamw", "original", None])
@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_are_those_of_torch(adjust: Any, nesterov: bool) -> None:
    ours = nn.ParameterList([nn.Parameter(torch.randn(6, 10)), nn.Parameter(torch.randn(10, 4))])
    theirs = copy.deepcopy(ours)
    how: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": adjust, "nesterov": nesterov}
    made = Muon(ours.parameters(), **how), torch.optim.Muon(theirs.parameters(), **how)
    before = [p.detach().clone() for p in ours]
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for optimiser in made:
            optimiser.step()
    for p, q, first in zip(ours, theirs, before, strict=True):
        assert (p - q).abs().max() < 0.05 * (p - first).abs().max()
    kept = [optimiser.state_dict() for optimiser in made]
    assert kept[0]["param_groups"] == kept[1]["param_groups"]
    for a, b in zip(kept[0]["state"].values(), kept[1]["state"].values(), strict=True):
        assert torch.equal(a["momentum_buffer"], b["momentum_buffer"])
