"""Their routers beside ours: what each layer of experts computed and chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.balance import router_sites
from clearhead.taps import Editor
from tests.families.pairs import Inputs, Pair


@dataclass(frozen=True)
class Routed:
    """Of one layer: (tokens, experts) and twice (tokens, chosen)."""

    logits: Tensor
    weights: Tensor
    chosen: Tensor


def their_routers(pair: Pair, x: Inputs, theirs: nn.Module | None = None, **how: Any) -> list[Routed]:
    """What the routers of their model give, layer by layer; none for a model without experts."""
    seen: list[Routed] = []
    model = pair.theirs if theirs is None else theirs
    routers = [m for m in model.modules() if type(m).__name__.lower().endswith("topkrouter")]
    hooks = [m.register_forward_hook(lambda _m, _x, out: seen.append(Routed(*out))) for m in routers]
    pair.ask_them(x, model, **how)
    for hook in hooks:
        hook.remove()
    return seen


def choosing_as_they_do(pair: Pair, x: Inputs, theirs: nn.Module, ours: nn.Module) -> Editor | None:
    """Taps that give our tokens the experts that theirs go to; None for a model without experts.

    In half precision a choice between two that are nearly alike is a matter of rounding, and what follows from it is
    not small. With one choice for both, what differs is rounding alone.
    """
    sites = [site.replace("router_logits", "chosen") for site in router_sites(ours)]
    routed = their_routers(pair, x, theirs)
    if not sites:
        return None

    def these(chosen: Tensor) -> Any:
        return lambda ours_BTC: chosen.view_as(ours_BTC)

    return Editor({site: these(layer.chosen) for site, layer in zip(sites, routed, strict=True)})


def by_expert(chosen: Tensor, weights: Tensor, n_experts: int) -> Tensor:
    """Weights as (tokens, experts), 0 for those not chosen: free of the order of choice."""
    return torch.zeros(len(chosen), n_experts).scatter(1, chosen, weights.float())
