"""Why scores are divided: the variance of q.k grows with the width of a head, and the softmax hardens with it."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.claims.ingredients.one_head import one_head, scale_of
from clearhead.claims.scaled.softmax_gradient import KEYS, QUERIES, jacobian
from clearhead.studio.operations import Answer, operation

WIDEST = 512
PAIRS = 4000
GROUPS = 25
"""Of queries with keys of their own: 400 queries."""
BINS, REACH = 90, 45.0
WIDTHS = tuple(2**power for power in range(10))


@cache
def drawn() -> tuple[Tensor, Tensor]:
    """Queries and keys of independent normal numbers, (4000, 1, 512) each; a narrower head takes the first of them."""
    q_BTK, k_BSK = torch.randn(2, PAIRS, 1, WIDEST, generator=torch.Generator().manual_seed(0))
    return q_BTK, k_BSK


@lru_cache(maxsize=64)
def scores_of(d: int) -> tuple[Tensor, Tensor]:
    """The scores of all pairs at one width: q.k, and as the library scales them."""
    q_BTK, k_BSK = (x[..., :d] for x in drawn())
    raw_N, scaled_N = (one_head(q_BTK, k_BSK, scale=scale).scores_BHTS.flatten() for scale in (1.0, scale_of(d)))
    return raw_N, scaled_N


@operation("attention.width")
def width(*, d: Annotated[int, Field(ge=1, le=WIDEST)] = 128) -> Answer:
    """The histogram of scores at one width, and what a softmax over sixteen of them looks like."""
    raw_N, scaled_N = scores_of(d)
    q_BTK, k_BSK = (x_BTK[:, 0, :d] for x_BTK in drawn())
    traces = [one_head(q_BTK[None, :1], k_BSK[None, :KEYS], scale=scale) for scale in (1.0, scale_of(d))]
    rows, scores = [one.pattern_BHTS[0, 0, 0] for one in traces], [one.scores_BHTS[0, 0, 0] for one in traces]
    variances = float(raw_N.var()), float(scaled_N.var())
    edges = torch.linspace(-REACH, REACH, BINS + 1)
    return Answer(
        data={
            "d": d,
            "pairs": PAIRS,
            "divisor": 1 / scale_of(d),
            "variance": variances[0],
            "scaled_variance": variances[1],
            "spread": math.sqrt(variances[0]),
            "scaled_spread": math.sqrt(variances[1]),
            "outside": int((raw_N.abs() > REACH).sum()),
            "largest": float(rows[0].max()),
            "scaled_largest": float(rows[1].max()),
            "reach": REACH,
        },
        arrays={
            "edges": edges,
            "raw": torch.histc(raw_N, BINS, -REACH, REACH),
            "scaled": torch.histc(scaled_N, BINS, -REACH, REACH),
            "row": rows[0],
            "scaled_row": rows[1],
            "row_scores": scores[0],
            "scaled_row_scores": scores[1],
        },
        python=(
            "import torch\n"
            "from clearhead.claims.ingredients.one_head import one_head, scale_of\n\n"
            f"pairs = torch.randn(2, {PAIRS}, 1, {WIDEST}, generator=torch.Generator().manual_seed(0))\n"
            f"q, k = pairs[..., :{d}]\n"
            f"for scale in (1.0, scale_of({d})):\n"
            "    print(one_head(q, k, scale=scale).scores_BHTS.var().item())\n"
        ),
        printed=variances,
    )


@cache
def curves() -> dict[str, list[float]]:
    """By width: the median of the largest of sixteen weights, and of the norm of the softmax's derivative."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {"norm": [], "scaled_norm": [], "largest": [], "scaled_largest": []}
    for d in WIDTHS:
        q_BTK = torch.randn(GROUPS, QUERIES, d, generator=generator).requires_grad_()
        k_BSK = torch.randn(GROUPS, KEYS, d, generator=generator)
        for before, scale in (("", 1.0), ("scaled_", scale_of(d))):
            norm_BT, weight_BT = jacobian(q_BTK, k_BSK, scale)
            found[f"{before}norm"].append(float(norm_BT.median()))
            found[f"{before}largest"].append(float(weight_BT.median()))
    return found


@operation("attention.gradient")
def gradient() -> Answer:
    """What the width of a head does to the softmax and to its gradient, with the divisor and without."""
    found = curves()
    return Answer(
        data={"widths": WIDTHS, "queries": GROUPS * QUERIES, "keys": KEYS, **found},
        python=(
            "import torch\n"
            "from clearhead.claims.ingredients.one_head import scale_of\n"
            "from clearhead.claims.scaled.softmax_gradient import jacobian\n\n"
            "generator = torch.Generator().manual_seed(0)\n"
            f"for d in {WIDTHS}:\n"
            f"    q = torch.randn({GROUPS}, {QUERIES}, d, generator=generator).requires_grad_()\n"
            f"    k = torch.randn({GROUPS}, {KEYS}, d, generator=generator)\n"
            "    for scale in (1.0, scale_of(d)):\n"
            "        norm, largest_weight = jacobian(q, k, scale)\n"
            "        print(norm.median().item())\n"
        ),
        printed=tuple(number for pair in zip(found["norm"], found["scaled_norm"], strict=True) for number in pair),
    )
