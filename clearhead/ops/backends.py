"""The ways to work out attention, what each can do, and the choice among them.

Every backend is one function of the same arguments. A backend named by the caller serves the request or is refused
with the reason; "auto" picks one and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.ops.attention import attention
from clearhead.ops.attention_documents import apart
from clearhead.ops.attention_flex import attention_flex
from clearhead.ops.attention_prefill import attention_prefill, served
from clearhead.ops.attention_products import QUICK, attention_products, product_dtype
from clearhead.ops.attention_sdpa import FEW_QUERIES, attention_sdpa
from clearhead.ops.attention_tiled import attention_tiled
from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask

SMALL = 2**16
"""Up to so many cells a head (256 x 256) tiling has nothing to gain."""
LARGE = 2**22
"""From so many cells a head (2,048 x 2,048) a dense mask is not made unasked: it grows with the square."""

SOFTCAP = "soft-capped scores"
SINKS = "sinks"
BIAS = "a bias"
TRAINED_BIAS = "a bias that is trained"
DROPOUT = "dropout"
GRADIENTS = "gradients"
ALL_NEEDS = frozenset({SOFTCAP, SINKS, BIAS, TRAINED_BIAS, DROPOUT, GRADIENTS})

ALL_DTYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


@runtime_checkable
class Attention(Protocol):
    """What a backend is: queries, keys, values and a mask in, the mix of the values out, (B, H, T, V)."""

    def __call__(
        self,
        q_BHTK: Tensor,
        k_BGSK: Tensor,
        v_BGSV: Tensor,
        mask: BoundMask,
        *,
        scale: float,
        bias: Bias | None = None,
        softcap: float | None = None,
        sinks_H: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do on one kind of device; any mask and grouped queries are served by all."""

    serves: frozenset[str] = ALL_NEEDS
    dtypes: frozenset[torch.dtype] = ALL_DTYPES

    def lacks(self, request: Request) -> str | None:
        """What of the request it cannot do, in words; None when it can do all."""
        missing = sorted(request.needs - self.serves)
        if request.dtype not in self.dtypes:
            missing.append(str(request.dtype).removeprefix("torch."))
        return " or ".join(missing) if missing else None


@dataclass(frozen=True)
class Request:
    """What is asked of attention, as far as it matters to the choice."""

    device: str
    dtype: torch.dtype
    needs: frozenset[str] = frozenset()
    cells: int = 0
    """0 up to SMALL, 1 between, 2 from LARGE on."""
    dense_mask: bool = False
    """Whether the mask is one that the fused kernel needs written out."""
    in_blocks: bool = False
    """Whether there are so many queries, and such a mask, that a block of them at a time is faster."""


@dataclass(frozen=True)
class Backend:
    """A backend and its capabilities, by kind of device: "" stands for every other kind."""

    function: Attention
    capabilities: dict[str, Capabilities]

    def on(self, device: str) -> Capabilities:
        return self.capabilities.get(device, self.capabilities[""])


@dataclass(frozen=True)
class Choice:
    """The backend that was chosen, and why."""

    name: str
    function: Attention
    reason: str


BACKENDS: dict[str, Backend] = {
    "reference": Backend(attention, {"": Capabilities()}),
    "tiled": Backend(attention_tiled, {"": Capabilities()}),
    "sdpa": Backend(attention_sdpa, {"": Capabilities(serves=frozenset({SINKS, BIAS, GRADIENTS}))}),
    "products": Backend(
        attention_products,
        {
            "": Capabilities(serves=frozenset(), dtypes=frozenset()),
            "cpu": Capabilities(serves=frozenset({GRADIENTS}), dtypes=frozenset({torch.bfloat16})),
        },
    ),
    "prefill": Backend(
        attention_prefill,
        {
            "": Capabilities(serves=frozenset(), dtypes=frozenset()),
            "cpu": Capabilities(serves=frozenset(), dtypes=frozenset({torch.float32, torch.bfloat16})),
        },
    ),
    "flex": Backend(
        attention_flex,
        {
            "": Capabilities(serves=frozenset({SOFTCAP, BIAS, TRAINED_BIAS, GRADIENTS}), dtypes=ALL_DTYPES),
            "cpu": Capabilities(serves=frozenset({SOFTCAP, BIAS}), dtypes=ALL_DTYPES - {torch.float64}),
        },
    ),
}

