"""Blocks computed again in the backward pass: the same gradients to the bit, and less kept in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.training.blocks import run_by, ways
from clearhead.training.config import RunConfig
from clearhead.training.data.batches import Batch
from clearhead.training.objectives import NextToken, Objective, SourceToTarget
from tests.training.samples import VOCAB, Samples, same, tiny, tiny_model, tiny_trainer

RECOMPUTED, PLAIN = RunConfig(recompute=True), RunConfig()
SMALL = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
EXPERTS = {
    **SMALL,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32,
    "router_aux_loss_coef": 0.1,
    "attention_dropout": 0.1,
}
RELATIVE = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "dropout_rate": 0.1,
}


def of_family(family: str, architecture: str, raw: dict[str, Any]) -> Any:
    """A random tiny model of a published family."""
    torch.manual_seed(0)
    return build(FAMILIES[family].read({"model_type": family, "architectures": [architecture], **raw}, "here"))


def gradients(model: Any, objective: Objective, batch: Batch, run: RunConfig) -> dict[str, torch.Tensor]:
    model.train().zero_grad()
    torch.manual_seed(3)
    with run_by(ways(model, run)):
        loss, _ = objective.loss(model, batch)
        loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def packed() -> Batch:
    batch = Samples(rows=4).step(0)
    documents = (torch.arange(12) > 6).long().expand(4, 12)
    return Batch({**batch.inputs, "documents": documents}, batch.targets)


def read_and_told() -> Batch:
    batch = Samples(rows=4).step(0)
    tokens, present = batch.inputs["tokens_BT"], batch.inputs["present"]
    return Batch({"tokens_BT": tokens, "source": tokens.flip(1), "source_present": present.flip(1)}, batch.targets)


def test_gradients_are_the_same_to_the_bit_with_dropout() -> None:
    model = tiny_model(tiny())
    plain = gradients(model, NextToken(), packed(), PLAIN)
    assert same(gradients(model, NextToken(), packed(), RECOMPUTED), plain)
    torch.manual_seed(4)
    assert not same(gradients_of_another_dropout(model), plain)


def gradients_of_another_dropout(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    NextToken().loss(model, packed())[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_the_balance_of_experts_keeps_its_gradient() -> None:
    """Router logits are recorded, with their graph, in the pass that is thrown away."""
    model = of_family("mixtral", "MixtralForCausalLM", EXPERTS)
    plain = gradients(model, NextToken(), packed(), PLAIN)
    assert same(gradients(model, NextToken(), packed(), RECOMPUTED), plain)
    assert all(float(plain[f"layers.{i}.ffn.router.weight"].abs().max()) > 0 for i in range(2))


def test_a_trained_table_of_distances_that_layers_share() -> None:
    """What a pass keeps of it for the next layers would not be made the second time."""
    model = of_family("t5", "T5ForConditionalGeneration", RELATIVE)
    plain = gradients(model, SourceToTarget(), read_and_told(), PLAIN)
    again = gradients(model, SourceToTarget(), read_and_told(), RECOMPUTED)
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        # The table's gradients of the layers are added up in another order.
        assert torch.allclose(again[name], gradient, rtol=0, atol=1e-6), name


def test_less_is_kept_for_the_backward_pass() -> None:
    """Of twice as many layers, only twice the stream between them."""

    def kept(n_layers: int, run: RunConfig) -> int:
        config = tiny()
        model = tiny_model(replace(config, model=replace(config.model, n_layers=n_layers))).train()
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        found: dict[int, int] = {}

        def pack(x: torch.Tensor) -> torch.Tensor:
            if x.untyped_storage().data_ptr() not in weights:
                found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with run_by(ways(model, run)), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            loss, _ = NextToken().loss(model, packed())
        assert loss.requires_grad
        return sum(found.values())

    stream = 4 * 12 * 16 * 4
    grows = kept(8, PLAIN) - kept(4, PLAIN)
    assert grows > 4 * 10 * stream
    assert kept(8, RECOMPUTED) - kept(4, RECOMPUTED) <= 4 * stream
    assert kept(8, RECOMPUTED) < kept(8, PLAIN) / 4


def test_a_run_is_the_same_with_it() -> None:
    config = tiny()
    steps = []
    for recompute in (False, True):
        trainer = tiny_trainer(replace(config, run=replace(config.run, recompute=recompute)))
        steps.append(([trainer.step() for _ in range(3)], trainer.state()["optimiser"]))
    assert same(steps[0], steps[1])


@pytest.mark.parametrize("run", [PLAIN, RECOMPUTED])
def test_outside_a_step_blocks_are_as_they_are_written(run: RunConfig) -> None:
    model = tiny_model(tiny())
    with run_by(ways(model, run)):
        pass
    assert all("forward" not in vars(module) for module in model.modules())
