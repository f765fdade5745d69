"""Experts of every family against the `transformers` package: logits, choices, weights, and the balance loss."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ExpertsConfig
from clearhead.model.balance import balance_term, router_sites
from clearhead.ops.routing import balance_loss, weigh
from clearhead.taps import Recorder
from tests import tiny
from tests.families.figures import note
from tests.families.pairs import Pair
from tests.families.routers import by_expert, their_routers
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]
FAMILIES = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "jamba", "granitemoehybrid")
CASES = [case for case in tiny.cases() if case[0] in FAMILIES]
LENGTHS = (20, 13, 4)

sparse = pytest.mark.parametrize("pair", CASES, indirect=True, ids="-".join)


def ops(pair: Pair) -> list[ExpertsConfig]:
    parts = [block.ffn.op for block in pair.ours.config.stack.blocks if block.ffn is not None]
    return [op for op in parts if isinstance(op, ExpertsConfig)]


@sparse
def test_logits_choices_and_weights(pair: Pair) -> None:
    theirs = their_routers(pair, pair.inputs)
    sites = router_sites(pair.ours)
    assert len(theirs) == len(sites) == len(ops(pair))
    seen = pair.record(pair.inputs, *sites, *(site.replace("router_logits", "chosen") for site in sites))
    for site, op, routed in zip(sites, ops(pair), theirs, strict=True):
        logits, chosen = seen[site].flatten(0, 1), seen[site.replace("router_logits", "chosen")].flatten(0, 1)
        weights = weigh(logits, chosen, op.router.score, renormalise=op.router.renormalise, scale=op.router.scale)
        assert torch.equal(chosen.sort().values, routed.chosen.sort().values)
        mine, other = (by_expert(c, w, op.n_experts) for c, w in ((chosen, weights), (routed.chosen, routed.weights)))
        found = max(error(logits, routed.logits), error(mine, other))
        note(pair.family, "router", found)
        assert found <= F32


@sparse
def test_balance_loss_without_padding_and_with(pair: Pair) -> None:
    tokens, present = pair.inputs.tokens, torch.arange(20) < torch.tensor(LENGTHS)[:, None]
    for mask in (None, present):
        recorder = Recorder(router_sites(pair.ours))
        pair.ask(pair.inputs, taps=recorder, **({} if mask is None else {"present": mask}))
        term = balance_term(pair.ours, recorder.values, mask)
        if not recorder.values:
            assert float(term) == 0.0
            continue
        (kind,) = {(op.n_chosen, op.router.balance) for op in ops(pair)}
        plain = balance_loss(list(recorder.values.values()), kind[0], mask)
        assert error(term, kind[1] * plain) <= F32
        how = {} if mask is None else {"attention_mask": mask.long()}
        out = pair.ask_them(pair.inputs, output_router_logits=True, labels=tokens, **how)
        if out.get("aux_loss") is None:
            assert kind[1] == 0.0, "they train a balance, and we don't"
            continue
        weight = pair.theirs.config.router_aux_loss_coef
        without = pair.ask_them(pair.inputs, output_router_logits=False, labels=tokens, **how)
        found = max(error(plain, out.aux_loss), error(term, out.loss - without.loss), abs(weight - kind[1]))
        note(pair.family, "router", found)
        assert found <= F32
