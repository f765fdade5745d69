"""What lies in parts on several processes, put together and taken apart again.

A checkpoint knows nothing of processes: its tensors are whole, so that any number of them can go on from it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate

from clearhead.training.scale.tensor import Here

M = TypeVar("M", bound=nn.Module)


def gathered(value: Any, keep: bool) -> Any:
    """`value` with every shared tensor in it whole, and on the CPU; all processes have to ask. Where it is not to be
    kept, it is let go of at once.
    """
    if isinstance(value, DTensor):
        whole = value.full_tensor().detach()
        return whole.cpu() if keep else None
    if isinstance(value, Tensor):
        return value.detach().cpu() if keep else None
    if isinstance(value, dict):
        return {key: gathered(one, keep) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(gathered(one, keep) for one in value)
    return value


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, the same in all processes, laid out as `like` is; or as it is, where `like` is not shared.

    What an optimiser keeps of a matrix may be of another shape, and then lies whole everywhere.
    """
    if not isinstance(like, DTensor) or isinstance(value, DTensor) or value.ndim == 0:
        return value
    mesh = like.device_mesh
    # Every process has all of it: nothing needs to be sent.
    whole = DTensor.from_local(value.detach().to(like.device), mesh, [Replicate()] * mesh.ndim, run_check=False)
    # A copy, so that what lies elsewhere is let go of.
    return whole.redistribute(placements=like.placements).clone() if value.shape == like.shape else whole


def placed_state(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimiser as a checkpoint has it, laid out as the weights of `optimiser` are."""
    weights = [p for group in optimiser.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    of = dict(zip(numbers, weights, strict=True))
    kept = {
        number: {name: placed(one, of[number]) if isinstance(one, Tensor) else one for name, one in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": kept}


def whole_model(model: M, keep: bool) -> M | None:
    """A plain model of the same weights, whole; all processes have to ask, and only those get it that keep it."""
    weights: dict[int, nn.Parameter] = {}
    for p in model.parameters():
        value = (p.full_tensor() if isinstance(p, DTensor) else p).detach()
        if keep:
            weights[id(p)] = nn.Parameter(value, p.requires_grad)
    return _plain(model, weights) if keep else None


def _plain(module: M, weights: dict[int, nn.Parameter]) -> M:
    """The same tree of modules, without what was hung on it, on other weights."""
    kind = next(c for c in type(module).__mro__ if not issubclass(c, FSDPModule | Here))
    made: Any = kind.__new__(kind)
    hooks = {name: value for name, value in nn.Module().__dict__.items() if "hook" in name}
    made.__dict__.update({**module.__dict__, **hooks})
    made._parameters = {name: None if p is None else weights[id(p)] for name, p in module._parameters.items()}
    made._buffers = dict(module._buffers)
    made._modules = {name: None if child is None else _plain(child, weights) for name, child in module._modules.items()}
    plain: M = made
    return plain
