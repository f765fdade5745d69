"""The costs of 2017; another schedule, another model or a count of half the work shows."""

from __future__ import annotations

import pytest

from clearhead.claims.scale import cost_of_2017
from clearhead.costs.source import read_config
from clearhead.training.config import ScheduleConfig
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("cost-of-2017") == "holds"


def test_a_schedule_that_falls_along_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    right = cost_of_2017.factor
    linear = ScheduleConfig(kind="linear", warmup=cost_of_2017.WARMUP)
    monkeypatch.setattr(cost_of_2017, "factor", lambda config, step, steps: right(linear, step, steps))
    assert verdict("cost-of-2017") == "does not hold"


def test_a_model_of_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_of_2017, "read_config", lambda name: read_config("t5-small"))
    assert verdict("cost-of-2017") == "does not hold"


def test_the_forward_pass_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = cost_of_2017.counts

    class Forward:
        def __init__(self, config: object) -> None:
            self.told = counts(config)
            self.parameters = self.told.parameters

        def flops(self, batch: int, tokens: int, training: bool, source: int) -> object:
            return self.told.flops(batch, tokens, source=source)

    monkeypatch.setattr(cost_of_2017, "counts", Forward)
    assert verdict("cost-of-2017") == "does not hold"
