"""The arithmetic of beam search: what a text is worth, how texts grow, and what one that goes on may still reach.

A text's worth is the sum of its tokens' log-probabilities over (number of new tokens) ** length_penalty. The prompt
does not count, in neither; the token that ends the text counts, in both. Log-probabilities are negative, so a
length_penalty above 0 favours long texts, and 0 none. This is what the `transformers` package computes.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

EarlyStopping = bool | Literal["never"]


def worth(total: float, n_new: int, length_penalty: float) -> float:
    """What a text of `n_new` new tokens is worth, whose log-probabilities sum to `total`."""
    worth_: float = total / n_new**length_penalty
    return worth_


def most_worth(total: float, n_new: int, n_most: int, length_penalty: float, early_stopping: EarlyStopping) -> float:
    """What a text that goes on is taken to be worth at best, whatever follows its `n_new` tokens, of at most `n_most`.

    "never" is a true bound, since log-probabilities only take away: nothing is added to the sum, and the length is the
    best one for it, which is `n_most` with a length_penalty above 0. False and True take the length as it is now: a
    guess that is too low where long texts are favoured, and ends the search sooner.
    """
    longest = early_stopping == "never" and length_penalty > 0
    return worth(total, n_most if longest else n_new, length_penalty)


def grow(
    total_N: Float[Tensor, " N"], score_NV: Float[Tensor, "N V"], n_best: int
) -> tuple[Float[Tensor, " K"], Int[Tensor, " K"], Int[Tensor, " K"]]:
    """The best ways to write one token behind one of N texts: their sums, the texts, and the tokens, best first.

    There may be fewer than `n_best`: a token at minus infinity can't be written.

    Args:
        total_N: the sum of log-probabilities of each text.
        score_NV: the log-probability of each token behind each text.
        n_best: how many to give.
    """
    size = score_NV.shape[1]
    sum_NV = total_N[:, None] + score_NV
    best_K, place_K = sum_NV.flatten().topk(min(n_best, sum_NV.numel()))
    possible_K = best_K > -torch.inf
    best_K, place_K = best_K[possible_K], place_K[possible_K]
    return best_K, place_K // size, place_K % size
