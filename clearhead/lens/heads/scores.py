"""What a pattern says of a head: numbers from attention weights and from where tokens stand, and nothing else."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from clearhead.config import MaskConfig
from clearhead.lens.heads.aims import PlaceAim, TokenAim
from clearhead.nn.attention import mask_from
from clearhead.ops.masks import BoundMask, Positions


def allowed(mask: MaskConfig, n: int) -> Bool[Tensor, "n n"]:
    """Which of n tokens each may see, by its layer's mask alone."""
    here = Positions(span=(0, n))
    return BoundMask(mask_from(mask), here, here, torch.device("cpu")).dense.expand(1, 1, n, n)[0, 0]


def at_tokens(pattern_BHTS: Float[Tensor, "B H T S"], aim: TokenAim, group_B: Tensor, n_groups: int) -> Tensor:
    """(groups, H): the weight at the aim's cells (less that at its rivals'), summed over the rows of each group."""
    cells_NH = pattern_BHTS[aim.row_N, :, aim.query_N, aim.key_N] * aim.weight_N[:, None]
    return cells_NH.new_zeros(n_groups, cells_NH.shape[1]).index_add(0, group_B[aim.row_N], cells_NH)


def at_places(
    pattern_BHTS: Float[Tensor, "B H T S"], aim: PlaceAim, allowed_TS: Bool[Tensor, "T S"]
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The weight at the aim's cells, and what it would be if each row's weights were shuffled among the tokens it may
    see: sums over queries, (H,) each, of the weight, of its mean and of its variance; and the number of queries.

    For k cells of a row of n weights with mean m and variance v they are k m and k v (n - k) / (n - 1), the moments of
    a draw without replacement, so nothing has to be drawn.
    """
    inside_N = allowed_TS[aim.query_N, aim.key_N]
    query_N, key_N = aim.query_N[inside_N], aim.key_N[inside_N]
    found_H = pattern_BHTS[:, :, query_N, key_N].double().sum((0, 2))
    query_Q, cells_Q = query_N.unique(return_counts=True)
    rows_BHQS = pattern_BHTS[:, :, query_Q].double()
    n_Q, cells_Q = allowed_TS[query_Q].sum(-1).double(), cells_Q.double()
    mean_BHQ = rows_BHQS.sum(-1) / n_Q
    variance_BHQ = (rows_BHQS.square().sum(-1) / n_Q - mean_BHQ.square()).clamp(min=0)
    spread_Q = cells_Q * (n_Q - cells_Q) / (n_Q - 1).clamp(min=1)
    n_queries = len(query_Q) * pattern_BHTS.shape[0]
    return found_H, (mean_BHQ * cells_Q).sum((0, 2)), (variance_BHQ * spread_Q).sum((0, 2)), n_queries


def most_shared(pattern_BHTS: Float[Tensor, "B H T S"]) -> Float[Tensor, "H"]:
    """How much attention the one token gets that gets most from all together: 1 where every token looks at the same
    one, wherever that is in each row of the batch.
    """
    return pattern_BHTS.mean(-2).amax(-1).mean(0)


def shuffled(pattern_BHTS: Float[Tensor, "B H T S"], generator: torch.Generator) -> Float[Tensor, "B H T S"]:
    """Each row's weights in an order of its own."""
    order_BHTS = torch.rand(pattern_BHTS.shape, generator=generator).argsort(-1)
    return pattern_BHTS.gather(-1, order_BHTS)


def entropy(pattern_BHTS: Float[Tensor, "B H T S"]) -> Float[Tensor, "H"]:
    """How widely a token looks: the entropy of a row in nats, in the mean. 0 is one token, log n is n tokens alike."""
    entropy_BHT: Tensor = torch.special.entr(pattern_BHTS).sum(-1)
    return entropy_BHT.mean((0, 2))


def mean_distance(pattern_BHTS: Float[Tensor, "B H T S"]) -> Float[Tensor, "H"]:
    """How far a token looks, in tokens and in the mean."""
    n_queries, n_keys = pattern_BHTS.shape[-2:]
    distance_TS = (torch.arange(n_queries)[:, None] - torch.arange(n_keys)).abs().to(pattern_BHTS)
    return (pattern_BHTS * distance_TS).sum(-1).mean((0, 2))
