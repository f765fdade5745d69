"""The registry as a table, and each family's default model in words."""

from __future__ import annotations

import pytest
import torch

from clearhead.families import FAMILIES
from clearhead.families.summary import counts, summarise
from clearhead.model.build import build
from clearhead.model.describe import describe


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_summarised_and_described(name):
    row = summarise(FAMILIES[name])
    assert row.family == name
    config = FAMILIES[name].read({"model_type": name}, name)
    with torch.device("meta"):
        model = build(config)
    description = describe(model)
    assert description.facts["kind"] == row.kind
    assert sum(part.n_parameters for part in description.parts) == description.n_parameters
    assert f"{description.n_parameters:,}" in str(description)


def test_the_counts_are_of_the_table():
    rows = [summarise(family) for family in FAMILIES.values()]
    found = counts(rows)
    assert found["families"] == len(FAMILIES)
    assert found["rotary"] == sum("rotary" in row.positions for row in rows) > 10
    assert found["pre-norm"] == sum("pre" in row.norm for row in rows) > 15
    assert {row.mixer for row in rows if row.family in ("mamba", "deepseek_v3")} == {"scan", "latent"}
    assert next(row for row in rows if row.family == "t5").positions == "relative"
