"""Sweeps against loops written by hand with torch's hooks, in float64."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager

import pytest
import torch

from clearhead.config import TwoTowersConfig
from clearhead.errors import ClearheadError
from clearhead.lens.metrics import logit_difference
from clearhead.lens.patching import patching, patching_by_layer
from tests import tiny
from tests.families.pairs import make_pair
from tests.lens.placed import NORMS, TOKENS, H, K, placed
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]
CLEAN = TOKENS
CORRUPTED = torch.where(torch.tensor([[0, 0, 1, 0, 0, 1, 0]]).bool(), (TOKENS + 11) % 40, TOKENS)
ANSWER, OTHER = [7, 9], [3, 4]


@contextmanager
def hooked(module, hook, before=False):
    handle = module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def by_hand(model, tokens, module=None, hook=None, before=False):
    with torch.no_grad():
        if module is None:
            logits = model(tokens)
        else:
            with hooked(module, hook, before):
                logits = model(tokens)
    rows = torch.arange(2)
    return float((logits[rows, -1, ANSWER] - logits[rows, -1, OTHER]).mean())


@pytest.mark.parametrize("placement", NORMS)
@pytest.mark.parametrize("noising", [False, True], ids=["denoising", "noising"])
def test_the_stream_place_by_place(placement, noising):
    model = placed(placement)
    base, donor = (CLEAN, CORRUPTED) if noising else (CORRUPTED, CLEAN)
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    expected = torch.zeros(2, 7, dtype=torch.float64)
    for layer, block in enumerate(model.layers):
        kept = []
        by_hand(model, donor, block, lambda _, args: kept.append(args[0]), before=True)  # noqa: B023
        for place in range(7):

            def patch(_, args, place=place, kept=kept):
                x = args[0].clone()
                x[:, place] = kept[0][:, place]
                return (x, *args[1:])

            found = by_hand(model, base, block, patch, before=True)
            expected[layer, place] = (found - corrupted) / (clean - corrupted)
    metric = logit_difference(model, ANSWER, OTHER)
    sweep = patching(model, CLEAN, CORRUPTED, metric, noising=noising)
    assert error(sweep.values, expected) <= F64
    assert sweep.scale.clean == pytest.approx(clean) and sweep.scale.corrupted == pytest.approx(corrupted)
    # All that differs before the first layer is at two places.
    moved = {2, 5}
    untouched = 1.0 if noising else 0.0
    assert all(float(sweep.values[0, place]) == pytest.approx(untouched) for place in range(7) if place not in moved)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_heads_one_by_one(n_kv_heads):
    model = placed("sandwich", n_kv_heads=n_kv_heads)
    clean, corrupted = by_hand(model, CLEAN), by_hand(model, CORRUPTED)
    expected = torch.zeros(2, H, dtype=torch.float64)
    for layer, block in enumerate(model.layers):
        kept = []
        by_hand(model, CLEAN, block.mixer.o_proj, lambda _, args: kept.append(args[0]), before=True)  # noqa: B023
        for head in range(H):

            def patch(_, args, head=head, kept=kept):
                z = args[0].clone()
                z[..., K * head : K * (head + 1)] = kept[0][..., K * head : K * (head + 1)]
                return (z,)

            found = by_hand(model, CORRUPTED, block.mixer.o_proj, patch, before=True)
            expected[layer, head] = (found - corrupted) / (clean - corrupted)
    metric = logit_difference(model, ANSWER, OTHER)
    sweep = patching(model, CLEAN, CORRUPTED, metric, site="mixer.z", over="head")
    assert error(sweep.values, expected) <= F64
    assert sweep.row_labels == ["layer 0", "layer 1"] and sweep.column_labels == ["0", "1", "2", "3"]
    kv = patching(model, CLEAN, CORRUPTED, metric, site="mixer.v", over="head")
    assert kv.values.shape == (2, n_kv_heads)


def test_a_few_at_once_is_as_one_by_one(monkeypatch):
    model = placed()
    metric = logit_difference(model, ANSWER, OTHER)
    whole = patching(model, CLEAN, CORRUPTED, metric, site="ffn.out")
    # The package has a function of the module's name.
    module = sys.modules["clearhead.lens.patching"]
    monkeypatch.setattr(module, "AT_ONCE", 3 * 2 * 7 * 40)
    assert error(patching(model, CLEAN, CORRUPTED, metric, site="ffn.out").values, whole.values) <= F64
    monkeypatch.setattr(module, "AT_ONCE", 1)
    assert error(patching(model, CLEAN, CORRUPTED, metric, site="ffn.out").values, whole.values) <= F64


def test_patching_nothing_in_leaves_no_trace():
    model = placed()
    with torch.no_grad():
        before = model(CLEAN)
    patching(model, CLEAN, CORRUPTED, logit_difference(model, 7, 3))
    with torch.no_grad():
        assert torch.equal(model(CLEAN), before)


def test_labels_say_both_tokens_and_the_json_is_plain():
    model = placed()
    sweep = patching(model, CLEAN[:1], CORRUPTED[:1], logit_difference(model, 7, 3))
    a, b = CLEAN[0].tolist(), CORRUPTED[0].tolist()
    assert sweep.column_labels == [str(x) if x == y else f"{x}/{y}" for x, y in zip(a, b, strict=True)]
    said = json.loads(json.dumps(sweep.to_json()))
    assert said["site"] == "resid_pre" and said["clean"] == sweep.scale.clean


def test_of_a_decoder_that_reads_a_source(tmp_path):
    """The source is swept where cross-attention reads it."""
    pair = make_pair("t5", "plain", tmp_path)
    clean = pair.inputs.given()
    corrupted = {**clean, "source": clean["source"].clone()}
    corrupted["source"][:, 3] += 1
    metric = logit_difference(pair.ours, 7, 3)
    sweep = patching(pair.ours, clean, corrupted, metric, site="cross.v")
    assert sweep.values.shape[1] == clean["source"].shape[1]
    whole = patching(pair.ours, clean, corrupted, metric, site="resid_post")
    assert float(whole.values[-1, -1]) == pytest.approx(1.0, abs=1e-3)
    short = {**clean, "source": clean["source"][:, :5]}
    with pytest.raises(ClearheadError, match=r"clean source are 14 long and the corrupted 5"):
        patching(pair.ours, clean, short, metric)


def test_layers_without_the_site_are_left_out(tmp_path):
    name = next(iter(tiny.families()["jamba"][0].configs))
    pair = make_pair("jamba", name, tmp_path)
    clean = pair.inputs.given()["tokens"]
    corrupted = clean.clone()
    corrupted[:, 4] += 1
    metric = logit_difference(pair.ours, 7, 3)
    sweep = patching(pair.ours, clean, corrupted, metric, site="mixer.z", over="head")
    there = [i for i, block in enumerate(pair.ours.layers) if "z" in block.mixer.sites]
    assert sweep.row_labels == [f"layer {i}" for i in there]
    states = patching(pair.ours, clean, corrupted, metric, site="mixer.delta")
    assert len(states.row_labels) == len(pair.ours.layers) - len(there)


def test_what_is_refused(tmp_path):
    model = placed()
    metric = logit_difference(model, 7, 3)
    for other, message in (
        (CORRUPTED[:, :5], r"clean tokens are 7 long and the corrupted 5: .* reword"),
        (CORRUPTED[:1], r"\(2, 7\) clean and \(1, 7\)"),
        ({"tokens": CORRUPTED, "token_types": torch.zeros_like(CORRUPTED)}, "the corrupted one tokens, token_types"),
        (CLEAN, "no difference to find"),
    ):
        with pytest.raises(ClearheadError, match=message):
            patching(model, CLEAN, other, metric)
    for how, message in (
        ({"site": "mixer.zz"}, r"layers\.0\.mixer\.zz.*layers\.\d\.mixer\.z"),
        ({"over": "head"}, "it has no heads to sweep over"),
        ({"over": "letter"}, "position or head"),
    ):
        with pytest.raises(ClearheadError, match=message):
            patching(model, CLEAN, CORRUPTED, metric, **how)
    with pytest.raises(ClearheadError, match="the metric is nan"):
        patching(model, CLEAN, CORRUPTED, lambda logits: logits.mean() * torch.nan)
    pair = make_pair("clip", next(iter(tiny.families()["clip"][0].configs)), tmp_path)
    assert isinstance(pair.ours.config, TwoTowersConfig)
    with pytest.raises(ClearheadError, match="two towers"):
        patching(pair.ours, {}, {}, metric)


def test_a_sweep_as_it_comes():
    model = placed(next(iter(NORMS)))
    metric = logit_difference(model, ANSWER, OTHER)
    whole = patching(model, CLEAN, CORRUPTED, metric)
    tables = list(patching_by_layer(model, CLEAN, CORRUPTED, metric))
    assert [table.values.shape[0] for table in tables] == list(range(1, len(model.layers) + 1))
    assert all(table.column_labels == whole.column_labels for table in tables)
    assert torch.equal(tables[0].values, whole.values[:1])
    assert torch.equal(tables[-1].values, whole.values)
