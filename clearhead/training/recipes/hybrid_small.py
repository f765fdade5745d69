"""A small hybrid: three layers of Mamba-2 and one of attention, which looks back exactly where a state forgets
(IBM 2024, Bamba).
"""

from __future__ import annotations

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    FeedForwardConfig,
    Mamba2Config,
    MixerConfig,
    NormConfig,
    RotaryConfig,
    SublayerConfig,
)
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus
from clearhead.training.recipes.parts import decoder_of


def hybrid_small() -> TrainConfig:
    """2.8 million parameters. Of each head's numbers one half is rotated, as in Bamba."""
    norm = NormConfig(eps=1e-5)
    attention = AttentionConfig(n_heads=6, n_kv_heads=2, d_head=32, positions=RotaryConfig(fraction=0.5))
    scan = Mamba2Config(n_heads=12, d_head=32, d_state=32, n_groups=1, norm=norm)
    feed_forward = SublayerConfig(op=FeedForwardConfig(d_ff=512), pre=norm)

    def block(mixer: MixerConfig) -> BlockConfig:
        return BlockConfig(mixer=SublayerConfig(op=mixer, pre=norm), ffn=feed_forward)

    blocks = (block(scan), block(scan), block(attention), block(scan))
    model = decoder_of(blocks, d_model=192, context=256, norm=norm)
    return TrainConfig(
        model=ModelConfig(family="bamba", config=model),
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=4096),
        batch=BatchConfig(rows=8, length=256),
        optim=OptimConfig(lr=3e-3, weight_decay=0.1),
        schedule=ScheduleConfig(warmup=50),
        run=RunConfig(steps=400),
    )
