"""Random weights to start training from."""

from __future__ import annotations

import math

import torch
from torch import nn

from clearhead.nn.block import Block


def initialise(model: nn.Module, std: float = 0.02, only: frozenset[str] | None = None) -> None:
    """Normal weights of `std`, zero biases; the matrices that write to the stream are smaller with depth.

    1/sqrt(2 layers) keeps the stream's variance from growing with the number of additions (Radford 2019, section
    2.3). Norms keep the ones they are made with. On the meta device nothing is computed. `only`: these parameters,
    by name, which have no values yet. A module that starts with values of its own gives them as `first_values`.
    """
    blocks = [m.config for m in model.modules() if isinstance(m, Block)]
    n_writers = sum(part is not None for c in blocks for part in (c.mixer, c.cross, c.ffn))
    for name, parameter in model.named_parameters():
        if parameter.is_meta or (only is not None and name not in only):
            continue
        if only is not None and parameter.ndim < 2:
            nn.init.ones_(parameter)
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        if name.endswith("bias") or parameter.ndim < 2:
            continue
        # Experts' matrices have no module of their own around them, so no ".weight".
        writes = name.removesuffix(".weight").endswith(("o_proj", "down_proj", "out_proj"))
        with torch.no_grad():
            parameter.normal_(0.0, std / math.sqrt(n_writers) if writes else std)
    for path, module in model.named_modules():
        for name, value in getattr(module, "first_values", dict)().items():
            parameter = module.get_parameter(name)
            if not parameter.is_meta and (only is None or f"{path}.{name}" in only):
                with torch.no_grad():
                    parameter.copy_(value)
