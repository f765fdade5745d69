"""Random weights to start training from."""

from __future__ import annotations

import math

import torch
from torch import nn

from clearhead.config import InitConfig
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block

WRITERS = ("o_proj", "down_proj", "out_proj")
"""How the names of matrices end that write to the stream."""


def initialise(model: nn.Module, how: InitConfig | None = None, only: frozenset[str] | None = None) -> None:
    """Normal weights, of the spread that `how` says, and zero biases.

    Norms keep the ones they are made with. On the meta device nothing is computed. `only`: these parameters,
    by name, which have no values yet. A module that starts with values of its own gives them as `first_values`.
    """
    how = how or InitConfig()
    blocks = [m.config for m in model.modules() if isinstance(m, Block)]
    n_writers = sum(part is not None for c in blocks for part in (c.mixer, c.cross, c.ffn))
    spreads = _spreads(model, how, n_writers)
    for name, parameter in model.named_parameters():
        if parameter.is_meta or (only is not None and name not in only):
            continue
        if only is not None and parameter.ndim < 2:
            nn.init.ones_(parameter)
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        if name.endswith("bias") or parameter.ndim < 2:
            continue
        with torch.no_grad():
            parameter.normal_(0.0, spreads[name])
    for path, module in model.named_modules():
        for name, value in getattr(module, "first_values", dict)().items():
            parameter = module.get_parameter(name)
            if not parameter.is_meta and (only is None or f"{path}.{name}" in only):
                with torch.no_grad():
                    parameter.copy_(value)


def _spreads(model: nn.Module, how: InitConfig, n_writers: int) -> dict[str, float]:
    """The standard deviation of every matrix and table."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    queries = {
        id(m.q_proj.weight): m.config.scores.scale * m.config.d_head**0.5
        for m in model.modules()
        if isinstance(m, Attention) and m.config.scores.scale is not None
    }
    spreads = {}
    for name, p in model.named_parameters():
        if p.ndim < 2:
            continue
        std = p.shape[-1] ** -0.5 if how.std is None else how.std
        if id(p) in tables and how.tables is not None:
            std = how.tables
        if how.std is None:
            # Where scores are not divided by the root of a head's width, queries are.
            std /= queries.get(id(p), 1.0)
        # Experts' matrices have no module of their own around them, so no ".weight".
        writes = name.removesuffix(".weight").endswith(WRITERS)
        spreads[name] = std / math.sqrt(n_writers) if writes and how.deep else std
    return spreads
