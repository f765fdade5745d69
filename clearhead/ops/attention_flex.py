"""Adapter to FlexAttention (Dong 2024): a mask becomes a block mask, a bias and a soft-cap become its score_mod.

The predicates and biases are the same objects that every other backend asks: FlexAttention calls them with scalars,
and the compiler writes a kernel from them. Compiling takes seconds, once per kind of mask and shape.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask


def attention_flex(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGSK: Float[Tensor, "B G S K"],
    v_BGSV: Float[Tensor, "B G S V"],
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Float[Tensor, "H"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Attention by a kernel compiled for this mask and bias: the backend "flex"."""
    raise AssertionError("being built")
