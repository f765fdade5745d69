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
    """A fifth of each digit is held out."""
    return TrainConfig(
        model=vit(PatchesConfig(patch=2, image=(8, 8), channels=1), d_model=64, n_layers=4, n_heads=4, n_labels=10),
        objective=ObjectiveConfig(name="labels", label_smoothing=0.1),
        data=PicturesConfig(path="corpus:digits", held_out=0.2, shift=1),
        batch=BatchConfig(rows=128),
        optim=OptimConfig(lr=2e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="cosine", warmup=50, floor=0.0),
        run=RunConfig(steps=800),
        every=EveryConfig(log=50, evaluate=200, save=200, held_out=0),
    )
