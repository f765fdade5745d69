"""What the results of a lens have in common: they are tables that draw themselves."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from clearhead.lens.accumulated import accumulated
from clearhead.lens.attribution import attribution
from clearhead.lens.attribution_patching import attribution_patching
from clearhead.lens.integrated_gradients import integrated_gradients
from clearhead.lens.logit_lens import logit_lens
from clearhead.lens.metrics import logit_difference
from clearhead.lens.patching import patching
from clearhead.lens.paths import path_patching
from clearhead.lens.rollout import rollout
from clearhead.lens.table import Cell, Table
from clearhead.lens.vocabulary import head_output, ov

CLEAN, CORRUPTED = [5, 9, 3, 22, 7], [5, 9, 30, 22, 7]
RESULTS = {
    "logit_lens": lambda m: logit_lens(m, "keys"),
    "attribution": lambda m: attribution(m, "keys", by="head"),
    "accumulated": lambda m: accumulated(m, "keys"),
    "patching": lambda m: patching(m, CLEAN, CORRUPTED, logit_difference(m, 7, 3)),
    "attribution_patching": lambda m: attribution_patching(m, CLEAN, CORRUPTED, logit_difference(m, 7, 3)),
    "path_patching": lambda m: path_patching(m, CLEAN, CORRUPTED, logit_difference(m, 7, 3), (1, 2)),
    "rollout": lambda m: rollout(m, "keys"),
    "integrated_gradients": lambda m: integrated_gradients(m, "keys", logit_difference(m, 7, 3)),
    "head_output": lambda m: head_output(m, "keys", 1, 2),
    "ov": lambda m: ov(m, 1, 2, [3, 4]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_draws_itself(name, model, tmp_path):
    result = RESULTS[name](model)
    out = io.StringIO()
    result.show(console=Console(file=out, width=120))
    assert result.title in out.getvalue()
    for ending in ("svg", "png", "html", "json"):
        assert result.save(tmp_path / f"map.{ending}").stat().st_size > 200
    assert json.loads((tmp_path / "map.json").read_text()) == json.loads(json.dumps(result.to_json()))
    assert "text/html" in result._repr_mimebundle_()
    assert result.values.shape == (len(result.row_labels), len(result.column_labels))


def test_the_numbers_farthest_from_zero():
    values = torch.tensor([[1.0, -3.0], [torch.nan, 2.0]])
    table = Table("four", values, ["a", "b"], ["x", "y"])
    assert table.top(2) == [Cell("a", "y", -3.0), Cell("b", "y", 2.0)]
    assert len(table.top(9)) == 3  # there is no fourth
    assert table.to_json()["values"] == [[1.0, -3.0], [None, 2.0]]
