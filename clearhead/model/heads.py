"""What reads the finished stream."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import TokenHeadConfig
from clearhead.ops.matmul import linear


class TokenHead(nn.Module):
    """Scores for every token of the vocabulary. A tied head owns no matrix: it is handed the embedding's."""

    def __init__(self, d_model: int, vocab_size: int, config: TokenHeadConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = None if config.tie else nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.bias else None

    def forward(self, x_BTD: Float[Tensor, "B T d"], embedding_VD: Float[Tensor, "v d"]) -> Float[Tensor, "B T v"]:
        c = self.config
        logits_BTV = linear(x_BTD, embedding_VD if self.weight is None else self.weight, self.bias)
        if c.scale != 1.0:
            logits_BTV = logits_BTV * c.scale
        if c.softcap is not None:
            logits_BTV = torch.tanh(logits_BTV / c.softcap) * c.softcap
        return logits_BTV
