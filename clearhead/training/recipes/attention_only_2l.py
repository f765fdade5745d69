"""Two layers of attention and nothing else, small enough to look into every head: where induction heads come from
(Elhage 2021; Olsson 2022, "In-context Learning and Induction Heads").
"""

from __future__ import annotations

from clearhead.config import AttentionConfig, BlockConfig, NormConfig, RotaryConfig, SublayerConfig
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus
from clearhead.training.recipes.parts import decoder_of


def attention_only_2l() -> TrainConfig:
    """0.4 million parameters, of which a third are in the heads."""
    norm = NormConfig()
    attention = AttentionConfig(n_heads=8, n_kv_heads=8, d_head=16, positions=RotaryConfig())
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm))
    model = decoder_of((block,) * 2, d_model=128, context=256, norm=norm, tie=False)
    return TrainConfig(
        model=ModelConfig(family="attention_only", config=model),
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=1024),
        batch=BatchConfig(rows=32, length=256, pack="plain"),
        optim=OptimConfig(name="muon", lr=6e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="linear", warmup=20, floor=0.02),
        run=RunConfig(steps=2400),
        every=EveryConfig(log=20, evaluate=400, save=200),
    )
