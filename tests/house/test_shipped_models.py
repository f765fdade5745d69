"""What the package carries of weights: within bounds, each with a card, and each a model that loads."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.checkpoints.own import MODELS, own_names, snapshots_of
from clearhead.training.ship import SOURCES

MOST_BYTES = 40_000_000


def test_all_models_together_are_small() -> None:
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert {path.relative_to(MODELS).parts[0] for path in files} == set(own_names())


@pytest.mark.parametrize("name", own_names())
def test_a_model_loads_and_has_a_card(name: str) -> None:
    assert name in SOURCES
    card = (MODELS / name / "README.md").read_text()
    for words in (f"# {name}\n", f"ship {name}", "clearhead train ", "SHA-256", "seed", "as shipped", "(loss.svg)"):
        assert words in card
    assert (MODELS / name / "loss.svg").is_file()
    for source in (name, *(f"{name}@{number}" for number in snapshots_of(MODELS / name))):
        model = clearhead.load(source)
        assert model.dtype == torch.float32
        assert (model.tokenizer is not None) == model.takes_tokens
