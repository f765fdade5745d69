"""A real model learns a manner of writing by adapters alone (Hu 2021, LoRA): Python's language reference, which comes
with Python.
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
    """Gemma 3 270M; 0.4 million numbers of its 268 million are trained."""
    return TrainConfig(
        model=StartConfig(source="gemma3-270m", lora=LoraConfig(rank=8, alpha=16.0, targets=("*.q_proj", "*.v_proj"))),
        data=DataConfig(
            corpus=Corpus(path=f"{sysconfig.get_path('stdlib')}/pydoc_data/topics.py"),
            held_out=0.05,
        ),
        batch=BatchConfig(rows=2, length=128),
        optim=OptimConfig(lr=1e-3, weight_decay=0.0),
        schedule=ScheduleConfig(kind="linear", warmup=5, floor=0.0),
        run=RunConfig(steps=60),
        every=EveryConfig(log=1, evaluate=30, save=0, held_out=8),
    )
