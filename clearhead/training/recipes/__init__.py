"""Whole runs, as functions that give a config. Nothing heavy is imported here."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.training.config import Stages, TrainConfig

RECIPES = {
    "gpt_stdlib": "a decoder of 2.6 million parameters on the source of Python's standard library",
    "gpt_english": "a decoder of four million parameters on English",
    "bert_english": "an encoder of four million parameters that fills in masked words, on English",
    "attention_only_2l": "two layers of attention and nothing else on English, which grow induction heads",
    "mixtral_small": "a decoder with eight experts a layer on English",
    "mamba_small": "a state-space model on English",
    "hybrid_small": "three layers of a state-space model and one of attention on English",
    "vit_digits": "a picture encoder that reads digits written by hand",
    "vit_fashion": "a picture encoder that tells ten kinds of clothes apart",
    "finetune": "a model you name, on texts you name",
    "lora": "adapters beside a real model's projections, on Python's language reference",
    "gqa_uptrain": "a decoder whose key-value heads are made one, and trained on",
    "distil": "a small decoder with and without a larger one as its teacher",
    "speech_numbers": "a small Whisper that writes down spoken numbers",
    "transformer_2017": "the encoder-decoder of 2017 on numbers in words, from English to German and French",
}
"""By the name of the module, and of the function in it."""


def listed() -> str:
    """The recipes in one sentence."""
    return "; ".join(f"{name} ({about})" for name, about in RECIPES.items())


def recipe(name: str) -> TrainConfig | Stages:
    """The config of a recipe.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1, cutoff=0.0)
        raise UsageError(f"there is no recipe {name!r}; the nearest is {near[0]}")
    config: TrainConfig | Stages = getattr(importlib.import_module(f"clearhead.training.recipes.{name}"), name)()
    return config
