"""What a sweep measures."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens.metrics import logit_difference, measured
from tests.lens.placed import placed


def test_the_difference_of_two_logits_at_a_place():
    logits = torch.randn(2, 5, 40)
    metric = logit_difference(placed(), [3, 4], 9, position=2)
    assert metric(logits).tolist() == [
        float(logits[0, 2, 3] - logits[0, 2, 9]),
        float(logits[1, 2, 4] - logits[1, 2, 9]),
    ]
    assert float(measured(metric, logits)) == pytest.approx(float(metric(logits).mean()))
    one = logit_difference(placed(), 3, 9)
    assert torch.equal(one(logits), logits[:, -1, 3] - logits[:, -1, 9])


def test_what_is_refused():
    with pytest.raises(ClearheadError, match="no token 40"):
        logit_difference(placed(), 3, 40)
    with pytest.raises(ClearheadError, match="2 target tokens for 3 rows"):
        logit_difference(placed(), [3, 4], [1, 2, 3])
