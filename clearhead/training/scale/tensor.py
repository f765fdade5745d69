"""Tensor parallelism: the processes share matrices, by a plan that each part of a block has for itself.

What a part computes from its share of columns stays apart (heads, hidden units) until rows of the next matrix bring it
together again, so the stream is the same everywhere (Shoeybi 2019, Megatron-LM, section 3). Parts without a plan are
whole in every process, and so are tables of tokens and heads. Every parameter is a DTensor, so that lengths of
gradients are those of the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from clearhead.config import AlibiConfig, RelativeBiasConfig
from clearhead.errors import ClearheadError
from clearhead.model.stack import Stack
from clearhead.nn.attention import Attention
from clearhead.nn.feed_forward import FeedForward
from clearhead.nn.linear import Linear

Plan = dict[str, ParallelStyle]
"""How a part's modules lie, by their names within it."""


def share_matrices(model: nn.Module, mesh: DeviceMesh) -> None:
    """Lay a model out over the processes of `mesh`; what it computes is as before.

    Raises:
        ClearheadError: there are parts, named, that so many processes can't share.
    """
    n = mesh.size()
    plan: Plan = {}
    for path, part in model.named_modules():
        styles = attention_plan(part, n, path) if isinstance(part, Attention) else {}
        styles = feed_forward_plan(part, n, path) if isinstance(part, FeedForward) else styles
        plan |= {f"{path}.{name}".strip("."): style for name, style in styles.items()}
    for path, stack in model.named_modules():
        if isinstance(stack, Stack):
            plan |= _relative_plan(stack, path, plan)
    whole = {path: Lies() for path, part in model.named_modules() if path not in plan and part._parameters}
    owners = _owners(model)
    for path, style in (plan | whole).items():
        parallelize_module(model.get_submodule(path), mesh, style)
    # What two parts have in common is laid out with each, and must stay one.
    for (first, name), *others in owners:
        for other, its_name in others:
            other._parameters[its_name] = first._parameters[name]


def attention_plan(part: Attention, n: int, path: str) -> Plan:
    """Each process has some of the heads, with all that belongs to them. One norm over all heads, slopes that are
    counted over all of them (ALiBi), and a table with columns for heads that were cut off need the heads together:
    such a part has no plan.
    """
    c = part.config
    if isinstance(c.positions, AlibiConfig) or (c.qk_norm is not None and c.qk_norm.over == "all_heads"):
        return {}
    if part.kept is not None and isinstance(c.positions, RelativeBiasConfig):
        return {}
    for count, what in ((c.n_heads, "heads"), (c.n_kv_heads, "key-value heads")):
        if count % n:
            raise _uneven(path, count, what, n)
    _check_plain(part, path)
    plan: Plan = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")}
    plan["o_proj"] = RowwiseParallel()
    plan |= {name: Lies(inside=True) for name in ("q_norm", "k_norm") if getattr(part, name) is not None}
    return {**plan, "": Lies(Shard(0))} if part.sinks is not None else plan


def feed_forward_plan(part: FeedForward, n: int, path: str) -> Plan:
    """Each process has some of the hidden units."""
    if part.config.d_ff % n:
        raise _uneven(path, part.config.d_ff, "hidden units", n)
    _check_plain(part, path)
    names = ("up_proj",) if part.gate_proj is None else ("gate_proj", "up_proj")
    return {**{name: ColwiseParallel() for name in names}, "down_proj": RowwiseParallel()}


def _relative_plan(stack: Stack, path: str, plan: Plan) -> Plan:
    """The table's columns go with the heads."""
    prefix = f"{path}." if path else ""
    table = f"{prefix}relative"
    readers = [
        f"{prefix}layers.{i}.mixer"
        for i, block in enumerate(stack.layers)
        if isinstance(block.mixer, Attention) and isinstance(block.mixer.config.positions, RelativeBiasConfig)
    ]
    shared = [path for path in readers if f"{path}.q_proj" in plan]
    if stack.relative is None or not shared:
        return {}
    if shared != readers:
        raise ClearheadError(
            f"{table} serves layers whose heads can be shared by several processes ({shared[0]}) and others whose "
            "heads can't; go without tensor parallelism (--set run.scale.tensor=1)"
        )
    return {table: Lies(Shard(1))}


def _uneven(path: str, count: int, what: str, n: int) -> ClearheadError:
    return ClearheadError(
        f"{path} has {count} {what}, which {n} processes can't share evenly; run.scale.tensor must divide {count}"
    )


def _check_plain(part: nn.Module, path: str) -> None:
    for name, child in part.named_children():
        if name.endswith("_proj") and not isinstance(child, Linear):
            raise ClearheadError(
                f"{path}.{name} has an adapter, and only plain matrices can be shared by several processes; use "
                "run.scale.shard in place of run.scale.tensor"
            )


def _owners(model: nn.Module) -> Iterator[list[tuple[nn.Module, str]]]:
    """The modules that hold one parameter, for each that has several."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            found.setdefault(id(p), []).append((module, name))
    return iter([owners for owners in found.values() if len(owners) > 1])


class Here(nn.Module):
    """Of a module whose parameters are DTensors: it computes on what of them is in this process."""

    inside: bool
    """Whether it works on a share of the heads, so that gradients have to be added up."""

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        return here(value, self.inside) if isinstance(value, DTensor) else value


def here(value: DTensor, inside: bool) -> Tensor:
    """The part of a parameter that lies in this process, with a way back for its gradient."""
    local: Tensor = value.to_local()
    if not inside:
        return local
    mesh = value.device_mesh
    return DTensor.from_local(local, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


_CLASSES: dict[tuple[type[nn.Module], bool], type[nn.Module]] = {}


class Lies(ParallelStyle):
    """A module's own parameters are laid out in one way, whole everywhere where nothing is said, and it computes on
    what is here of them.
    """

    def __init__(self, placement: Placement | None = None, *, inside: bool = False) -> None:
        super().__init__()
        self.placement: Placement = placement or Replicate()
        self.inside = inside

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, p in list(module.named_parameters(recurse=False)):
            value = distribute_tensor(p.detach(), device_mesh, [self.placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(value, p.requires_grad))
        kind = (type(module), self.inside)
        if kind not in _CLASSES:
            _CLASSES[kind] = type(f"Here{kind[0].__name__}", (Here, kind[0]), {"inside": self.inside})
        module.__class__ = _CLASSES[kind]
        return module
