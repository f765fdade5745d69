"""For all tokens at once: two products of matrices with a softmax between, and what they cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clearhead.claims.ingredients.one_head import scale_of
from clearhead.claims.ingredients.small_models import attention
from clearhead.costs.flops import Run, work
from clearhead.studio.operations import Answer, operation


@operation("attention.shapes")
def shapes(
    *,
    n: Annotated[int, Field(ge=1, le=4096)] = 10,
    d: Annotated[int, Field(ge=1, le=256)] = 64,
    d_model: Annotated[int, Field(ge=1, le=8192)] = 512,
) -> Answer:
    """The shapes of every matrix of one head over n tokens, and the operations of its products."""

    parts = list(work(attention(1, d), d_model, Run(batch=1, tokens=n)))
    projections, products = (sum(getattr(part, kind) for _, part in parts) for kind in ("linear", "quadratic"))
    return Answer(
        data={
            "n": n,
            "d": d,
            "d_model": d_model,
            "cells": n * n,
            "products": products,
            "projections": projections,
            "divisor": 1 / scale_of(d),
        },
        python=(
            "from clearhead.claims.ingredients.small_models import attention\n"
            "from clearhead.costs.flops import Run, work\n\n"
            f"parts = list(work(attention(n_heads=1, d_head={d}), {d_model}, Run(batch=1, tokens={n})))\n"
            "print(sum(part.quadratic for _, part in parts))  # Q K^T and the mix\n"
            "print(sum(part.linear for _, part in parts))  # W_Q, W_K, W_V and W_O\n"
        ),
        printed=(float(products), float(projections)),
    )
