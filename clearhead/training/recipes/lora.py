"""A model of this package learns a manner of writing by adapters alone (Hu 2021, LoRA): Python's language reference,
which comes with Python.
"""

from __future__ import annotations

import sysconfig

from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    LoraConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    StartConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus


def lora() -> TrainConfig:
    """clear-gpt; 33 thousand numbers beside its 4.3 million are trained. `--set model.source=gemma3-270m` takes a
    larger one, which wants smaller steps.
    """
    return TrainConfig(
        model=StartConfig(source="clear-gpt", lora=LoraConfig(rank=8, alpha=16.0, targets=("*.q_proj", "*.v_proj"))),
        data=DataConfig(
            corpus=Corpus(path=f"{sysconfig.get_path('stdlib')}/pydoc_data/topics.py"),
            held_out=0.05,
        ),
        batch=BatchConfig(rows=8, length=256),
        optim=OptimConfig(lr=5e-3, weight_decay=0.0),
        schedule=ScheduleConfig(kind="linear", warmup=5, floor=0.0),
        run=RunConfig(steps=100),
        every=EveryConfig(log=10, evaluate=50, save=0, held_out=8),
    )
