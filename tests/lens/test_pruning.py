"""`prune`: what goes, what it costs, and what is left; on tiny models of every kind, and on real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.checkpoints.own import own_names
from clearhead.cli.inspect import collect
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.pruning.choice import choose
from clearhead.lens.pruning.examples import Examples, default_text, examples_of, loss_on
from clearhead.lens.pruning.importance import head_layers, importance, masks_without
from clearhead.lens.pruning.prune import ORDERS, prune, pruning_curve
from clearhead.ops.losses import IGNORE
from tests import tiny
from tests.families.pairs import inputs_for

TEXTS = Path(__file__).parent / "texts"
RANKED = (TEXTS / "moby_dick_96.txt").read_text()
CHECKED = (TEXTS / "state_of_the_union_1804.txt").read_text()
"""Neither was learnt from: both were held out when the models of this package were trained."""


def batches_for(kind: tiny.Kind, model: clearhead.Transformer) -> list[Examples]:
    """Two batches of random inputs with random targets."""
    found = []
    for seed in (1, 2):
        inputs = inputs_for(kind, model.config, seed).given()
        generator = torch.Generator().manual_seed(seed)
        if kind == "vision":
            (_, head), *_ = model.config.heads.labels
            targets = torch.randint(head.n_labels, (3,), generator=generator)
        else:
            targets = torch.randint(3, 30, inputs["tokens"].shape, generator=generator)
        found.append(Examples(inputs, targets))
    return found


@pytest.mark.parametrize("by", ORDERS)
@pytest.mark.parametrize(
    ("family", "kind", "n"),
    [
        ("gpt2", "decoder", 2),
        ("llama", "decoder", 2),
        ("bert", "encoder", 2),
        ("t5", "seq2seq", 6),
        ("vit", "vision", 2),
    ],
)
def test_every_kind_of_model(family: str, kind: tiny.Kind, n: int, by: str, tmp_path: Path) -> None:
    tiny.make(family).save_pretrained(tmp_path / "whole")
    model = clearhead.load(tmp_path / "whole")
    batches = batches_for(kind, model)
    done = prune(model, n, text=batches[:1], held_out=batches[1:], by=by)  # type: ignore[arg-type]
    assert done.n_cut == n
    assert done.n_heads == sum(layer.n_heads for layer in head_layers(model.config))
    assert done.losses[0] == pytest.approx(loss_on(model, batches[1:]), abs=1e-6)
    masked = loss_on(model, batches[1:], masks_without(done.cut, head_layers(model.config)))
    assert done.losses[1] == pytest.approx(masked, abs=1e-5)
    assert done.losses[1] != done.losses[0]
    assert done.parameters[1] == sum(p.numel() for p in done.model.parameters()) < done.parameters[0]
    clearhead.save(done.model, tmp_path / "smaller")
    assert loss_on(clearhead.load(tmp_path / "smaller"), batches[1:]) == done.losses[1]
    assert collect(str(tmp_path / "smaller"))["parameters"] == done.parameters[1]
    assert json.loads(json.dumps(done.to_json()))["heads"] == {"cut": n, "of": done.n_heads}


def test_the_second_half_of_a_text_checks_what_the_first_ranks() -> None:
    model = clearhead.load("clear-2l")
    told: list[float] = []
    done = prune(model, 0.25, text=RANKED, max_tokens=1024, progress=told.append)
    middle = len(RANKED) // 2
    ranking, checking = (examples_of(model, part, 1024) for part in (RANKED[:middle], RANKED[middle:]))
    assert done.cut == choose(head_layers(model.config), importance(model, ranking), 2)
    assert done.losses[0] == loss_on(model, checking)
    assert sum(told) == pytest.approx(1)
    # Two layers of d_model 128, heads of 32, and biases on queries, keys and values.
    assert done.parameters[0] - done.parameters[1] == 2 * (4 * 128 * 32 + 3 * 32)


def test_without_a_text_it_ranks_on_what_python_says_of_itself() -> None:
    text, model = default_text(), clearhead.load("clear-2l")
    assert len(text) > 100_000
    done = prune(model, 1, max_tokens=600)
    assert done.losses[0] == loss_on(model, examples_of(model, text[len(text) // 2 :], 600)) < 5


def test_the_curve_has_every_order_and_share() -> None:
    model = clearhead.load("clear-2l")
    told: list[float] = []
    curve = pruning_curve(model, text=RANKED, held_out=CHECKED, max_tokens=1024, progress=told.append)
    assert sum(told) == pytest.approx(1)
    assert curve.row_labels == ("gradient", "ablation", "random")
    assert curve.column_labels == ("0%", "12.5%", "25%", "37.5%", "50%", "62.5%", "75%")
    assert curve.values.shape == (3, 7)
    assert json.loads(json.dumps(curve.to_json()))["values"] == curve.values.tolist()
    checking = examples_of(model, CHECKED, 1024)
    assert bool((curve.values[:, 0] == loss_on(model, checking)).all())
    done = prune(model, 0.5, text=RANKED, held_out=CHECKED, max_tokens=1024, by="ablation")
    assert float(curve.values[1, 4]) == pytest.approx(done.losses[1], abs=1e-4)
    # Without three of four heads little is left of what was learnt.
    assert bool((curve.values[:, -1] > curve.values[:, 0] + 1).all())


def test_shares_that_would_leave_no_head_are_not_in_the_curve(tmp_path: Path) -> None:
    tiny.make("gpt2", None).save_pretrained(tmp_path / "model")
    model = clearhead.load(tmp_path / "model")
    batches = batches_for("decoder", model)
    n_heads = [layer.n_heads for layer in head_layers(model.config)]
    most = 1 - len(n_heads) / sum(n_heads)
    curve = pruning_curve(model, text=batches, fractions=(0, 0.5, 0.74, 0.99), orders=("random",))
    assert curve.column_labels == tuple(f"{100 * x:g}%" for x in (0, 0.5, 0.74, 0.99) if x <= most)


def test_wrong_calls(tmp_path: Path) -> None:
    model = clearhead.load("clear-2l")
    for fraction in (0, 1.0, 7, -0.1):
        with pytest.raises(UsageError, match="of 8 heads"):
            prune(model, fraction)
    with pytest.raises(UsageError, match="gradient, ablation, random"):
        prune(model, 0.25, by="luck")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="2 or more"):
        prune(model, 0.25, max_tokens=1)
    with pytest.raises(ClearheadError, match="too short"):
        prune(model, 0.25, text="a")
    with pytest.raises(ClearheadError, match="give two, or held_out"):
        prune(model, 0.25, text=[Examples({"tokens": [1, 2]}, torch.tensor([[2, 3]]))])
    for family, problem in (
        ("mamba", "no attention heads"),
        ("t5", "batches"),
        ("vit", "batches"),
        ("llama", "no token"),
    ):
        tiny.make(family).save_pretrained(tmp_path / family)
        with pytest.raises(ClearheadError, match=problem):
            prune(clearhead.load(tmp_path / family), 0.25)
    llama = clearhead.load(tmp_path / "llama")
    with pytest.raises(UsageError, match="fewest that can is 2"):
        prune(llama, 1, text=batches_for("decoder", llama))


# ---- real models


def unigram_loss(model: clearhead.Transformer, batches: list[Examples]) -> float:
    """Of the best guess that looks at no other token: the entropy of the tokens that are told."""
    told = torch.cat([batch.targets[batch.targets != IGNORE] for batch in batches])
    shares = torch.bincount(told, minlength=model.config.vocab_size) / len(told)
    return float(-(shares * shares.clamp(min=1e-30).log()).sum())


def cost_of_a_quarter(name: str, by: str) -> tuple[float, int, int]:
    """What the least important quarter of heads costs, as a share of the gap from a unigram's loss to the model's, and
    by how many parameters the model is smaller, in fact and by arithmetic.
    """
    model = clearhead.load(name)
    done = prune(model, 0.25, text=RANKED, held_out=CHECKED, by=by)  # type: ignore[arg-type]
    before, after = done.losses
    gap = unigram_loss(model, examples_of(model, CHECKED, 8192)) - before
    op = model.config.decoder.blocks[0].mixer.op
    biases = sum((op.bias.q, op.bias.k, op.bias.v))
    assert op.n_heads == op.n_kv_heads
    expected = done.n_cut * op.d_head * (4 * model.config.d_model + biases)
    return (after - before) / gap, done.parameters[0] - done.parameters[1], expected


@pytest.mark.skipif("clear-gpt" not in own_names(), reason="clear-gpt has not been made here")
@pytest.mark.parametrize("by", ["gradient", pytest.param("ablation", marks=pytest.mark.slow)])
def test_a_quarter_of_the_heads_of_a_real_decoder_is_cheap(by: str) -> None:
    """Measured: 4.5 % of the gap by gradient, 3.6 % by ablation, and 13.7 % in a random order."""
    cost, fewer, expected = cost_of_a_quarter("clear-gpt", by)
    assert cost < 0.12
    assert fewer == expected


def test_a_quarter_of_the_heads_of_a_model_that_is_nothing_else() -> None:
    """Of eight heads, none is idle."""
    cost, fewer, expected = cost_of_a_quarter("clear-2l", "ablation")
    assert 0.0 < cost < 0.4
    assert fewer == expected
