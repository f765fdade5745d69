"""How a batch is shared."""

from __future__ import annotations

import pytest
import torch

from clearhead.training.data.batches import Batch
from clearhead.training.scale.rows import rows_of
from tests.training.samples import IGNORE


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_every_row_with_targets_is_somewhere_once(n: int) -> None:
    tokens_BT = torch.arange(7)[:, None].expand(7, 3)
    parts = [rows_of(Batch({"tokens_BT": tokens_BT}, tokens_BT.clone()), at, n) for at in range(n)]
    assert len({len(part.targets) for part in parts}) == 1
    real = [int(row[0]) for part in parts for row in part.targets if int(row[0]) != IGNORE]
    assert sorted(real) == list(range(7))
    for part in parts:
        there = part.targets[:, 0] != IGNORE
        assert torch.equal(part.inputs["tokens_BT"][there], part.targets[there])


def test_a_row_that_is_missing_has_no_number_as_its_target() -> None:
    part = rows_of(Batch({"tokens_BT": torch.zeros(1, 2)}, torch.ones(1)), 1, 2)
    assert part.targets.isnan().tolist() == [True]
