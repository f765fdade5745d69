"""A ViT that reads digits written by hand, 8 x 8 pixels."""

from __future__ import annotations

from clearhead.config import PatchesConfig
from clearhead.training.config import (
    BatchConfig,
    EveryConfig,
    ObjectiveConfig,
    OptimConfig,
    PicturesConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.recipes.pictures import vit


def vit_digits() -> TrainConfig:
    """A fifth of each digit is held out. 87 thousand parameters, 44 times over the other four fifths.

    The rate is the best of three on a fifth of those (`python -m benchmarks.digits`).
    """
    return TrainConfig(
        model=vit(PatchesConfig(patch=2, image=(8, 8), channels=1), d_model=48, n_layers=3, n_heads=3, n_labels=10),
        objective=ObjectiveConfig(name="labels", label_smoothing=0.1),
        data=PicturesConfig(path="corpus:digits", held_out=0.2, shift=1),
        batch=BatchConfig(rows=128),
        optim=OptimConfig(name="muon", lr=7.5e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="cosine", warmup=30, floor=0.0),
        run=RunConfig(steps=500),
        every=EveryConfig(log=50, evaluate=250, save=250, held_out=0),
    )
