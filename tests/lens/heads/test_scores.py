"""Scores of patterns whose answer is known, and controls against every permutation there is."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from clearhead.config import MaskConfig
from clearhead.lens.heads.aims import PlaceAim, TokenAim, patch_places, text_places
from clearhead.lens.heads.measure import Measure
from clearhead.lens.heads.roles import role_of
from clearhead.lens.heads.scores import allowed, at_places, at_tokens, entropy, mean_distance
from tests.lens.conftest import random_pattern
from tests.oracles import TOLERANCE, error

F64 = TOLERANCE[torch.float64]


def test_a_head_that_looks_at_the_token_before_scores_one() -> None:
    pattern = torch.zeros(2, 1, 8, 8)
    pattern[..., range(1, 8), range(7)] = 1
    pattern[..., 0, 0] = 1
    by_name = {aim.name: at_places(pattern, aim, allowed(MaskConfig(), 8)) for aim in text_places(8, False, False)}
    for name, (found, control, _, n) in by_name.items():
        assert float(found / n) == (1.0 if name == "previous token" else 0.0), name
        # Queries 2 to 7 of two rows see 3 to 8 tokens.
        if name == "previous token":
            assert float(control) == pytest.approx(2 * sum(1 / (t + 1) for t in range(2, 8)))


@pytest.mark.parametrize("cells", [((3, 1),), ((3, 1), (3, 3), (4, 0)), ((2, 0), (2, 1), (2, 2))])
@pytest.mark.parametrize("kind", ["causal", "full"])
def test_the_control_by_place_is_that_of_all_permutations(cells, kind) -> None:
    """Each row's weights in every order, summed over the cells: mean and variance, rows being independent."""
    n = 5
    pattern_TS = random_pattern(n, causal=kind == "causal").double()
    allowed_TS = allowed(MaskConfig(kind=kind), n)
    queries, keys = (torch.tensor(column) for column in zip(*cells, strict=True))
    aim = PlaceAim("these", queries, keys)
    found, mean, variance, n_queries = at_places(pattern_TS[None, None], aim, allowed_TS)
    assert n_queries == len({query for query, _ in cells})
    assert float(found) == pytest.approx(sum(float(pattern_TS[q, k]) for q, k in cells), abs=F64)
    wanted_mean = wanted_variance = 0.0
    for query in {query for query, _ in cells}:
        row = pattern_TS[query, allowed_TS[query]]
        seen = allowed_TS[query].nonzero().flatten().tolist()
        places = [seen.index(key) for q, key in cells if q == query]
        sums = torch.stack([row[list(order)][places].sum() for order in permutations(range(len(row)))])
        wanted_mean += float(sums.mean())
        wanted_variance += float(sums.var(unbiased=False))
    assert float(mean) == pytest.approx(wanted_mean, abs=F64)
    assert float(variance) == pytest.approx(wanted_variance, abs=F64)


def test_cells_a_window_hides_are_not_asked_about() -> None:
    pattern = torch.eye(6).expand(1, 1, 6, 6)
    aim = PlaceAim("far back", torch.tensor([4, 5, 5]), torch.tensor([0, 4, 1]))
    assert at_places(pattern, aim, allowed(MaskConfig(window=3), 6))[3] == 1


def test_what_is_allowed_is_what_the_layer_allows() -> None:
    back_TS = torch.arange(9)[:, None] - torch.arange(9)
    assert torch.equal(allowed(MaskConfig(), 9), back_TS >= 0)
    assert torch.equal(allowed(MaskConfig(window=3), 9), (back_TS >= 0) & (back_TS < 3))
    assert allowed(MaskConfig(kind="full"), 9).all()
    assert torch.equal(allowed(MaskConfig(kind="full", window=2), 9), back_TS.abs() <= 2)


def test_scores_by_token_are_summed_by_group_less_the_rivals() -> None:
    pattern = torch.rand(4, 3, 6, 6, dtype=torch.float64)
    aim = TokenAim.of("these", [(0, 5, 1, 1.0), (0, 5, 2, 1.0), (0, 5, 3, -1.0), (3, 4, 0, 1.0)])
    assert aim.n_queries == 2
    found = at_tokens(pattern, aim, torch.tensor([0, 0, 1, 1]), 2)
    first = pattern[0, :, 5, 1] + pattern[0, :, 5, 2] - pattern[0, :, 5, 3]
    assert error(found, torch.stack([first, pattern[3, :, 4, 0]])) <= F64


def test_entropy_and_distance() -> None:
    narrow, wide = torch.eye(4).expand(1, 4, 4), torch.full((1, 4, 4), 0.25)
    pattern_BHTS = torch.stack([narrow, wide], dim=1)
    assert entropy(pattern_BHTS).tolist() == pytest.approx([0.0, math.log(4)])
    assert mean_distance(pattern_BHTS).tolist() == pytest.approx([0.0, (6 + 4 + 4 + 6) / 16])


def test_neighbours_of_patches() -> None:
    """Two rows of three patches behind one learned token: 0 | 1 2 3 / 4 5 6."""
    aims = {aim.name: set(zip(aim.query_N.tolist(), aim.key_N.tolist(), strict=True)) for aim in patch_places(2, 3, 1)}
    assert aims["patch left"] == {(2, 1), (3, 2), (5, 4), (6, 5)}
    assert aims["patch right"] == {(1, 2), (2, 3), (4, 5), (5, 6)}
    assert aims["patch above"] == {(4, 1), (5, 2), (6, 3)}
    assert aims["patch below"] == {(1, 4), (2, 5), (3, 6)}
    sides = aims["patch left"] | aims["patch right"] | aims["patch above"] | aims["patch below"]
    assert aims["neighbouring patch"] == sides
    assert aims["first token"] == {(patch, 0) for patch in range(1, 7)}
    assert "first token" not in {aim.name for aim in patch_places(2, 2, 0)}


def test_tokens_ahead_are_asked_about_where_they_are_seen() -> None:
    assert {"next token", "4 ahead", "end token"} <= {aim.name for aim in text_places(20, True, True)}
    names = {aim.name for aim in text_places(20, False, False)}
    assert names == {"first token", "itself", "previous token", "2 back", "3 back", "4 back"}


def test_a_role_is_the_largest_effect_and_resting_comes_last() -> None:
    sure, unsure, small = Measure(0.5, 0.1, 0.02), Measure(0.9, 0.1, 0.5), Measure(0.11, 0.01, 0.001)
    assert (sure.effect, sure.sure) == (pytest.approx(0.4), pytest.approx(20.0))
    assert role_of({"first token": Measure(0.9, 0.1, 0.01), "induction": sure}) == "induction"
    assert role_of({"first token": sure, "induction": unsure, "2 back": small}) == "first token"
    assert role_of({"induction": unsure, "2 back": small}) == "unknown"
    assert role_of({}) == "unknown"
    assert Measure(0.002, 0.001, 0.0).sure == pytest.approx(1.0)
