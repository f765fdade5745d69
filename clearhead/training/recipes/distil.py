"""A small student learns from a larger teacher beside the data, and another of the same size from the data alone
(Hinton 2015).
"""

from __future__ import annotations

from dataclasses import replace

from clearhead.config import record
from clearhead.training.config import DecoderConfig, ObjectiveConfig, RunConfig, Stages, TeacherConfig, TrainConfig
from clearhead.training.recipes.gpt_stdlib import gpt_stdlib


@record
class DistilStages(Stages):
    """The loss on held-out text of each; the two students began with the same weights and read the same batches."""

    teacher: TrainConfig
    alone: TrainConfig
    taught: TrainConfig


def distil() -> DistilStages:
    """A teacher of 4.2 million parameters and 300 steps, students of 0.9 million and 300 steps."""
    teacher = replace(gpt_stdlib(), run=RunConfig(steps=300))
    student = DecoderConfig(family="qwen3", d_model=128, n_layers=2, n_heads=4, n_kv_heads=4, d_ff=352, qk_norm=True)
    alone = replace(teacher, model=student)
    told = TeacherConfig(source="stage:teacher", temperature=1.0, weight=0.5)
    taught = replace(alone, objective=ObjectiveConfig(teacher=told))
    return DistilStages(teacher=teacher, alone=alone, taught=taught)
