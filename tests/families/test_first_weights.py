"""The table of first weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from clearhead.config import InitConfig
from clearhead.families import FAMILIES
from clearhead.families.first_weights import FIRST_WEIGHTS
from clearhead.training.config import ModelConfig
from clearhead.training.models import start_model
from clearhead.training.recipes.vit_digits import vit_digits


def test_the_table_has_every_family() -> None:
    assert sorted(FIRST_WEIGHTS) == sorted(FAMILIES)


def test_a_model_starts_as_its_family_does_or_as_it_is_told() -> None:
    """Without depth scaling, as encoders start, what writes to the stream has the spread of all the others."""
    config = vit_digits()
    assert isinstance(config.model, ModelConfig)
    for init, deep in ((None, False), (InitConfig(), True)):
        torch.manual_seed(0)
        model = start_model(replace(config, model=replace(config.model, init=init)), None)
        reads, writes = (
            torch.stack([p.std() for name, p in model.named_parameters() if name.endswith(f"{which}_proj.weight")])
            for which in ("up", "down")
        )
        assert abs(reads.mean() / 0.02 - 1) < 0.05
        expected = (2 * len(writes)) ** -0.5 if deep else 1.0
        assert abs(writes.mean() / reads.mean() / expected - 1) < 0.05