NAMES = ("auto", *BACKENDS)


def request(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSV: Tensor,
    mask: BoundMask,
    *,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
    dropout: float = 0.0,
) -> Request:
    """What a call with these arguments asks for."""
    needs = set()
    if bias is not None:
        needs.add(BIAS)
        if bias.is_trainable:
            needs.add(TRAINED_BIAS)
    if softcap is not None:
        needs.add(SOFTCAP)
    if sinks_H is not None:
        needs.add(SINKS)
    if dropout > 0:
        needs.add(DROPOUT)
    if torch.is_grad_enabled() and (
        q_BHTK.requires_grad
        or k_BGSK.requires_grad
        or v_BGSV.requires_grad
        or (sinks_H is not None and sinks_H.requires_grad)
        or TRAINED_BIAS in needs
    ):
        needs.add(GRADIENTS)
    in_blocks = not needs and served(q_BHTK, k_BGSK, v_BGSV, mask)
    cells = q_BHTK.shape[2] * k_BGSK.shape[2]
    size = 0 if cells <= SMALL else 1 if cells < LARGE else 2
    dense = bias is not None or not (mask.sees_all or mask.is_plain_causal)
    if dense and size == 2 and bias is None and sinks_H is None and not in_blocks:
        dense = apart(mask, q_BHTK) is None
    return Request(q_BHTK.device.type, product_dtype(q_BHTK), frozenset(needs), size, dense, in_blocks)


@lru_cache(maxsize=1024)
def choose(name: str, request: Request) -> Choice:
    """The backend for a request: the named one, or for "auto" the quickest that can do it without a large matrix.

    Raises ClearheadError when there is no such backend, or it cannot do what is asked.
    """
    if name == "auto":
        return _choose(request)
    if name not in BACKENDS:
        raise ClearheadError(f"there is no attention backend {name!r}; choose one of {', '.join(NAMES)}")
    lacks = BACKENDS[name].on(request.device).lacks(request)
    if lacks is not None:
        able = [other for other in BACKENDS if BACKENDS[other].on(request.device).lacks(request) is None]
        raise ClearheadError(
            f"the attention backend {name!r} can't do {lacks} on {request.device}; choose auto or {' or '.join(able)}"
        )
    return Choice(name, BACKENDS[name].function, "it was named")


def _choose(request: Request) -> Choice:
    if request.in_blocks:
        return Choice("prefill", attention_prefill, "blocks of many queries are faster where no gradient is wanted")
    lacks = BACKENDS["sdpa"].on(request.device).lacks(request)
    if lacks is None and not (request.dense_mask and request.cells == 2):
        trains = GRADIENTS in request.needs and BACKENDS["products"].on(request.device).lacks(request) is None
        if trains and QUICK:
            return Choice("products", attention_products, "in training, whole products are faster in bfloat16")
        return Choice("sdpa", attention_sdpa, "torch's fused kernel can do all that is asked")
    why = f"the fused kernel can't do {lacks}" if lacks else "the fused kernel would need its mask written out in full"
    if request.cells == 0:
        return Choice("reference", attention, f"{why}, and there are too few cells to gain by tiles")
    return Choice("tiled", attention_tiled, f"{why}, and tiles need no memory that grows with the square")


def attend(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGSK: Float[Tensor, "B G S K"],
    v_BGSV: Float[Tensor, "B G S V"],
    mask: BoundMask,
    *,
    backend: str = "auto",
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Float[Tensor, "H"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Choose a backend and call it."""
    is_plain = softcap is None and sinks_H is None and bias is None and dropout == 0
    if backend == "auto" and is_plain and q_BHTK.shape[2] <= FEW_QUERIES and mask.sees_all:
        return attention_sdpa(q_BHTK, k_BGSK, v_BGSV, mask, scale=scale)  # a token a time comes by here: no ceremony
    asked = request(q_BHTK, k_BGSK, v_BGSV, mask, bias=bias, softcap=softcap, sinks_H=sinks_H, dropout=dropout)
    function = choose(backend, asked).function
    return function(
        q_BHTK, k_BGSK, v_BGSV, mask, scale=scale, bias=bias, softcap=softcap, sinks_H=sinks_H, dropout=dropout
    )
