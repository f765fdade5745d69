"""One head of the library's attention by itself: queries against keys, with every step kept."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.claims.ingredients.small_models import attention
from clearhead.lens.edit import Function
from clearhead.nn.attention import Attention
from clearhead.ops.attention import Trace, traced
from clearhead.ops.masks import Everything, Mask, bind

EVERYTHING = Everything()


def scale_of(d_head: int) -> float:
    """What the library's attention multiplies the scores of a head by that is `d_head` wide, unless told otherwise."""
    with torch.device("meta"):
        return Attention(d_head, attention(1, d_head)).scale


def one_head(
    q_BTK: Float[Tensor, "B T K"],
    k_BSK: Float[Tensor, "B S K"],
    v_BSV: Float[Tensor, "B S V"] | None = None,
    *,
    scale: float,
    mask: Mask = EVERYTHING,
) -> Trace:
    """Score, mask, normalise and mix, B times; where no values are given, keys are their own."""
    bound = bind(mask, q_BTK.shape[1], k_BSK.shape[1])
    values_BSV = k_BSK if v_BSV is None else v_BSV
    return traced(q_BTK[:, None], k_BSK[:, None], values_BSV[:, None], bound, scale=scale)


def pattern(q_BTK: Float[Tensor, "B T K"], k_BSK: Float[Tensor, "B S K"], *, scale: float) -> Float[Tensor, "B T S"]:
    """The weights alone."""
    return one_head(q_BTK, k_BSK, scale=scale).pattern_BHTS[:, 0]


def longer(times: float) -> Function:
    """An edit that makes vectors so many times as long."""
    return lambda value: value * times


def entropy(pattern_S: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """Of each row, in nats: 0 where one key gets all, log n where n keys get the same."""
    entropy_B: Tensor = torch.special.entr(pattern_S).sum(-1)
    return entropy_B
