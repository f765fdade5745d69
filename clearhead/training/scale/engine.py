"""How the gradients of several processes become one: torch's engines around a lesson.

The engine must see all that happens to the weights in a step. So what it wraps is not the model but the loss: then it
knows which weights were used, and those that a head uses after the model's pass too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from clearhead.nn.block import Block
from clearhead.nn.norm import Norm
from clearhead.training.scale.lesson import Loss

if TYPE_CHECKING:
    from clearhead.taps import Taps
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective


class Matrices:
    """The processes share matrices and nothing else: each has the whole gradient of what it has."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, objective: Objective, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = self.loss(objective, batch, taps)
        return result

    def part(self, batch: Batch, is_last: bool) -> AbstractContextManager[Batch]:
        # Shared gradients are summed after every micro-batch: kept whole, they would be the largest thing in memory.
        return nullcontext(batch)

    def settle(self) -> None:
        """They never lie otherwise."""

    def moved(self) -> None:
        _forget(self.loss)


class Shards(Matrices):
    """Every process keeps a share of each weight, of its gradient and of what the optimiser remembers; a block's
    weights are whole while it is computed (FSDP2).
    """

    def __init__(self, loss: Loss, mesh: DeviceMesh) -> None:
        super().__init__(loss)
        for block in _apart(module for module in loss.modules() if isinstance(module, Block)):
            fully_shard(block, mesh=mesh)
        fully_shard(loss, mesh=mesh)
        self.parts = [module for module in loss.modules() if isinstance(module, FSDPModule)]
        for part in self.parts:
            # Sums, and not the mean over processes.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)

    def settle(self) -> None:
        for part in self.parts:
            part.reshard()
        _forget(self.loss)


class Copies:
    """Every process has the whole model; gradients are summed over them (DDP)."""

    def __init__(self, loss: Loss, group: dist.ProcessGroup, *, all_used: bool) -> None:
        self.loss = loss
        device = next(loss.parameters()).device
        self.engine = DistributedDataParallel(
            loss,
            device_ids=None if device.type == "cpu" else [device],
            process_group=group,
            find_unused_parameters=not all_used,
        )
        self.engine.register_comm_hook(group, lambda group, bucket: _summed(group, bucket))

    def __call__(self, objective: Objective, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        # The engine is for what has a backward pass.
        run: Callable[..., tuple[Tensor, Tensor]] = self.engine if torch.is_grad_enabled() else self.loss
        return run(objective, batch, taps)

    def part(self, batch: Batch, is_last: bool) -> AbstractContextManager[Batch]:
        self.engine.require_backward_grad_sync = is_last
        return nullcontext(batch)

    def settle(self) -> None:
        """They never lie otherwise."""

    def moved(self) -> None:
        """Their versions say so."""


def _summed(group: dist.ProcessGroup, bucket: Any) -> torch.futures.Future[Tensor]:
    """DDP's own way takes the mean over the processes, and these are gradients of sums."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def _apart(blocks: Iterable[nn.Module]) -> list[nn.Module]:
    """The blocks that share no weight with another; the others stay with what is around them."""
    listed = list(blocks)
    owners: dict[int, int] = {}
    for block in listed:
        for p in block.parameters():
            owners[id(p)] = owners.get(id(p), 0) + 1
    return [block for block in listed if all(owners[id(p)] == 1 for p in block.parameters())]


def _forget(model: nn.Module) -> None:
    """What norms have made of their weights is old: tensors that take turns in one memory have no versions to tell."""
    for module in model.modules():
        if isinstance(module, Norm):
            module.forget()


def uses_all(loss: Loss, objective: Objective, batch: Batch) -> bool:
    """Whether every weight that takes a gradient has one after a loss."""
    weights = [p for p in loss.parameters() if p.requires_grad]
    with torch.random.fork_rng():
        total, _ = loss(objective, batch)
    found: Any = torch.autograd.grad(total, weights, allow_unused=True)
    return all(gradient is not None for gradient in found)
