"""Any model goes on learning from any texts: both have to be named."""

from __future__ import annotations

from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    StartConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus


def finetune() -> TrainConfig:
    """All weights, at a low rate; `--set model.lora.rank=8` trains adapters, `--set model.train=...` some weights."""
    return TrainConfig(
        model=StartConfig(source=""),
        data=DataConfig(corpus=Corpus(path="")),
        batch=BatchConfig(rows=8, length=256),
        optim=OptimConfig(lr=5e-5, weight_decay=0.01),
        schedule=ScheduleConfig(kind="linear", warmup=10, floor=0.0),
        run=RunConfig(steps=200),
        every=EveryConfig(log=10, evaluate=50, save=100),
    )
