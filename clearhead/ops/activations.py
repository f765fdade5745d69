"""Activation functions by the names the field uses."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from clearhead.errors import ClearheadError


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """0.5 x (1 + tanh(z)) with z = sqrt(2/pi) (x + 0.044715 x^3), an approximation of GELU (Hendrycks 2016, section 2).

    That is x sigmoid(2 z), and compiled code is a third faster with it: tanh is its slowest function.
    """
    if torch.compiler.is_compiling():
        return x * torch.sigmoid(x * (2 * math.sqrt(2 / math.pi)) * (1 + 0.044715 * x * x))
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x * sigmoid(1.702 x), an approximation of GELU (Hendrycks 2016, section 2)."""
    return x * torch.sigmoid(1.702 * x)


def relu_squared(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """max(x, 0) squared (So 2021, Primer)."""
    return F.relu(x).square()


def clamped_gate(
    gate: Float[Tensor, "*shape"], up: Float[Tensor, "*shape"], limit: float, alpha: float
) -> Float[Tensor, "*shape"]:
    """(up + 1) * gate * sigmoid(alpha * gate), gate at most `limit` and up within it on both sides (gpt-oss)."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "relu_squared": relu_squared,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function called `name`; refuses an unknown one, naming those there are."""
    if name not in ACTIVATIONS:
        raise ClearheadError(f"no activation is called {name!r}; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
