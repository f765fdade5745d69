"""Attribution patching: the gradient's estimate, exact where all is linear, and its distance from the real sweep."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens.attribution_patching import attribution_patching
from clearhead.lens.metrics import logit_difference
from clearhead.lens.patching import patching
from tests import tiny
from tests.families.pairs import make_pair
from tests.lens.placed import H, placed
from tests.lens.test_patching import ANSWER, CLEAN, CORRUPTED, hooked
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


@pytest.mark.parametrize(
    ("site", "over"), [("ffn.out", "position"), ("resid_post", "position"), ("ffn.post", "position")]
)
@pytest.mark.parametrize("noising", [False, True], ids=["denoising", "noising"])
def test_it_is_exact_in_the_last_layer_where_no_norm_follows(site, over, noising):
    model = placed("sandwich" if site != "ffn.post" else "pre", final=False)
    metric = logit_difference(model, ANSWER, 3)
    how = {"site": site, "over": over, "noising": noising}
    estimate = attribution_patching(model, CLEAN, CORRUPTED, metric, **how)
    real = patching(model, CLEAN, CORRUPTED, metric, **how)
    assert error(estimate.values[-1], real.values[-1]) <= F64
    assert estimate.column_labels == real.column_labels and estimate.row_labels == real.row_labels
    assert estimate.scale.clean == pytest.approx(real.scale.clean)
    assert estimate.scale.corrupted == pytest.approx(real.scale.corrupted)


def test_the_last_heads_are_exact_where_the_feed_forward_stands_beside_them():
    model = placed("parallel", final=False)
    metric = logit_difference(model, ANSWER, 3)
    estimate = attribution_patching(model, CLEAN, CORRUPTED, metric, site="mixer.z", over="head")
    real = patching(model, CLEAN, CORRUPTED, metric, site="mixer.z", over="head")
    assert error(estimate.values[1], real.values[1]) <= F64
    assert error(estimate.values[0], real.values[0]) > 1e-3


def test_the_gradient_is_torchs_own():
    model = placed("pre")
    metric = logit_difference(model, ANSWER, 3)
    kept = {}

    def keep(name):
        def hook(_, args):
            kept[name] = args[0]
            if args[0].requires_grad:
                args[0].retain_grad()

        return hook

    with hooked(model.layers[1], keep("clean"), before=True), torch.no_grad():
        clean = metric(model(CLEAN)).mean()
    with hooked(model.layers[1], keep("corrupted"), before=True):
        corrupted = metric(model(CORRUPTED)).mean()
    corrupted.backward()
    moved = ((kept["clean"] - kept["corrupted"]) * kept["corrupted"].grad).sum((0, 2))
    estimate = attribution_patching(model, CLEAN, CORRUPTED, metric)
    assert error(estimate.values[1], moved.detach() / (clean - corrupted.detach())) <= F64


@pytest.mark.parametrize("frozen", [False, True], ids=["", "weights that want no gradient"])
@pytest.mark.parametrize(
    ("site", "over"), [("mixer.pattern", "head"), ("mixer.scores", "head"), ("mixer.k", "position")]
)
def test_patterns_and_keys_have_gradients_too(site, over, frozen):
    """A text that hardly differs hardly leaves the tangent."""
    model = placed("pre").requires_grad_(not frozen)
    with torch.no_grad():
        model.embed.tokens.weight[11] = model.embed.tokens.weight[10] + 3e-3 * torch.randn(16).double()
    clean, corrupted = CLEAN.clone(), CLEAN.clone()
    clean[:, 2], corrupted[:, 2] = 10, 11
    metric = logit_difference(model, ANSWER, 3)
    estimate = attribution_patching(model, clean, corrupted, metric, site=site, over=over)
    real = patching(model, clean, corrupted, metric, site=site, over=over)
    gap = estimate.gap(real)
    assert gap.worst <= 2e-2 * float(real.values.abs().max()) and gap.correlation > 0.999
    assert float(real.values.abs().max()) > 1e-2
    assert gap.mean <= gap.worst


def test_the_gap_is_the_largest_and_the_mean_difference():
    model = placed("pre")
    metric = logit_difference(model, ANSWER, 3)
    estimate = attribution_patching(model, CLEAN, CORRUPTED, metric, site="mixer.z", over="head")
    real = patching(model, CLEAN, CORRUPTED, metric, site="mixer.z", over="head")
    off = (estimate.values - real.values).abs()
    assert real.values.shape == (2, H)
    gap = estimate.gap(real)
    assert gap.worst == pytest.approx(float(off.max())) and gap.mean == pytest.approx(float(off.mean()))
    with pytest.raises(ClearheadError, match="sweep the same site"):
        estimate.gap(patching(model, CLEAN, CORRUPTED, metric))


def test_what_is_chosen_among_has_no_gradient(tmp_path):
    pair = make_pair("mixtral", next(iter(tiny.families()["mixtral"][0].configs)), tmp_path)
    clean = pair.inputs.given()["tokens"]
    corrupted = clean.flip(0)
    with pytest.raises(ClearheadError, match="no gradient"):
        attribution_patching(pair.ours, clean, corrupted, logit_difference(pair.ours, [5, 6, 7], 3), site="ffn.chosen")
