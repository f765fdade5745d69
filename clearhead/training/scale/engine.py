"""How the gradients of several processes become one: a lesson is a model and its objective, with torch's engine around.

The engine must see all that happens to the weights in a step. So what it wraps is not the model but the loss: then it
knows which weights were used, and those that a head uses after the model's pass too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from clearhead.nn.block import Block

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.taps import Taps
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective


class Lesson(Protocol):
    """The sum of the losses of a batch, and the number of its targets, as `Objective.loss`."""

    def __call__(self, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]: ...

    def last(self, is_last: bool) -> None:
        """Whether the next micro-batch is the last one of its step, after which gradients are added up."""
        ...

    def settle(self) -> None:
        """Weights are about to be looked at or changed from outside."""
        ...


class Loss(nn.Module):
    """A model and its objective, as a module whose forward pass is the loss."""

    def __init__(self, model: Transformer, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        return self.objective.loss(self.model, batch, taps)

    def last(self, is_last: bool) -> None:
        """Nothing is added up."""

    def settle(self) -> None:
        """Weights are where they always are."""


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
            broadcast_buffers=False,
        )
        self.engine.register_comm_hook(group, _summed)

    def __call__(self, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        # The engine is for what has a backward pass.
        run: Callable[..., tuple[Tensor, Tensor]] = self.engine if torch.is_grad_enabled() else self.loss
        return run(batch, taps)

    def last(self, is_last: bool) -> None:
        self.engine.require_backward_grad_sync = is_last

    def settle(self) -> None:
        """Weights are where they always are."""


def _summed(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's own way takes the mean over the processes, and these are gradients of sums."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


class Shards:
    """Every process keeps a share of each weight, of its gradient and of what the optimiser remembers; a block's
    weights are whole while it is computed (FSDP2).
    """

    def __init__(self, loss: Loss, mesh: DeviceMesh) -> None:
        self.loss = loss
        for block in _apart(module for module in loss.modules() if isinstance(module, Block)):
            fully_shard(block, mesh=mesh)
        fully_shard(loss, mesh=mesh)
        self.parts = [module for module in loss.modules() if isinstance(module, FSDPModule)]
        for part in self.parts:
            # Sums, and not the mean over processes.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)

    def __call__(self, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = self.loss(batch, taps)
        return result

    def last(self, is_last: bool) -> None:
        """Gradients are shared out after every micro-batch: kept whole, they would be the largest thing in memory."""

    def settle(self) -> None:
        """After a pass without gradients, the outermost weights still lie whole."""
        for part in self.parts:
            part.reshard()


def _apart(blocks: Iterable[nn.Module]) -> list[nn.Module]:
    """The blocks that share no weight with another; the others stay with what is around them."""
    listed = list(blocks)
    owners: dict[int, int] = {}
    for block in listed:
        for p in block.parameters():
            owners[id(p)] = owners.get(id(p), 0) + 1
    return [block for block in listed if all(owners[id(p)] == 1 for p in block.parameters())]


def uses_all(loss: Loss, batch: Batch) -> bool:
    """Whether every weight that takes a gradient has one after a loss. Draws no random number that others would get."""
    state = torch.get_rng_state()
    weights = [p for p in loss.parameters() if p.requires_grad]
    total, _ = loss(batch)
    found: Any = torch.autograd.grad(total, weights, allow_unused=True)
    torch.set_rng_state(state)
    return all(gradient is not None for gradient in found)
