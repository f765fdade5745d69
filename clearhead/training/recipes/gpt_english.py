"""A small decoder that writes English as presidents and whalers do."""

from __future__ import annotations

from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    DecoderConfig,
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus


def gpt_english() -> TrainConfig:
    """4.2 million parameters, 700 steps of 4,096 tokens: once over the texts."""
    return TrainConfig(
        model=DecoderConfig(family="qwen3", d_model=256, n_layers=4, n_heads=4, n_kv_heads=4, d_ff=704, qk_norm=True),
        data=DataConfig(corpus=Corpus(path="corpus:english"), vocab_size=4096),
        batch=BatchConfig(rows=8, length=512),
        optim=OptimConfig(name="muon", lr=6e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="linear", warmup=20, floor=0.02),
        run=RunConfig(steps=700),
        every=EveryConfig(log=10, evaluate=200, save=100),
    )
