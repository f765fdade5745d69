"""A small mixture of experts: of eight feed-forwards in a layer, two work on each token (Jiang 2024, Mixtral)."""

from __future__ import annotations

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    NormConfig,
    RotaryConfig,
    RouterConfig,
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


def mixtral_small() -> TrainConfig:
    """7.1 million parameters, of which a token meets 2.7 million. The balance loss keeps all experts at work."""
    norm = NormConfig(eps=1e-5)
    attention = AttentionConfig(n_heads=6, n_kv_heads=2, d_head=32, positions=RotaryConfig())
    experts = ExpertsConfig(
        n_experts=8,
        n_chosen=2,
        expert=FeedForwardConfig(d_ff=320),
        router=RouterConfig(renormalise=True, balance=0.02),
    )
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm), ffn=SublayerConfig(op=experts, pre=norm))
    model = decoder_of((block,) * 4, d_model=192, context=256, norm=norm)
    return TrainConfig(
        model=ModelConfig(family="mixtral", config=model),
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=4096),
        batch=BatchConfig(rows=8, length=256),
        optim=OptimConfig(lr=3e-3, weight_decay=0.1),
        schedule=ScheduleConfig(warmup=50),
        run=RunConfig(steps=400),
    )
