"""Tiny pictures: folders of files and arrays, of two kinds that are easy to tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

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


def arrays(path: Path, n: int = 24, **changes: Any) -> str:
    """An .npz file of `n` pictures of 8 x 8 greys, three labels in turn: the number is how bright the picture is."""
    random = np.random.default_rng(5)
    labels = np.arange(n) % 3
    images = (random.integers(0, 60, (n, 8, 8)) + 60 * labels[:, None, None]).astype(np.uint8)
    np.savez(path, **{"images": images, "labels": labels, **changes})
    return str(path)


def folders(folder: Path, sizes: dict[str, int], size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Path:
    """So many pictures in a folder a label."""
    random = np.random.default_rng(6)
    for label, n in sizes.items():
        (folder / label).mkdir(parents=True)
        for i in range(n):
            array = random.integers(0, 256, (*size, 3)).astype(np.uint8)
            Image.fromarray(array).convert(mode).save(folder / label / f"{i:03}.png")
    return folder


def tiny_vit(path: str, *, channels: int = 1, n_labels: int = 3, **changes: Any) -> TrainConfig:
    """A run of six steps of four pictures, with dropout, movements and two epochs."""
    front = PatchesConfig(patch=4, image=(8, 8), channels=channels)
    parts: dict[str, Any] = {
        "model": vit(front, d_model=8, n_layers=2, n_heads=2, n_labels=n_labels, dropout=0.1),
        "objective": ObjectiveConfig(name="labels", label_smoothing=0.1),
        "data": PicturesConfig(path=path, held_out=0.25, shift=1, flip=True),
        "batch": BatchConfig(rows=4, micro_rows=2),
        "optim": OptimConfig(lr=1e-2),
        "schedule": ScheduleConfig(warmup=2),
        "run": RunConfig(steps=6),
        "every": EveryConfig(log=1, evaluate=3, save=0, held_out=0),
    }
    return TrainConfig(**{**parts, **changes})
