"""Every family's stream is the sum of its parts, its logits too, and its norms fold into what reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clearhead.config import TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.accumulated import accumulated
from clearhead.lens.attribution import attribution
from clearhead.lens.fold import fold
from clearhead.lens.logit_lens import logit_lens
from clearhead.lens.targets import logits_of
from tests import tiny
from tests.families.pairs import Inputs, Pair, named, worst
from tests.oracles import REAL_TOLERANCE, TOLERANCE, error

F32 = TOLERANCE[torch.float32]
BY = ("layer", "head", "neuron", "position")
every = pytest.mark.parametrize(
    "pair", tiny.cases("decoder", "encoder", "seq2seq", "audio", "vision"), indirect=True, ids="-".join
)


def given(pair: Pair) -> dict[str, torch.Tensor]:
    """Its inputs, no longer than what it was made for."""
    x: Inputs = pair.inputs
    if x.tokens is not None and (pair.ours.config.context or 20) < x.tokens.shape[1]:
        x = x.slots(slice(0, pair.ours.config.context))
    return replace(x).given()


@every
def test_parts_sum_to_the_logit(pair: Pair) -> None:
    model, x = pair.ours, given(pair)
    if model.head is None:
        with pytest.raises(ClearheadError, match="needs a vocabulary head"):
            attribution(model, x)
        return
    heads = any("z" in block.mixer.sites for block in model.layers)
    neurons = any(block.ffn is not None and "post" in block.ffn.sites for block in model.layers)
    there = {"head": heads, "neuron": neurons}
    logits_BTV = logits_of(pair.ask(Inputs(**x)))
    for by in BY:
        if not there.get(by, True):
            with pytest.raises(ClearheadError, match=f"nothing to attribute by {by}"):
                attribution(model, x, by=by)
            continue
        for against in (None, 3):
            found = attribution(model, x, [5, 6, 7], against=against, position=[-1, 2, 9], by=by)
            rows = torch.arange(3)
            at_BV = logits_BTV[rows, torch.tensor([logits_BTV.shape[1] - 1, 2, 9])]
            cap = model.head.config.softcap
            total = found.total
            if against is None and cap is not None:
                total = torch.tanh(total / cap) * cap
            if against is None or cap is None:
                logit = at_BV[rows, [5, 6, 7]] - (0 if against is None else at_BV[:, 3])
                assert error(total, logit.double()) <= REAL_TOLERANCE
            assert found.error <= F32
            assert bool(found.note) == (cap is not None)


@every
def test_the_stream_is_the_sum_of_its_parts(pair: Pair) -> None:
    x = given(pair)
    found = accumulated(pair.ours, x)
    assert error(found.stream_PBTD[-1], look(pair.ours, x, "final")["final"].double()) <= F32
    if pair.ours.head is not None:
        lens = logit_lens(pair.ours, Inputs(**x).row(1).given())
        with torch.no_grad():
            logits = logits_of(pair.ask(Inputs(**x).row(1)))[0]
        assert error(lens.probabilities[-1][:, 0], logits.softmax(-1).amax(-1)) <= F32


@every
def test_folding_changes_no_output(pair: Pair) -> None:
    model = pair.ours
    assert isinstance(model.config, TransformerConfig)
    stacks = [stack for stack in (model.config.decoder, model.config.encoder) if stack is not None]
    before = [s.pre for stack in stacks for b in stack.blocks for s in (b.mixer, b.cross, b.ffn) if s is not None]
    alone = model.head is not None and model.pool is None and not model.labels
    if not any(before) and (model.norm is None or not alone):
        with pytest.raises(ClearheadError, match="norms stand after"):
            fold(model)
        return
    folded = fold(model)
    assert worst(named(pair.ask(pair.inputs, folded)), named(pair.ask(pair.inputs))) <= F32
    for name, module in folded.named_modules():
        if name.endswith("_norm.pre") or (name == "norm" and alone):
            assert bool((module.weight == 1 - module.config.offset).all()), name
            assert module.bias is None or not module.bias.any()
    if all(norm is not None and norm.kind == "layer" for norm in (*before, model.config.stack.norm)):
        try:
            centred = fold(model, centre=True)
        except ClearheadError as problem:
            assert "embedding writes is not its weights alone" in str(problem)  # noqa: PT017
            return
        assert worst(named(pair.ask(pair.inputs, centred)), named(pair.ask(pair.inputs))) <= F32
