"""A model small enough to count by hand: 2 layers, a stream of 8, 2 heads of 4 on 1 key-value head, 16 hidden units and
10 words. Each layer has matrices of 8 x 8 (queries), twice 8 x 4 (keys, values) and 8 x 8 (out), together 192 numbers,
three of 8 x 16 in its gated feed-forward, 384, and two norms of 8.
"""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)

NORM = NormConfig()
ATTENTION = AttentionConfig(n_heads=2, n_kv_heads=1, d_head=4)
FEED_FORWARD = FeedForwardConfig(d_ff=16)


def small(mixer: Any = ATTENTION, ffn: Any = FEED_FORWARD, context: int | None = 64) -> TransformerConfig:
    """The model, with another mixer or feed-forward where one is given, or none."""
    block = BlockConfig(
        mixer=SublayerConfig(op=mixer, pre=NORM), ffn=None if ffn is None else SublayerConfig(op=ffn, pre=NORM)
    )
    stack = StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=10)), blocks=(block,) * 2, norm=NORM)
    return TransformerConfig(d_model=8, decoder=stack, heads=HeadsConfig(tokens=TokenHeadConfig()), context=context)
