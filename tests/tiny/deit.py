"""Tiny DeiTs: ViT with a second learned token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.vit import EXEMPT, SIZES, loud


def with_teacher(**changes: Any) -> nn.Module:
    """A tiny classifier with a head for each learned token."""
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher

    return loud(lively(DeiTForImageClassificationWithTeacher(DeiTConfig(**{**SIZES, **changes}))))


def classifier(**changes: Any) -> nn.Module:
    """One that reads the class token alone."""
    from transformers import DeiTConfig, DeiTForImageClassification

    return loud(lively(DeiTForImageClassification(DeiTConfig(**{**SIZES, **changes}))))


def bare(**changes: Any) -> nn.Module:
    """Without labels, with the pooler."""
    from transformers import DeiTConfig, DeiTModel

    return loud(lively(DeiTModel(DeiTConfig(**{**SIZES, **changes}))))


WITH_TEACHER = Tiny(
    family="deit",
    kind="vision",
    normed_last=False,
    exempt=EXEMPT,
    make=with_teacher,
    configs={
        "with_teacher": {},
        "relu": {"image_size": 40, "hidden_act": "relu", "layer_norm_eps": 1e-2, "qkv_bias": False},
    },
)
CLASSIFIER = replace(WITH_TEACHER, make=classifier, configs={"classifier": {}})
BARE = replace(WITH_TEACHER, make=bare, configs={"pooled": {"pooler_act": "gelu"}})
TINY = (WITH_TEACHER, CLASSIFIER, BARE)
