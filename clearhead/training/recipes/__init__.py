"""Whole runs, as functions that give a config. Nothing heavy is imported here."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.training.config import TrainConfig

RECIPES = {
    "gpt_stdlib": "a decoder of four million parameters on the source of Python's standard library",
}
"""By the name of the module, and of the function in it."""


def recipe(name: str) -> TrainConfig:
    """The config of a recipe.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1, cutoff=0.0)
        raise UsageError(f"there is no recipe {name!r}; the nearest is {near[0]}")
    config: TrainConfig = getattr(importlib.import_module(f"clearhead.training.recipes.{name}"), name)()
    return config
