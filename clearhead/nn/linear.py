"""A linear layer."""

from __future__ import annotations

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
        plain = [own for own in map(_if_plain, layers) if own is not None]
        if len(plain) == len(layers):
            return several(x, [weight for weight, _ in plain], [bias for _, bias in plain])
    read = rounded_once(x)
    return tuple(layer(read) for layer in layers)


def _if_plain(layer: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight and the bias of a layer that nobody has changed. They are read where a module keeps them: asked for by
    name, each takes five times as long.
    """
    own_forward = "forward" in layer.__dict__
    if type(layer) is not Linear or own_forward or layer._forward_hooks or layer._forward_pre_hooks:
        return None
    own = layer._parameters
    weight = own.get("weight")
    return None if weight is None or "bias" not in own else (weight, own["bias"])


def rounded_once(x: Tensor) -> Tensor:
    """What several products read: under autocast each would round it for itself, and keep that for its gradient."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
