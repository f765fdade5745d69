"""How the vocabulary head reads a token's logit off the stream, as one direction a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.frozen import FrozenNorm

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Reading:
    """logit = stream . direction + the sum of the constants, before the soft-cap. All in float64."""

    direction_BD: Tensor
    """For the stream as it comes out of the last block, before the final norm."""
    constants: dict[str, Tensor]
    """What biases add, (B,) each, by name."""


def read_direction(model: Transformer, last_BD: Tensor, target_B: Tensor, against_B: Tensor | None = None) -> Reading:
    """The direction of one token's logit in each row, or of the difference of two.

    last_BD: the stream after the last block, where the logit is read. The final norm's scale is frozen as it is for
    it. A head with a transform (BERT's) is frozen too: its activation as the gate it is for this stream, act(x) / x,
    and its norm's scale.
    """
    assert model.head is not None
    head, constants = model.head, {}
    weight_VD = model.unembedding.detach()
    u_BD = weight_VD[target_B].double()
    if against_B is not None:
        u_BD = u_BD - weight_VD[against_B].double()
    u_BD = u_BD * head.config.scale
    if head.bias is not None:
        bias_V = head.bias.detach().double()
        constants["head bias"] = bias_V[target_B] - (0.0 if against_B is None else bias_V[against_B])
    norm = None if model.norm is None else FrozenNorm(model.norm, last_BD)
    if head.transform is not None:
        with torch.no_grad():
            final_BD = last_BD if model.norm is None else model.norm(last_BD)
        u_BD = _through_transform(model, final_BD, u_BD, constants)
    if norm is not None:
        if norm.bias_D is not None:
            constants["final norm bias"] = norm.constant(u_BD)
        u_BD = norm.pull(u_BD)
    return Reading(u_BD, constants)


def _through_transform(model: Transformer, final_BD: Tensor, u_BW: Tensor, constants: dict[str, Tensor]) -> Tensor:
    """The direction before norm(act(dense(x))), from that after it."""
    assert model.head is not None and model.head.transform is not None
    transform = model.head.transform
    weight_WD = transform.dense.weight.detach().double()
    y_BW = final_BD.double() @ weight_WD.T
    if transform.dense.bias is not None:
        y_BW = y_BW + transform.dense.bias.detach().double()
    acted_BW = y_BW if transform.act is None else transform.act(y_BW)
    if transform.act is not None and bool(transform.act(torch.zeros(1)).abs() > 0):
        raise ClearheadError("the head's activation is not zero at zero, so it is no gate that could be frozen")
    if transform.norm is not None:
        norm = FrozenNorm(transform.norm, acted_BW)
        if norm.bias_D is not None:
            constants["head norm bias"] = norm.constant(u_BW)
        u_BW = norm.pull(u_BW)
    u_BW = u_BW * torch.where(y_BW == 0, 0.0, acted_BW / y_BW)
    if transform.dense.bias is not None:
        constants["head transform bias"] = u_BW @ transform.dense.bias.detach().double()
    return u_BW @ weight_WD
