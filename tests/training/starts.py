"""A tiny run to go on from, and runs that do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    DecoderConfig,
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    StartConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus
from clearhead.training.run import Trained, train


def texts(folder: Path) -> DataConfig:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "t.txt").write_text("".join(f"the cat sat on mat {i}\n" for i in range(40)))
    return DataConfig(corpus=Corpus(path=str(folder / "t.txt"), format="lines"), tokenizer="bytes", held_out=0.2)


def from_nothing(folder: Path, **changes: Any) -> TrainConfig:
    """Two layers, three steps. Any registered family with these parts serves."""
    sizes = DecoderConfig(family="llama", d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_ff=24)
    config = TrainConfig(
        model=sizes,
        data=texts(folder / "texts"),
        batch=BatchConfig(rows=4, length=16),
        optim=OptimConfig(lr=1e-2),
        schedule=ScheduleConfig(kind="constant", warmup=0),
        run=RunConfig(steps=3),
        every=EveryConfig(log=1, evaluate=0, save=0, held_out=0),
    )
    return replace(config, **changes)


def going_on(folder: Path, run: TrainConfig | None = None, **start: Any) -> TrainConfig:
    """The same run from the model of the one in `folder / base`."""
    return replace(run or from_nothing(folder), model=StartConfig(**{"source": str(folder / "base"), **start}))


def trained(config: TrainConfig, out: Path, **how: Any) -> Trained:
    return train(config, out=out, quiet=True, **how)
