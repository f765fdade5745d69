"""Small models with lively random weights, built from configs alone."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    SinusoidalPositions,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.model.transformer import Transformer
from tests.tiny import lively

POSITIONS: dict[str, Any] = {
    "learned": (LearnedPositions(n=64), None),
    "sinusoidal": (SinusoidalPositions(n=64), None),
    "rotary": (None, RotaryConfig()),
    "rotary_partial_interleaved": (None, RotaryConfig(fraction=0.5, interleaved=True)),
    "alibi": (None, AlibiConfig()),
}


def small(
    positions: str = "rotary", *, windows: tuple[int | None, ...] = (None, None), kind: str = "causal"
) -> Transformer:
    """A model of one layer a window, d 32, 4 heads on 2 kv heads, vocabulary 50."""
    embed, rotary = POSITIONS[positions]
    norm = NormConfig()

    def block(window: int | None) -> BlockConfig:
        mixer = AttentionConfig(
            n_heads=4, n_kv_heads=2, d_head=8, mask=MaskConfig(kind=kind, window=window), positions=rotary
        )
        return BlockConfig(
            mixer=SublayerConfig(op=mixer, pre=norm), ffn=SublayerConfig(op=FeedForwardConfig(d_ff=48), pre=norm)
        )

    stack = StackConfig(
        embed=EmbedConfig(front=TokensConfig(vocab_size=50), positions=embed),
        blocks=tuple(block(window) for window in windows),
        norm=norm,
    )
    stacks = {"decoder": stack} if kind == "causal" else {"encoder": stack}
    model = Transformer(TransformerConfig(d_model=32, **stacks, heads=HeadsConfig(tokens=TokenHeadConfig())))
    return lively(model)
