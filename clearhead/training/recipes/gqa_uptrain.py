"""From a key-value head for every query head to one for all, with a twentieth of the training (Ainslie 2023)."""

from __future__ import annotations

from dataclasses import replace

from clearhead.config import record
from clearhead.training.config import (
    EveryConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    Stages,
    StartConfig,
    TrainConfig,
)
from clearhead.training.recipes.gpt_stdlib import gpt_stdlib


@record
class GqaUptrain(Stages):
    """The loss on held-out text: of `whole` in the end, of `grouped` at its beginning and in the end."""

    whole: TrainConfig
    """A decoder on the standard library, with as many key-value heads as heads."""
    grouped: TrainConfig
    """The mean of its key-value heads takes their place, and 5 % of the steps are added (section 3.1)."""


def gqa_uptrain() -> GqaUptrain:
    """400 steps, and 20 more."""
    whole = replace(gpt_stdlib(), run=RunConfig(steps=400))
    grouped = replace(
        whole,
        model=StartConfig(source="stage:whole", n_kv_heads=1),
        optim=OptimConfig(name="muon", lr=2e-3),
        schedule=ScheduleConfig(kind="linear", warmup=2, floor=0.02),
        run=RunConfig(steps=20),
        every=EveryConfig(log=1, evaluate=5),
    )
    return GqaUptrain(whole=whole, grouped=grouped)
