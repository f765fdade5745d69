"""Integrated gradients: complete, and what a long sum gives."""

from __future__ import annotations

import json

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.integrated_gradients import integrated_gradients
from clearhead.lens.metrics import logit_difference
from tests.families.pairs import make_pair
from tests.lens.placed import NORMS, placed
from tests.lens.test_patching import ANSWER, CLEAN, CORRUPTED, hooked
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


@pytest.mark.parametrize("placement", NORMS)
@pytest.mark.parametrize("baseline", [None, CORRUPTED], ids=["nothing", "another text"])
def test_it_is_complete(placement, baseline):
    model = placed(placement)
    metric = logit_difference(model, ANSWER, 3)
    found = integrated_gradients(model, CLEAN, metric, baseline=baseline, tolerance=1e-6)
    with torch.no_grad():
        there = metric(model(CLEAN))
        if baseline is None:
            with hooked(model.embed.tokens, lambda table, _, out: table.weight.mean(0).expand_as(out)):
                from_there = metric(model(CLEAN))
        else:
            from_there = metric(model(baseline))
    assert error(found.difference, there - from_there) <= F64
    assert error(found.values.sum(-1), there - from_there) <= 1e-5
    assert found.gap <= 1e-5
    assert error(found.by_dimension.sum(-1), found.values) <= F64
    if baseline is not None:  # where both texts say the same, nothing is due to it
        assert not found.values[:, [0, 1, 3, 4, 6]].any()


def test_it_is_the_mean_gradient_on_the_way():
    model = placed("pre")
    metric = logit_difference(model, ANSWER, 3)
    end, start = (look(model, tokens, "embed")["embed"] for tokens in (CLEAN, CORRUPTED))
    total, n = torch.zeros_like(end), 40
    for step in range(n):
        x = (start + (step + 0.5) / n * (end - start)).requires_grad_()
        with hooked(model.layers[0], lambda _, args, x=x: (x, *args[1:]), before=True):
            total += torch.autograd.grad(metric(model(CLEAN)).sum(), x)[0] / n
    found = integrated_gradients(model, CLEAN, metric, baseline=CORRUPTED, tolerance=1e-9)
    assert error(found.by_dimension, (end - start) * total) <= 1e-3


def test_steps_are_doubled_until_it_is_complete_and_no_further():
    model = placed("pre")
    metric = logit_difference(model, ANSWER, 3)
    rough = integrated_gradients(model, CLEAN, metric, steps=2, most_steps=2)
    fine = integrated_gradients(model, CLEAN, metric, steps=2)
    assert rough.steps == 2 < fine.steps <= 512
    assert fine.gap <= 1e-3 * float(fine.difference.abs().max()) < rough.gap


def test_over_the_tokens_of_a_source_and_the_patches_of_a_picture(tmp_path):
    pair = make_pair("t5", "plain", tmp_path / "t5")
    metric = logit_difference(pair.ours, 7, 3)
    x = pair.inputs.row(0)
    found = integrated_gradients(pair.ours, x.given(), metric, part="encoder", tolerance=5e-2)
    assert found.values.shape == x.source.shape
    assert found.gap <= 5e-2 * abs(float(found.difference))
    pair = make_pair("vit", "classifier", tmp_path / "vit")
    x = pair.inputs.row(0)
    found = integrated_gradients(pair.ours, x.given(), lambda logits_BL: logits_BL[:, 1])
    assert found.column_labels[:2] == ["learned", "0,0"] and found.row_labels == ["text"]
    assert found.gap <= 1e-3 * abs(float(found.difference))
    assert found.values[0, 0] == 0  # the learned token is the same in every picture
    said = json.loads(json.dumps(found.to_json()))
    assert said["steps"] == found.steps and said["gap"] == found.gap


def test_weights_that_want_no_gradient_are_no_hindrance():
    model = placed("pre").requires_grad_(False)
    metric = logit_difference(model, ANSWER, 3)
    assert integrated_gradients(model, CLEAN, metric).gap <= 1e-2
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_refused():
    model = placed("pre")
    metric = logit_difference(model, ANSWER, 3)
    with pytest.raises(ClearheadError, match="becomes 7 tokens, and the baseline 5"):
        integrated_gradients(model, CLEAN, metric, baseline=CORRUPTED[:, :5])
    with pytest.raises(ClearheadError, match=r"one number a row, a tensor \(2,\), and it gave \(\)"):
        integrated_gradients(model, CLEAN, lambda logits: logits.sum())
    with pytest.raises(ClearheadError, match="no part 'encoder'"):
        integrated_gradients(model, CLEAN, metric, part="encoder")
