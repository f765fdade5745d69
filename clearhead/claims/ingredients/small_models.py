"""Configs of the small models that several claims train."""

from __future__ import annotations

import torch

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer

NORM = NormConfig(eps=1e-5)


def attention(n_heads: int, d_head: int, *, n_kv_heads: int | None = None, causal: bool = True) -> AttentionConfig:
    """Attention with rotary positions."""
    return AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads or n_heads,
        d_head=d_head,
        mask=MaskConfig(kind="causal" if causal else "full"),
        positions=RotaryConfig(),
    )


def block(mixer: AttentionConfig, d_ff: int | None) -> BlockConfig:
    """A pre-norm block; without a feed-forward where `d_ff` is None."""
    ffn = None if d_ff is None else SublayerConfig(op=FeedForwardConfig(d_ff=d_ff), pre=NORM)
    return BlockConfig(mixer=SublayerConfig(op=mixer, pre=NORM), ffn=ffn)


def decoder(
    blocks: tuple[BlockConfig, ...], *, d_model: int, vocab_size: int, norm: NormConfig | None = NORM, tie: bool = False
) -> TransformerConfig:
    """Token vectors, blocks, a norm and scores."""
    return TransformerConfig(
        d_model=d_model,
        decoder=StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=vocab_size)), blocks=blocks, norm=norm),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=tie)),
    )


def new_model(config: TransformerConfig, seed: int) -> Transformer:
    """A model with first weights of that seed, which later draws go on from."""
    torch.manual_seed(seed)
    model = Transformer(config)
    initialise(model)
    return model
