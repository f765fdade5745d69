"""What training keeps beside activations, against real optimisers and real layouts, and worked by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from clearhead.config import AttentionConfig, FeedForwardConfig, QKNormConfig
from clearhead.costs import counts
from clearhead.costs.memory import OPTIMISERS, OptimiserName, TrainedBytes
from clearhead.errors import ClearheadError
from clearhead.model.build import build
from clearhead.training.config import OptimConfig
from clearhead.training.optimiser import optimiser
from clearhead.training.scale.engine import Shards
from clearhead.training.scale.lesson import Loss
from clearhead.training.scale.tensor import share_matrices
from tests.costs.models import ORDINARY, config_of, published
from tests.costs.small import ATTENTION, NORM, small

Case = tuple[str, str]


def state_of(found: torch.optim.Optimizer, parameters: list[Tensor]) -> int:
    """Bytes that an optimiser holds in this process after a step."""
    for p in parameters:
        if p.requires_grad:
            p.grad = torch.ones_like(p)
    found.step()
    return sum(here(x).nbytes for kept in found.state.values() for x in kept.values() if isinstance(x, Tensor))


def here(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("case", ORDINARY, ids="-".join)
def test_a_real_optimiser_holds_as_much(case: Case, name: OptimiserName) -> None:
    model = build(config_of(case))
    parameters = list(model.parameters())
    told = counts(model).optimiser(name)
    assert told.weights == sum(p.nbytes for p in parameters)
    assert told.gradients == sum(p.nbytes for p in parameters if p.requires_grad)
    assert told.state == state_of(optimiser(model, OptimConfig(name=name)), parameters)


def test_optimisers_worked_by_hand() -> None:
    """1,272 weights in 19 tensors: a table, in each of 2 layers 4 + 3 matrices and 2 norms, and a norm. AdamW: two
    numbers a weight and a count a tensor. Muon: one for the 1,152 of matrices, and AdamW's for the 120 and 6 tensors
    others. Adafactor: rows and columns, 18 of the table, (16 + 12 + 12 + 16) + 3 x 24 = 128 a layer; 8 a norm; a count.
    """
    told = counts(small())
    assert told.optimiser() == TrainedBytes(weights=4 * 1272, gradients=4 * 1272, state=2 * 4 * 1272 + 4 * 20)
    assert told.optimiser("muon").state == 4 * 1152 + 2 * 4 * 120 + 4 * 6
    assert told.optimiser("adafactor").state == 4 * (18 + 2 * 128 + 5 * 8) + 4 * 20
    assert told.optimiser("adamw", bytes_per_number=2).weights == 2 * 1272


# ---- several processes


@pytest.fixture
def mesh() -> Iterator[Any]:
    """Two processes that share rows and two that share matrices, of which this is the first and the others nobody."""
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "tensor"))
    dist.destroy_process_group()


NAMES = ("llama", "gpt2", "t5", "mixtral", "whisper", "olmo2", "mamba", "deepseek_v3")
EVEN = [case for name in NAMES for case in ORDINARY if case[0] == name]
"""Of each kind of layout one, whose heads and hidden units can be shared by two."""


@pytest.mark.parametrize(("shard", "tensor"), [(2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(
    ("case", "name"),
    [*((case, "adamw") for case in EVEN), (EVEN[0], "muon")],
    ids=lambda of: of if isinstance(of, str) else "-".join(of),
)
def test_one_of_several_real_processes_holds_as_much(
    case: Case, shard: int, tensor: int, name: OptimiserName, mesh: Any
) -> None:
    torch.manual_seed(0)
    model = build(config_of(case))
    if tensor > 1:
        share_matrices(model, mesh["tensor"])
    loss = Loss(model)
    if shard > 1:
        Shards(loss, mesh["rows"])
    parameters = list(model.parameters())
    told = counts(config_of(case)).per_rank(shard, tensor, name)
    assert told.weights == sum(here(p).nbytes for p in parameters)
    assert told.gradients == sum(here(p).nbytes for p in parameters if p.requires_grad)
    assert told.state == state_of(optimiser(model, OptimConfig(name=name)), parameters)
    assert (told.gathered > 0) == (shard > 1)
    if shard > 1 and tensor == 1:
        outside, *blocks = units = [4 * sum(p.numel() for p in of) for of in _units(loss)]
        assert told.gathered == outside + min(2, len(blocks)) * max(blocks) + max(units)


def _units(loss: torch.nn.Module) -> list[list[Tensor]]:
    """The weights that are gathered together: those outside the blocks first."""
    modules = [m for m in loss.modules() if isinstance(m, FSDPModule)]
    inner = {id(p) for m in modules[1:] for p in m.parameters()}
    return [[p for p in loss.parameters() if id(p) not in inner], *(list(m.parameters()) for m in modules[1:])]


def test_alone_nothing_is_shared() -> None:
    told = counts(small())
    assert told.per_rank() == told.optimiser()


def test_ranks_worked_by_hand() -> None:
    """Of 4 processes that share every weight each has a quarter of each tensor's rows, or one of 10 words more: 3 x 8
    of 80, 48 of each layer's 192, 96 of 384, and 2 of each norm's 8: 24 + 2 x (144 + 4) + 2 = 322. For a while there
    are 88 outside the blocks, twice the 592 of a block, and the gradient of one.
    """
    found = counts(small()).per_rank(shard=4)
    assert (found.weights, found.gradients) == (4 * 322, 4 * 322)
    assert found.state == 2 * 4 * 322 + 4 * 20
    assert found.gathered == 4 * (88 + 2 * 592 + 592)
    assert found.total == 4 * 322 * 4 + 80 + found.gathered


def test_matrices_shared_worked_by_hand() -> None:
    """2 processes with a head each have half of all matrices in blocks, and all else: 120 + 576. (Two key-value heads
    here: each layer has 256 + 384.)
    """
    even = small(mixer=AttentionConfig(n_heads=2, n_kv_heads=2, d_head=4))
    found = counts(even).per_rank(tensor=2)
    assert found.weights == 4 * (120 + 2 * (128 + 192))
    assert found.gathered == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (small(), "layers.0 has 1 key-value heads, which 2 processes can't share evenly"),
        (small(ffn=FeedForwardConfig(d_ff=3), mixer=replace(ATTENTION, n_kv_heads=2)), "3 hidden units"),
    ],
)
def test_what_can_not_be_shared_is_named(config: Any, words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        counts(config).per_rank(tensor=2)


def test_a_norm_over_all_heads_keeps_attention_whole() -> None:
    op = replace(ATTENTION, n_heads=3, n_kv_heads=3, qk_norm=QKNormConfig(norm=NORM, over="all_heads"))
    told = counts(small(mixer=op))
    assert told.per_rank(tensor=2).weights == told.optimiser().weights - 4 * 2 * 384 // 2


def test_bad_sizes() -> None:
    told = counts(small())
    with pytest.raises(ClearheadError, match="no optimiser 'sgd'; choose one of adamw, muon, adafactor"):
        told.optimiser("sgd")  # type: ignore[arg-type]  # that is what is wrong with it
    with pytest.raises(ClearheadError, match="adafactor needs every matrix whole"):
        told.per_rank(shard=2, name="adafactor")
    with pytest.raises(ClearheadError, match="shard is 0"):
        told.per_rank(shard=0)
    with pytest.raises(ClearheadError, match="bytes_per_number is -4"):
        told.optimiser(bytes_per_number=-4)


def test_llama_3_70b() -> None:
    """16 bytes a weight of float32 and AdamW (Rajbhandari 2020, ZeRO, section 3.1, counts as many): 1.13 TB; on each of
    64 processes a 64th and what is whole for a while.
    """
    told = counts(published("llama3-70b"))
    assert told.optimiser().total == pytest.approx(16 * 70_553_706_496, rel=1e-6)
    found = told.per_rank(shard=64)
    assert found.total - found.gathered == pytest.approx(told.optimiser().total / 64, rel=1e-4)
