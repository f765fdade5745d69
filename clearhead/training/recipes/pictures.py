"""What the recipes on pictures have in common: a ViT by its sizes (Dosovitskiy 2020)."""

from __future__ import annotations

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    InitConfig,
    LabelHeadConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    PatchesConfig,
    StackConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.training.config import ModelConfig


def vit(
    front: PatchesConfig, *, d_model: int, n_layers: int, n_heads: int, n_labels: int, dropout: float = 0.0
) -> ModelConfig:
    """Pre-norm blocks behind patches and a class token, at which labels are read. Feed-forwards are four times as wide
    as the stream. `dropout` is on what each sub-layer adds.
    """
    norm = NormConfig(kind="layer", eps=1e-12, bias=True)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=BiasConfig(q=True, k=True, v=True, o=True),
        mask=MaskConfig(kind="full"),
    )
    feed_forward = FeedForwardConfig(d_ff=4 * d_model, activation="gelu", gated=False, bias=True)
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm, dropout=dropout),
        ffn=SublayerConfig(op=feed_forward, pre=norm, dropout=dropout),
    )
    down, across = front.grid
    positions = LearnedPositions(n=front.n_prefix + down * across, grid=front.grid)
    config = TransformerConfig(
        d_model=d_model,
        encoder=StackConfig(
            embed=EmbedConfig(front=front, positions=positions, dropout=dropout), blocks=(block,) * n_layers, norm=norm
        ),
        heads=HeadsConfig(labels=(("classes", LabelHeadConfig(n_labels=n_labels)),)),
    )
    return ModelConfig(family="vit", config=config, init=InitConfig())
