"""What a step of training holds at its peak, measured, and worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import ScoresConfig, StackConfig, TokensConfig, TwoTowersConfig
from clearhead.costs import counts
from clearhead.costs.live import Live
from clearhead.errors import ClearheadError
from clearhead.model.build import build
from clearhead.training import objectives
from clearhead.training.blocks import run_by
from clearhead.training.data.batches import Batch
from clearhead.training.objectives import Labels, MaskedTokens
from clearhead.training.recompute import recomputed_parts
from tests import tiny
from tests.costs.models import ORDINARY, Config, config_of, published
from tests.costs.small import ATTENTION, small
from tests.families import pairs

ROWS, LONG, SOURCE = 900, 300, 150
"""Tokens of a batch, of a text in it, and of a source."""
CLOSE = 0.15
"""Within so much of what is measured; the worst is 0.11 (Gemma 2, recomputed)."""


def roomy(case: tuple[str, str]) -> Config:
    """The config of a tiny model, with room for 300 tokens where its positions are a table of fewer."""
    config = config_of(case)
    if isinstance(config, TwoTowersConfig):
        return config
    stacks = {name: _roomy(stack) for name in ("encoder", "decoder") if (stack := getattr(config, name)) is not None}
    return replace(config, **stacks, context=None)


def _roomy(stack: StackConfig) -> StackConfig:
    places = stack.embed.positions
    if places is None or not isinstance(stack.embed.front, TokensConfig):
        return stack
    return replace(stack, embed=replace(stack.embed, positions=replace(places, n=310)))


def batch_of(case: tuple[str, str], config: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """900 tokens in texts of 300, or as many pictures and sounds as have about as many."""
    kind = tiny.record_of(*case).kind
    fixed = counts(config).fixed_tokens
    n_rows = 3 if kind == "towers" else ROWS // (fixed or LONG)
    monkeypatch.setattr(pairs, "N_ROWS", n_rows)
    monkeypatch.setattr(pairs, "N_TOKENS", 20 if kind == "towers" else LONG)
    monkeypatch.setattr(pairs, "N_SOURCE", SOURCE)
    given = pairs.inputs_for(kind, config).given()
    return {{"tokens": "tokens_BT"}.get(name, name): value for name, value in given.items()}


def loss_of(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """As training has it: of every token, or of a label a picture; of two towers, what stands for one."""
    config = model.config
    if isinstance(config, TwoTowersConfig):
        cosines: Tensor = model(**inputs).logits_per_text
        return cosines.square().sum()
    n_rows = len(next(iter(inputs.values())))
    if config.heads.tokens is not None:
        targets = torch.randint(0, config.vocab_size, inputs["tokens_BT"].shape)
        return MaskedTokens().loss(model, Batch(inputs, targets))[0]
    return Labels().loss(model, Batch(inputs, torch.zeros(n_rows, dtype=torch.long)))[0]


QUICK = ("llama", "t5", "mixtral", "mamba", "mamba2", "bert", "whisper")
"""Of each kind of layer one that is recomputed too, when there is little time."""
RUNS = [
    pytest.param(case, recompute, marks=pytest.mark.slow if recompute and case[0] not in QUICK else ())
    for case in ORDINARY
    for recompute in (False, True)
]


@pytest.mark.parametrize(("case", "recompute"), RUNS, ids=lambda of: str(of) if isinstance(of, bool) else "-".join(of))
def test_the_peak_of_a_step(case: tuple[str, str], recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is alive, from the first token to the last gradient, beside weights and gradients."""
    config = roomy(case)
    if recompute:
        # What training records of the routers holds on to the blocks that are worked out again.
        monkeypatch.setattr(objectives, "router_sites", lambda model: ())
    torch.manual_seed(0)
    model, inputs = build(config).train(), batch_of(case, config, monkeypatch)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    known = [*model.parameters(), *(p.grad for p in model.parameters()), *inputs.values()]
    with run_by(recomputed_parts(model, {}) if recompute else {}), Live(known) as live:
        loss_of(model, inputs).backward()
    size = {
        name: inputs[key].shape[1] for name, key in (("tokens", "tokens_BT"), ("source", "source")) if key in inputs
    }
    n_rows = len(next(iter(inputs.values())))
    told = counts(config).activations(n_rows, **{"tokens": None} | size, recompute=recompute)
    assert abs(told.total / live.peak - 1) <= CLOSE


def test_worked_by_hand() -> None:
    """3 tokens. A layer keeps, of attention: what it reads 24, queries 24, keys and values 12 each, what comes out 24,
    and a number a query and head, 6, together 102. Of the feed-forward: what it reads 24, and gate, its activation, up
    and their product 48 each, 216. Of two norms: what they read, and a size a token, 54. A norm more is 27. The most is
    there in the last feed-forward: its gradients on the stream, 48, and of a gate, 48.
    """
    found = counts(small()).activations(1, 3)
    assert found.parts == {"attention": 4 * 204, "feed-forward": 4 * 432, "norms": 4 * 135, "working": 4 * 96}
    assert found.total == 4 * 867
    assert counts(small()).activations(1, 3, bytes_per_number=2).total == 2 * 867


def test_recomputed_worked_by_hand() -> None:
    """One block in full, 372, what the other reads, 24, and the last norm and gradients as above."""
    found = counts(small()).activations(1, 3, recompute=True)
    assert found.parts == {"attention": 4 * 102, "feed-forward": 4 * 216, "norms": 4 * 105, "working": 4 * 96}


def test_matrices_are_kept_where_the_reference_trains() -> None:
    """Soft-capped scores of 3 x 3 cells: three matrices for each of 2 heads, in each of 2 layers, in place of a number
    a query; and at the most, which is now in the mixer or not, no less.
    """
    capped = small(mixer=replace(ATTENTION, scores=ScoresConfig(softcap=50.0)))
    plain, found = counts(small()).activations(1, 3), counts(capped).activations(1, 3)
    assert found.parts["attention"] - plain.parts["attention"] == 4 * 2 * (2 * 9 * 3 - 6)


def test_recomputing_takes_memory_that_hardly_grows_with_depth() -> None:
    """Llama 3 8B, a text of 8,192 in bfloat16: without, 32 blocks in full."""
    told = counts(published("llama3-8b"))
    kept, again = told.activations(1, 8192, 2), told.activations(1, 8192, 2, recompute=True)
    assert kept.total > 8 * again.total
    # What is left of 32 blocks: 8,192 tokens of 4,096 numbers each.
    assert again.total > 32 * 8192 * 4096 * 2


def test_bad_sizes() -> None:
    with pytest.raises(ClearheadError, match="batch is 0"):
        counts(small()).activations(0, 3)
    with pytest.raises(ClearheadError, match="65 tokens"):
        counts(small()).activations(1, 65)
    with pytest.raises(ClearheadError, match="bytes_per_number is 0"):
        counts(small()).activations(1, 3, 0)
