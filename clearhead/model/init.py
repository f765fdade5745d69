"""Random weights to start training from."""

from __future__ import annotations

import math

import torch
from torch import nn

from clearhead.nn.attention import Attention
from clearhead.nn.feed_forward import FeedForward


def initialise(model: nn.Module, std: float = 0.02) -> None:
    """Normal weights of `std`, zero biases; the matrices that write to the stream are smaller with depth.

    1/sqrt(2 layers) keeps the stream's variance from growing with the number of additions (Radford 2019, section
    2.3). Norms keep the ones they are made with. On the meta device nothing is computed.
    """
    n_writers = sum(isinstance(m, Attention | FeedForward) for m in model.modules())
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or parameter.is_meta:
            if name.endswith("bias") and not parameter.is_meta:
                nn.init.zeros_(parameter)
            continue
        writes = name.endswith(("o_proj.weight", "down_proj.weight"))
        with torch.no_grad():
            parameter.normal_(0.0, std / math.sqrt(n_writers) if writes else std)
