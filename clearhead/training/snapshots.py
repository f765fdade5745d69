"""Weights kept along a run, early and late, for whoever wants to see how something was learnt."""

from __future__ import annotations

from pathlib import Path

from clearhead.checkpoints.load import save
from clearhead.checkpoints.own import SNAPSHOTS
from clearhead.training.checkpoint import replacing
from clearhead.training.config import StartConfig
from clearhead.training.trainer import Trainer


def keep_snapshot(trainer: Trainer, folder: Path) -> None:
    """Write the model as it is to `snapshots/0003` in the folder of the run, where the steps done are the fourth of
    those that `every.snapshots` names.
    """
    steps = sorted(trainer.config.every.snapshots)
    if trainer.number not in steps:
        return
    model_config = trainer.config.model
    family = None if isinstance(model_config, StartConfig) else model_config.family

    def write() -> None:
        with replacing(folder / SNAPSHOTS / f"{steps.index(trainer.number):04}") as temporary:
            save(model, temporary, family=family, **trainer.beside)

    with trainer.finished() as model:
        trainer.world.lead(write)
