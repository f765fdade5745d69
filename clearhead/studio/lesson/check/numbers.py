"""The numbers that the scenarios name."""

from __future__ import annotations

from functools import cache

from clearhead.claims.block.two_thirds import STANDARD, share_in_mlp
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network
from clearhead.config import AttentionConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.names import FEED_FORWARD
from clearhead.costs.source import read_config
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.operations import Answer, operation

FACTOR, WORDS = 0.95, 100
"""What a step of a recurrent reader multiplies its gradient by, and how many words lie between."""
CONTEXT = 8192
LARGE, STANDARD_BLOCK = "llama3-70b", STANDARD["GPT-2"]

PYTHON = """\
from clearhead.claims.block.two_thirds import STANDARD, share_in_mlp
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network
from clearhead.costs import counts
from clearhead.costs.source import read_config

# What is left of a gradient after many steps of one factor.
print(gradient_by_lag(network("simple", 0, n_units=1, silent=True, gain={factor}), {words}, 0)[{words}])

# The share of a standard block's parameters that is in its MLP.
print(share_in_mlp(*STANDARD["GPT-2"]))

# The cache of one conversation: a key and a value for every query head, and as Llama has it.
state = counts(read_config("llama3-70b").config).state(1, {context})
print(state.multi_head_total, state.total)
"""


@operation("check.numbers")
def numbers() -> Answer:
    """A gradient after many steps, the MLP's share of a block, and a cache with many key-value heads and with few."""
    left, mlp, many, few = _numbers()
    return Answer(
        data={
            "factor": FACTOR,
            "words": WORDS,
            "left": left,
            "mlp": mlp,
            "context": CONTEXT,
            "many": many,
            "few": few,
            "times": many / few,
            **_shapes(),
        },
        python=PYTHON.format(factor=FACTOR, words=WORDS, context=CONTEXT),
        printed=(left, mlp, many, few),
    )


@cache
def _numbers() -> tuple[float, float, float, float]:
    with DRAWING:
        unit = network("simple", 0, n_units=1, silent=True, gain=FACTOR)
    state = counts(read_config(LARGE).config).state(1, CONTEXT)
    return (
        gradient_by_lag(unit, WORDS, 0)[WORDS],
        share_in_mlp(*STANDARD_BLOCK),
        float(state.multi_head_total),
        float(state.total),
    )


@cache
def _shapes() -> dict[str, int]:
    """The sizes that the last two numbers are products of, and the parameters of the standard blocks."""
    large, small = read_config(LARGE).config, read_config(STANDARD_BLOCK[0]).config
    assert isinstance(large, TransformerConfig) and isinstance(small, TransformerConfig)
    heads = large.stack.blocks[0].mixer.op
    assert isinstance(heads, AttentionConfig)
    of_blocks = [weight for weight in counts(small).weights if (weight.block or "").startswith(STANDARD_BLOCK[1])]
    return {
        "layers": len(large.stack.blocks),
        "heads": heads.n_heads,
        "kv_heads": heads.n_kv_heads,
        "d_head": heads.d_head,
        "in_mlp": sum(weight.size for weight in of_blocks if weight.part == FEED_FORWARD),
        "in_blocks": sum(weight.size for weight in of_blocks),
    }
