"""Who moves which weights, and which of them are pulled towards zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.model.stack import RelativeTable
from clearhead.nn.block import Block
from clearhead.nn.experts import Router
from clearhead.training.config import OptimConfig


def optimiser(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """An optimiser of every parameter that takes a gradient; all its groups have one rate, `config.lr`.

    Matrices decay. Norms, biases and a scan's own numbers don't, nor do embeddings where the config doesn't say so.

    - `adamw` (Loshchilov and Hutter 2017), in torch's fused kernel.
    - `muon` (Jordan 2024) moves the matrices inside blocks, scaled to the size of AdamW's steps so that one rate serves
      both (Liu 2025, Moonlight, section 2.2), and AdamW the rest: embeddings, heads, routers, and experts, which are
      three-dimensional here and torch's Muon takes matrices alone.
    - `adafactor` (Shazeer and Stern 2018), whose rate is a share of the size of the weights it moves.

    Raises:
        ClearheadError: there is nothing to train, or torch has no such optimiser.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ClearheadError("no parameter of this model takes a gradient, so there is nothing to train")
    if config.name == "adamw":
        return _adamw(groups(model, trained, config), config)
    if config.name == "adafactor":
        return torch.optim.Adafactor(groups(model, trained, config), lr=config.lr)
    if not hasattr(torch.optim, "Muon"):
        raise ClearheadError(f"Muon came with torch 2.9, and this is {torch.__version__}; update it, or use adamw")
    inside = hidden_matrices(model)
    hidden = {name: p for name, p in trained.items() if name in inside}
    rest = {name: p for name, p in trained.items() if name not in hidden}
    if not hidden:
        raise ClearheadError("Muon moves the matrices inside blocks, and none of them takes a gradient; use adamw")
    from clearhead.training.muon import Muon

    muon = Muon(groups(model, hidden, config), lr=config.lr, momentum=config.momentum, adjust_lr_fn="match_rms_adamw")
    return Together(muon, _adamw(groups(model, rest, config), config)) if rest else muon


def groups(model: nn.Module, parameters: Mapping[str, nn.Parameter], config: OptimConfig) -> list[dict[str, Any]]:
    """Those that decay, and those that don't, each with its name."""
    tables = _own(model, nn.Embedding, RelativeTable)  # a tied head is an embedding
    parts: dict[bool, list[tuple[str, nn.Parameter]]] = {True: [], False: []}
    for name, p in parameters.items():
        decays = config.decay_embeddings if id(p) in tables else is_matrix(name, p)
        parts[decays].append((name, p))
    return [
        {"params": part, "weight_decay": config.weight_decay if decays else 0.0}
        for decays, part in parts.items()
        if part
    ]


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether it multiplies a vector: an expert's matrices too, and not its biases, which have two dimensions."""
    return parameter.ndim >= 2 and name.endswith((".weight", "_proj"))


def hidden_matrices(model: nn.Module) -> set[str]:
    """The names of the matrices that turn one vector of the stream's inside into another."""
    inside = {id(p) for m in model.modules() if isinstance(m, Block) for p in m.parameters()} - _own(model, Router)
    return {name for name, p in model.named_parameters() if p.ndim == 2 and is_matrix(name, p) and id(p) in inside}


def _own(model: nn.Module, *kinds: type[nn.Module]) -> set[int]:
    """The ids of the parameters that modules of these kinds have themselves."""
    return {id(p) for m in model.modules() if isinstance(m, kinds) for p in m.parameters(recurse=False)}


def _adamw(parts: list[dict[str, Any]], config: OptimConfig) -> torch.optim.Optimizer:
    kinds = {p.device.type for part in parts for _, p in part["params"]}
    fused = kinds <= {"cpu", "cuda", "xpu", "mps"}
    return torch.optim.AdamW(parts, lr=config.lr, betas=config.betas, eps=config.eps, fused=fused)


class Together(torch.optim.Optimizer):
    """Several optimisers as one: one list of groups, one state, one state dict."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._join()

    def step(self, closure: Any = None) -> Any:
        """One step of each."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What loading ends with: groups and state are new objects then.
        super().__setstate__(state)
        self._join()

    def _join(self) -> None:
        """Let the parts work on this one's groups and state, rather than on copies."""
        start = 0
        for part in self.parts:
            n_groups = len(part.param_groups)
            part.param_groups = self.param_groups[start : start + n_groups]
            part.state = self.state
            start += n_groups
