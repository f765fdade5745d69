"""Two layers of attention and nothing else, small enough to look into every head: where induction heads come from
(Elhage 2021; Olsson 2022, "In-context Learning and Induction Heads").
"""

from __future__ import annotations

from clearhead.config import AttentionConfig, BiasConfig, BlockConfig, NormConfig, RotaryConfig, SublayerConfig
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
    """0.26 million parameters, of which half are in the heads."""
    norm = NormConfig()
    # With biases, a head can look at the token before whatever that is, which an induction head builds on.
    bias = BiasConfig(q=True, k=True, v=True, o=True)
    attention = AttentionConfig(n_heads=4, n_kv_heads=4, d_head=32, bias=bias, positions=RotaryConfig())
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm))
    model = decoder_of((block,) * 2, d_model=128, context=512, norm=norm, tie=False)
    return TrainConfig(
        model=ModelConfig(family="attention_only", config=model),
        # Few tokens: their pairs are soon known, and what repeats is the next thing to learn.
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=512),
        # Rows that repeat teach in minutes what English alone had not taught after 16 million tokens.
        batch=BatchConfig(rows=16, length=512, pack="plain", repeated=8),
        optim=OptimConfig(name="muon", lr=6e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="linear", warmup=20, floor=0.02),
        run=RunConfig(steps=1500),
        every=EveryConfig(
            log=20,
            evaluate=200,
            save=100,
            snapshots=(0, 50, 100, 150, 200, 225, 250, 275, 300, 350, 400, 500, 700, 1000, 1250, 1500),
        ),
    )
