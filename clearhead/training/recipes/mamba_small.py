"""A small Mamba: no attention, but a state of one size that reads the text from left to right (Gu and Dao 2023)."""

from __future__ import annotations

from clearhead.config import BlockConfig, MambaConfig, NormConfig, SublayerConfig
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


def mamba_small() -> TrainConfig:
    """1.8 million parameters."""
    norm = NormConfig(eps=1e-5)
    scan = MambaConfig(d_inner=384, d_state=16, dt_rank=12)
    block = BlockConfig(mixer=SublayerConfig(op=scan, pre=norm))
    model = decoder_of((block,) * 4, d_model=192, context=None, norm=norm)
    return TrainConfig(
        model=ModelConfig(family="mamba", config=model),
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=4096),
        batch=BatchConfig(rows=8, length=256),
        optim=OptimConfig(lr=3e-3, weight_decay=0.1),
        schedule=ScheduleConfig(warmup=50),
        run=RunConfig(steps=400),
    )
