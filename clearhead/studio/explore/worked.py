"""What a number was made from: the values that its formula takes, for the page to write out where somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from clearhead.studio.explore.passes import Finished

FIRST = 3
"""Terms of a long sum that are written out."""


def terms(values: Tensor) -> dict[str, Any]:
    """The first terms of a sum over a vector, how many there are, and what they sum to."""
    flat = values.flatten().double()
    return {"first": flat[:FIRST].tolist(), "n": flat.numel(), "sum": float(flat.sum())}


def log_sum(logits_V: Tensor) -> float:
    """The logarithm of what a softmax divides by: p = exp(logit - log_sum)."""
    return float(logits_V.double().logsumexp(-1))


@torch.no_grad()
def read_out_of(found: Finished, position: int, tokens: Sequence[int]) -> list[dict[str, Any]]:
    """How the vocabulary head makes the logit of each token at a place: the first products x_i W_ti of the sum, how
    many there are, and what is done to the sum. Of a model of labels, nothing.

    `logit` is before a soft cap.
    """
    head: Any = found.model.head
    if head is None or found.stream_BTD.ndim != 3:
        return [{} for _ in tokens]
    x_1D = found.stream_BTD[0, [position]]
    if head.transform is not None:
        x_1D = head.transform(x_1D)
    weight_VD: Tensor = found.model.embed.tokens.weight if head.weight is None else head.weight  # type: ignore[union-attr]
    rows_ND = weight_VD[list(tokens)].double().cpu()
    x_D = x_1D[0].double().cpu()
    sums = (rows_ND @ x_D).tolist()
    biases = [0.0] * len(sums) if head.bias is None else head.bias[list(tokens)].double().tolist()
    scale = float(head.config.scale)
    return [
        {
            "pairs": [[float(x), float(w)] for x, w in zip(x_D[:FIRST], row_D[:FIRST], strict=True)],
            "of": len(x_D),
            "sum": total,
            "bias": None if head.bias is None else bias,
            "scale": scale,
            "cap": head.config.softcap,
            "transforms": head.transform is not None,
            "logit": total * scale + bias,
        }
        for row_D, total, bias in zip(rows_ND, sums, biases, strict=True)
    ]
