"""Many narrow heads against one wide one: the same weights, the same operations, more patterns."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field

from clearhead.claims.heads.cost_of_heads import N_HEADS, VOCABULARY, WIDTH
from clearhead.claims.ingredients.small_models import attention, block, decoder
from clearhead.config import TransformerConfig
from clearhead.costs import counts
from clearhead.costs.flops import Run, work
from clearhead.studio.operations import Answer, operation


@cache
def config_with(n_heads: int) -> TransformerConfig:
    """One layer of attention in a stream of 512, whose heads share its width between them."""
    layer = block(attention(n_heads, WIDTH // n_heads), None)
    return decoder((layer,), d_model=WIDTH, vocab_size=VOCABULARY)


@operation("heads.cost")
def cost(*, n: Annotated[int, Field(ge=1, le=8192)] = 512) -> Answer:
    """For 1 to 32 heads: parameters, operations of a pass over n tokens, and cells of the patterns."""
    rows = []
    for n_heads in N_HEADS:
        parts = list(work(attention(n_heads, WIDTH // n_heads), WIDTH, Run(batch=1, tokens=n)))
        rows.append(
            {
                "heads": n_heads,
                "d_head": WIDTH // n_heads,
                "parameters": counts(config_with(n_heads)).parameters.parts["attention"],
                "operations": sum(part.linear + part.quadratic for _, part in parts),
                "cells": n_heads * n * n,
            }
        )
    return Answer(
        data={"n": n, "width": WIDTH, "rows": rows},
        python=(
            "from clearhead.claims.heads.cost_of_heads import N_HEADS, VOCABULARY, WIDTH\n"
            "from clearhead.claims.ingredients.small_models import attention, block, decoder\n"
            "from clearhead.costs import counts\n"
            "from clearhead.costs.flops import Run, work\n\n"
            "for n_heads in N_HEADS:\n"
            "    heads = attention(n_heads, WIDTH // n_heads)\n"
            "    layer = decoder((block(heads, None),), d_model=WIDTH, vocab_size=VOCABULARY)\n"
            f"    parts = list(work(heads, WIDTH, Run(batch=1, tokens={n})))\n"
            '    print(counts(layer).parameters.parts["attention"])\n'
            "    print(sum(part.linear + part.quadratic for _, part in parts))\n"
        ),
        printed=tuple(float(row[key]) for row in rows for key in ("parameters", "operations")),
    )
