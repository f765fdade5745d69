"""The learning rate over a run: the papers' formulas, and what holds of every kind."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from clearhead.training.config import ScheduleConfig
from clearhead.training.schedule import factor

KINDS = ["constant", "cosine", "linear", "inverse_sqrt", "wsd"]


def whole(steps, **options):
    config = ScheduleConfig(**options)
    return [factor(config, step, steps) for step in range(steps)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_every_kind_rises_to_the_peak_and_never_again(kind, warmup):
    rates = whole(100, kind=kind, warmup=warmup, floor=0.1)
    assert rates[:warmup] == pytest.approx([(i + 1) / warmup for i in range(warmup)])
    assert max(rates) == rates[max(warmup, 1) - 1] == 1.0
    after = rates[warmup:]
    assert all(a >= b for a, b in pairwise(after))
    assert all(0 < rate <= 1 for rate in whole(100, kind=kind, warmup=warmup, floor=0.0))


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_a_fall_reaches_the_floor_when_the_run_is_over(kind):
    config = ScheduleConfig(kind=kind, warmup=10, floor=0.25)
    assert factor(config, 99, 100) > 0.25
    assert factor(config, 100, 100) == factor(config, 150, 100) == pytest.approx(0.25)


def test_the_middle_of_a_fall():
    middle = {kind: factor(ScheduleConfig(kind=kind, warmup=20, floor=0.1), 60, 100) for kind in ("cosine", "linear")}
    assert middle == pytest.approx({"cosine": 0.55, "linear": 0.55})
    assert factor(ScheduleConfig(kind="cosine", warmup=20, floor=0.0), 40, 100) == pytest.approx(
        (1 + math.cos(math.pi / 4)) / 2
    )


def test_the_paper_of_2017():
    """d_model^-0.5 min(step^-0.5, step warmup^-1.5), over its peak."""
    d_model, warmup = 512, 40
    paper = [d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 201)]
    assert whole(200, kind="inverse_sqrt", warmup=warmup) == pytest.approx([rate / max(paper) for rate in paper])


def test_warm_up_stable_decay():
    rates = whole(100, kind="wsd", warmup=10, decay=0.2, floor=0.0)
    assert rates[9:81] == [1.0] * 72
    assert rates[85] == pytest.approx(1 - math.sqrt(5 / 20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_longer_than_the_run(kind):
    assert whole(5, kind=kind, warmup=10) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
