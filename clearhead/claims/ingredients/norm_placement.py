"""Decoders that differ in one thing: whether the norm stands before a sub-layer or after the addition."""

from __future__ import annotations

from typing import Literal

from clearhead.claims.ingredients.small_models import attention, decoder
from clearhead.config import BlockConfig, FeedForwardConfig, MixerConfig, NormConfig, SublayerConfig, TransformerConfig

Placement = Literal["pre", "post"]
NORM = NormConfig(kind="layer", eps=1e-5, bias=True)


def decoder_with_norms(
    placement: Placement, n_layers: int, *, d_model: int, vocab_size: int, d_ff: int | None = None
) -> TransformerConfig:
    """LayerNorm before each sub-layer and once at the end (Pre-LN), or after each addition (Post-LN, as in 2017)."""
    feed_forward = FeedForwardConfig(d_ff=d_ff or 4 * d_model, activation="relu", gated=False, bias=True)

    def placed(op: MixerConfig | FeedForwardConfig) -> SublayerConfig:
        return SublayerConfig(op=op, pre=NORM) if placement == "pre" else SublayerConfig(op=op, after=NORM)

    block = BlockConfig(mixer=placed(attention(4, d_model // 4)), ffn=placed(feed_forward))
    last = NORM if placement == "pre" else None
    return decoder((block,) * n_layers, d_model=d_model, vocab_size=vocab_size, norm=last)
