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
    if not logits:
        raise ClearheadError("there are no router logits: only a model with experts has a balance to keep")
    n_experts = logits[0].shape[-1]
    wide = torch.promote_types(logits[0].dtype, torch.float32)
    used_E = probability_E = torch.zeros(n_experts, dtype=wide, device=logits[0].device)
    n_tokens: int | Tensor = 0
    for layer in logits:
        if present is not None and present.shape != layer.shape[:-1]:
            raise ClearheadError(
                f"present has shape {tuple(present.shape)} and the router saw tokens of shape "
                f"{tuple(layer.shape[:-1])}; give the mask of the tokens of this pass alone"
            )
        p_NE = torch.softmax(layer.to(wide), dim=-1).reshape(-1, n_experts)
        best_NC = p_NE.topk(n_chosen, dim=-1).indices
        counts_N = torch.ones_like(p_NE[:, 0]) if present is None else present.reshape(-1).to(wide)
        used_E = used_E.index_add(0, best_NC.flatten(), counts_N.repeat_interleave(n_chosen))
        probability_E = probability_E + (p_NE * counts_N[:, None]).sum(dim=0)
        n_tokens = n_tokens + counts_N.sum()
    n_tokens = torch.as_tensor(n_tokens).clamp(min=1)
    return n_experts * (used_E / n_tokens * probability_E / n_tokens).sum()
