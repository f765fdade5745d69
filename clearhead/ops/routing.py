"""Which experts a token goes to, with which weights, and how evenly they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.errors import ClearheadError

Score = Literal["softmax", "topk_softmax", "sigmoid"]


def scores(logits: Float[Tensor, "*n e"], score: Score) -> Float[Tensor, "*n e"]:
    """What experts are compared by: probabilities over all of them, the logits themselves, or one sigmoid each."""
    if score == "softmax":
        return torch.softmax(logits, dim=-1)
    return logits if score == "topk_softmax" else torch.sigmoid(logits)


def choose(
    logits: Float[Tensor, "*n e"],
    n_chosen: int,
    score: Score = "softmax",
    *,
    correction_E: Float[Tensor, "e"] | None = None,
    n_groups: int = 1,
    n_chosen_groups: int = 1,
) -> Int[Tensor, "*n c"]:
    """The experts of each token, by score plus correction (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).

    With groups, only the experts of the best `n_chosen_groups` of `n_groups` groups can be chosen; a group counts as
    much as its best two experts together.
    """
    by = scores(logits, score)
    if correction_E is not None:
        by = by + correction_E
    if n_chosen_groups < n_groups:
        grouped = by.unflatten(-1, (n_groups, -1))
        worth = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(dim=-1)
        best = worth.topk(n_chosen_groups, dim=-1).indices
        open_ = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, best, True)
        by = grouped.masked_fill(~open_[..., None], float("-inf")).flatten(-2)
    return by.topk(n_chosen, dim=-1).indices


def weigh(
    logits: Float[Tensor, "*n e"],
    chosen: Int[Tensor, "*n c"],
    score: Score = "softmax",
    *,
    renormalise: bool = False,
    scale: float = 1.0,
) -> Float[Tensor, "*n c"]:
    """What each chosen expert counts. A correction has no say here: it chooses and never weighs."""
    weights = scores(logits, score).gather(-1, chosen)
    if score == "topk_softmax":
        weights = torch.softmax(weights, dim=-1)
    elif renormalise:
        # Sigmoids can all be 0; the sum of the best probabilities is too large to be moved by this.
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return weights if scale == 1.0 else weights * scale


def balance_loss(
    logits: Sequence[Float[Tensor, "*n e"]], n_chosen: int, present: Bool[Tensor, "*m"] | None = None
) -> Float[Tensor, ""]:
    """E sum_e f_e P_e, with f_e the share of tokens that expert e is among the best `n_chosen` of, and P_e its mean
    probability (Fedus 2021, Switch Transformers, eqs. 4 to 6, for more than one expert a token).

    The shares sum to `n_chosen`, which is also the value when all experts are used alike; the tokens of all layers
    are pooled. Probabilities are the softmax of the logits, however the layers themselves score.

    Args:
        logits: the router logits of each layer of experts.
        n_chosen: how many experts a token goes to.
        present: True where there is a token, of the shape of the tokens; padding does not count.
    """
    for layer in logits:
        if present is not None and present.shape != layer.shape[:-1]:
            raise ClearheadError(
                f"present has shape {tuple(present.shape)} and the router saw tokens of shape "
                f"{tuple(layer.shape[:-1])}; give the mask of the tokens of this pass alone"
            )
    in_one_row = [layer.reshape(1, -1, layer.shape[-1]) for layer in logits]
    return balance_by_row(in_one_row, n_chosen, None if present is None else present.reshape(1, -1))[0]


def balance_by_row(
    logits: Sequence[Float[Tensor, "B T e"]], n_chosen: int, present_BT: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B"]:
    """`balance_loss` of each row by itself (DeepSeek-AI 2024, DeepSeek-V3, eqs. 17 to 20, on softmax probabilities)."""
    if not logits:
        raise ClearheadError("there are no router logits: only a model with experts has a balance to keep")
    n_rows, _, n_experts = logits[0].shape
    wide = torch.promote_types(logits[0].dtype, torch.float32)
    used_BE = probability_BE = torch.zeros(n_rows, n_experts, dtype=wide, device=logits[0].device)
    n_tokens_B = used_BE[:, 0]
    for layer in logits:
        p_BTE = torch.softmax(layer.to(wide), dim=-1)
        counts_BT = torch.ones_like(p_BTE[..., 0]) if present_BT is None else present_BT.to(wide)
        best_BTC = p_BTE.topk(n_chosen, dim=-1).indices
        used_BE = used_BE.scatter_add(1, best_BTC.flatten(1), counts_BT.repeat_interleave(n_chosen, dim=1))
        probability_BE = probability_BE + (p_BTE * counts_BT[..., None]).sum(dim=1)
        n_tokens_B = n_tokens_B + counts_BT.sum(dim=1)
    n_tokens_B1 = n_tokens_B.clamp(min=1)[:, None]
    return n_experts * (used_BE / n_tokens_B1 * probability_BE / n_tokens_B1).sum(dim=1)
