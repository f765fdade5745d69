"""A linear layer."""

from __future__ import annotations

from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from clearhead.nn.packing import is_open, linear, several


class Linear(nn.Linear):
    """x @ W^T + b, with W of (out, in); torch's own layer on the product that is fastest for few rows."""

    def forward(self, x: Float[Tensor, "*shape i"]) -> Float[Tensor, "*shape o"]:
        return linear(x, self.weight, self.bias)


def together(x: Float[Tensor, "*shape i"], *layers: nn.Module) -> tuple[Float[Tensor, "*shape _"], ...]:
    """What each of these layers makes of x. While a text is written it is one product for all, where nobody has changed
    a layer: put an adapter in its place, parted its weights between processes, hung a hook on it.
    """
    if is_open() and not torch.compiler.is_compiling() and not _has_any_global_hook():
        plain = [layer for layer in layers if _is_plain(layer)]
        if len(plain) == len(layers):
            return several(x, [layer.weight for layer in plain], [layer.bias for layer in plain])
    read = rounded_once(x)
    return tuple(layer(read) for layer in layers)


def _is_plain(layer: nn.Module) -> TypeGuard[Linear]:
    return type(layer) is Linear and not (layer._forward_hooks or layer._forward_pre_hooks)


def rounded_once(x: Tensor) -> Tensor:
    """What several products read: under autocast each would round it for itself, and keep that for its gradient."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
