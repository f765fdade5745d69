"""What reads the finished stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import LabelHeadConfig, PoolConfig, TokenHeadConfig, TransformConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Inputs, Pass
from clearhead.nn.linear import Linear
from clearhead.nn.norm import Norm
from clearhead.nn.packing import linear
from clearhead.ops.activations import activation


class Transform(nn.Module):
    """norm(act(dense(x)))."""

    def __init__(self, d_in: int, config: TransformConfig) -> None:
        super().__init__()
        self.dense = Linear(d_in, config.width, bias=config.bias)
        self.act = activation(config.activation) if config.activation is not None else None
        self.norm = Norm(config.width, config.norm) if config.norm is not None else None

    def forward(self, x: Float[Tensor, "*shape i"]) -> Float[Tensor, "*shape o"]:
        x = self.dense(x)
        if self.act is not None:
            x = self.act(x)
        return x if self.norm is None else self.norm(x)


class TokenHead(nn.Module):
    """Scores for every token of the vocabulary. A tied head owns no matrix: it is handed the embedding's."""

    def __init__(self, d_model: int, vocab_size: int, config: TokenHeadConfig) -> None:
        super().__init__()
        self.config = config
        width = d_model if config.transform is None else config.transform.width
        self.transform = Transform(d_model, config.transform) if config.transform is not None else None
        self.weight = None if config.tie else nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.bias else None

    def forward(self, x_BTD: Float[Tensor, "B T d"], embedding_VD: Float[Tensor, "v e"]) -> Float[Tensor, "B T v"]:
        c = self.config
        if self.transform is not None:
            x_BTD = self.transform(x_BTD)
        weight_VD = embedding_VD if self.weight is None else self.weight
        if c.scale == 1.0 or self.bias is None:
            logits_BTV = linear(x_BTD, weight_VD, self.bias)
            logits_BTV = logits_BTV if c.scale == 1.0 else logits_BTV * c.scale
        else:
            # A bias is added to what is scaled, and not scaled itself.
            logits_BTV = linear(x_BTD, weight_VD, None) * c.scale + self.bias
        if c.softcap is not None:
            logits_BTV = torch.tanh(logits_BTV / c.softcap) * c.softcap
        return logits_BTV


class Pool(nn.Module):
    """One vector a row: the stream at a place, or its mean, and perhaps a transform of it."""

    def __init__(self, d_model: int, config: PoolConfig) -> None:
        super().__init__()
        self.config = config
        self.transform = Transform(d_model, config.transform) if config.transform is not None else None

    def forward(self, x_BTD: Float[Tensor, "B T d"], inputs: Inputs, p: Pass) -> Float[Tensor, "B o"]:
        x_BD = at_place(x_BTD, self.config.at, p, inputs, self.config.end_id)
        return x_BD if self.transform is None else self.transform(x_BD)


class LabelHead(nn.Module):
    """Scores over labels."""

    def __init__(self, d_model: int, config: LabelHeadConfig, d_pool: int) -> None:
        super().__init__()
        self.config = config
        d_in = d_pool if config.at == "pool" else d_model
        self.transform = Transform(d_in, config.transform) if config.transform is not None else None
        width = d_in if config.transform is None else config.transform.width
        self.weight = nn.Parameter(torch.empty(config.n_labels, width))
        self.bias = nn.Parameter(torch.zeros(config.n_labels)) if config.bias else None

    def forward(
        self, x_BTD: Float[Tensor, "B T d"], pooled_BD: Tensor | None, inputs: Inputs, p: Pass
    ) -> Float[Tensor, "... labels"]:
        """(B, T, labels) where every token is read, else (B, labels)."""
        c = self.config
        if c.at == "every":
            read = x_BTD
        elif c.at == "pool":
            assert pooled_BD is not None
            read = pooled_BD
        else:
            read = at_place(x_BTD, c.at, p, inputs)
        if self.transform is not None:
            read = self.transform(F.dropout(read, c.dropout, self.training))
        return linear(F.dropout(read, c.dropout, self.training), self.weight, self.bias)


def at_place(x_BTD: Tensor, at: str, p: Pass, inputs: Inputs, end_id: int | None = None) -> Tensor:
    """The stream at one place of each row, (B, D). Padding is never read: places are counted over what is there."""
    rows_BT = p.positions.rows(p.device).expand(x_BTD.shape[:2])
    there_BT = rows_BT >= 0
    if at == "mean":
        weight_BT1 = there_BT[..., None].to(x_BTD.dtype)
        return (x_BTD * weight_BT1).sum(dim=1) / weight_BT1.sum(dim=1).clamp(min=1)
    if at == "first":
        slot_B = there_BT.int().argmax(dim=1)
    elif at == "second":
        slot_B = (there_BT.int().cumsum(dim=1) >= 2).int().argmax(dim=1)
    elif at == "last":
        slot_B = rows_BT.argmax(dim=1)
    else:
        if inputs.tokens_BT is None:
            raise ClearheadError("the place of an end token is read from tokens, and there are none")
        ids_BT = inputs.tokens_BT.masked_fill(~there_BT, -1)
        is_end_BT = ids_BT == (ids_BT.amax(dim=1, keepdim=True) if end_id is None else end_id)
        if not bool(is_end_BT.any(dim=1).all()):
            raise ClearheadError(f"this model reads a text at its end token, {end_id}, and a row has none; add it")
        slot_B = is_end_BT.int().argmax(dim=1)
    return x_BTD[torch.arange(x_BTD.shape[0], device=x_BTD.device), slot_B]
