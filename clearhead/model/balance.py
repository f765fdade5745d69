"""How evenly the experts of a model are used: what training adds to its loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.nn.experts import Experts
from clearhead.ops.routing import balance_by_row, balance_loss
from clearhead.taps import address


def router_sites(model: nn.Module) -> list[str]:
    """Where the router logits are found, in the order of the pass: what a Recorder has to keep, with its graph."""
    return [address(m.path, "router_logits") for m in model.modules() if isinstance(m, Experts)]


def balance_term(
    model: nn.Module, seen: Mapping[str, Tensor], present_BT: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, ""]:
    """The weighted balance loss of a pass, from the router logits it recorded; 0 for a model without experts.

    Layers that route alike are pooled, as published. Use:

        recorder = Recorder(router_sites(model), keep_graph=True)
        loss = cross_entropy(model(tokens, taps=recorder), ...) + balance_term(model, recorder.values)
    """
    terms = [kind.weight * balance_loss(logits, kind.n_chosen, present_BT) for kind, logits in _kinds(model, seen)]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def balance_of_rows(
    model: nn.Module,
    seen: Mapping[str, Tensor],
    present_BT: Bool[Tensor, "B T"] | None = None,
    source_present_BS: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B"] | None:
    """As `balance_term`, of each row by itself: what it says of a row does not depend on the rows beside it. None for
    a model whose experts have no balance to keep.
    """
    terms = [
        kind.weight * balance_by_row(logits, kind.n_chosen, source_present_BS if kind.reads_source else present_BT)
        for kind, logits in _kinds(model, seen)
    ]
    return torch.stack(terms).sum(dim=0) if terms else None


class _Kind(NamedTuple):
    """Layers that route alike."""

    n_experts: int
    n_chosen: int
    weight: float
    reads_source: bool


def _kinds(model: nn.Module, seen: Mapping[str, Tensor]) -> list[tuple[_Kind, list[Tensor]]]:
    """The router logits of the layers that have a balance to keep."""
    kinds: dict[_Kind, list[Tensor]] = {}
    for m in model.modules():
        if isinstance(m, Experts) and m.config.router.balance:
            c = m.config
            kind = _Kind(c.n_experts, c.n_chosen, c.router.balance, m.path.startswith("encoder."))
            kinds.setdefault(kind, []).append(seen[address(m.path, "router_logits")])
    return list(kinds.items())


def active_parameters(model: nn.Module) -> int:
    """How many parameters work on one token: all, but of each layer's experts only those it chooses."""
    idle = 0
    for m in model.modules():
        if isinstance(m, Experts):
            w = m.weights()
            tensors = (w.gate, w.gate_bias, w.up, w.up_bias, w.down, w.down_bias)
            all_experts = sum(t.numel() for t in tensors if t is not None)
            idle += all_experts // m.config.n_experts * (m.config.n_experts - m.config.n_chosen)
    return sum(p.numel() for p in model.parameters()) - idle
