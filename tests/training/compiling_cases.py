"""Compiled blocks: what the plain ones give, one graph for all that are alike, and none made anew step after step.

`test_compiling.py` has these run in a process without shape checks, with which torch.compile does not mix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._inductor.config
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend

from clearhead.errors import ClearheadError
from clearhead.ops import backends
from clearhead.training import blocks
from clearhead.training.blocks import run_by
from clearhead.training.compiling import compiled_parts
from clearhead.training.config import RunConfig
from clearhead.training.data.batches import Batch
from clearhead.training.objectives import NextToken, SourceToTarget
from clearhead.training.precision import precision
from clearhead.training.recompute import recomputed_parts
from clearhead.training.trainer import NotFiniteError
from tests.oracles import TOLERANCE, error
from tests.training.samples import Samples, same, tiny, tiny_model, tiny_trainer
from tests.training.test_recompute import EXPERTS, RELATIVE, of_family, packed, read_and_told


@pytest.fixture(autouse=True)
def _compiling() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def plain_dropout(n_layers: int = 2, dropout: float = 0.0) -> Any:
    config = tiny()
    return tiny_model(replace(config, model=replace(config.model, n_layers=n_layers, dropout=dropout))).train()


def gradients(model: Any, objective: Any, batch: Batch, runs: dict[Any, Any]) -> list[torch.Tensor]:
    model.train().zero_grad()
    torch.manual_seed(3)
    with run_by(runs):
        loss, _ = objective.loss(model, batch)
        loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def check_alike(model: Any, objective: Any, batch: Batch, backend: str) -> None:
    plain = gradients(model, objective, batch, {})
    fast = gradients(model, objective, batch, compiled_parts(model, backend))
    assert len(plain) == len(fast)
    for a, b in zip(fast, plain, strict=True):
        assert error(a, b) < 1e-5


CASES: dict[str, tuple[Any, Any, Any]] = {
    "documents": (plain_dropout, NextToken(), packed),
    "experts": (
        lambda: of_family("mixtral", "MixtralForCausalLM", {**EXPERTS, "attention_dropout": 0.0}),
        NextToken(),
        packed,
    ),
    "a table of distances, and a source": (
        lambda: of_family("t5", "T5ForConditionalGeneration", {**RELATIVE, "dropout_rate": 0.0}),
        SourceToTarget(),
        read_and_told,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_eager_equals_compiled(case: str) -> None:
    make, objective, batch = CASES[case]
    check_alike(make(), objective, batch(), "aot_eager")


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("float32", "clearhead.product.default"),
        ("bfloat16", "clearhead.attention_products.default"),
        ("bfloat16", "clearhead.attention_products_backward.default"),
    ],
)
def test_compiled_code_calls_the_fast_operations(dtype: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of products in float32, and of attention in bfloat16; and the gradients are the plain ones'."""
    monkeypatch.setattr(backends, "QUICK", True)
    backends.choose.cache_clear()
    called: set[str] = set()

    def look(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        called.update(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    model, whole = plain_dropout(), Samples(rows=4).step(0)
    batch = Batch({"tokens_BT": whole.inputs["tokens_BT"]}, whole.targets)
    runs = compiled_parts(model, aot_autograd(fw_compiler=look))
    with precision(dtype, model.device):
        plain, fast = (gradients(model, NextToken(), batch, ways) for ways in ({}, runs))
    backends.choose.cache_clear()
    assert wanted in called
    tolerance = 1e-5 if dtype == "float32" else TOLERANCE[torch.bfloat16]
    assert max(error(a, b) for a, b in zip(fast, plain, strict=True)) < tolerance


def short(batch: Batch, length: int) -> Batch:
    return Batch({name: x[:, :length] for name, x in batch.inputs.items()}, batch.targets[:, :length])


def graphs_after(model: Any, batches: list[Batch]) -> list[int]:
    """How many graphs there are after each batch."""
    counter = CompileCounterWithBackend("eager")
    runs = compiled_parts(model, counter)
    before, found = counter.frame_count, []
    for batch in batches:
        gradients(model, NextToken(), batch, runs)
        found.append(counter.frame_count - before)
    return found


def test_layers_alike_share_a_graph_and_later_steps_make_none() -> None:
    samples = Samples(rows=4)
    assert graphs_after(plain_dropout(4), [samples.step(i) for i in range(4)]) == [1, 1, 1, 1]
    torch.compiler.reset()
    assert graphs_after(plain_dropout(4, 0.1), [packed() for _ in range(3)]) == [1, 1, 1]


def test_rows_of_other_lengths_are_compiled_for_once() -> None:
    samples = Samples(rows=4)
    batches = [short(samples.step(i), 12 - i) for i in range(6)]
    assert graphs_after(plain_dropout(3), batches) == [1, 2, 2, 2, 2, 2]


def test_what_somebody_looks_into_is_run_as_it_is_written() -> None:
    """Layers with experts tell their router's logits in every step; what stands before those is compiled."""
    model = of_family("mixtral", "MixtralForCausalLM", EXPERTS)
    parts = compiled_parts(model, "eager")
    assert [part.path for part in parts] == ["layers.0.mixer", "layers.1.mixer"]
    whole = plain_dropout()
    assert [part.path for part in compiled_parts(whole, "eager")] == ["layers.0", "layers.1"]


def test_a_layer_that_goes_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "compiled_parts", lambda model: compiled_parts(model, "eager"))
    trainer = tiny_trainer(tiny(run=RunConfig(steps=12, compile=True)))
    ffn = trainer.model.layers[1].ffn
    with torch.no_grad():
        ffn.up_proj.weight.mul_(1e38)
        ffn.gate_proj.weight.mul_(1e30)
    with pytest.raises(NotFiniteError, match=r"layers\.1\.ffn"):
        trainer.step()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_and_recomputed_draws_the_same_numbers_twice(backend: str) -> None:
    model = plain_dropout(2, 0.1)
    runs = compiled_parts(model, backend)
    compiled = gradients(model, NextToken(), packed(), runs)
    both = gradients(model, NextToken(), packed(), {**runs, **recomputed_parts(model, runs)})
    assert same(compiled, both)


@pytest.mark.slow
def test_a_run_has_the_losses_of_a_plain_one() -> None:
    config = tiny(model=replace(tiny().model, dropout=0.0))
    plain = tiny_trainer(config)
    compiled = tiny_trainer(replace(config, run=replace(config.run, compile=True)))
    for _ in range(6):
        a, b = plain.step(), compiled.step()
        assert b.loss == pytest.approx(a.loss, abs=1e-5)
        assert b.norm == pytest.approx(a.norm, rel=1e-4)
    assert plain.model.state_dict().keys() == compiled.model.state_dict().keys()


def test_a_compiler_that_does_not_work_is_told_before_the_run() -> None:
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "nonesuch")}),
        pytest.raises(ClearheadError, match=r"run\.compile needs a C\+\+ compiler.*nonesuch.*apt-get install"),
    ):
        tiny_trainer(tiny(run=RunConfig(steps=12, compile=True)))
