"""Sampling: the edges people got wrong (H16), agreement with `transformers`, independence of rows, the draw itself."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.ops import sampling
from tests.oracles import TOLERANCE, error

PROBS = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
LOGITS = PROBS.log()


def kept(logits_BV: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits_BV]


def some_logits(n_rows: int = 3, size: int = 50, seed: int = 0) -> Tensor:
    return torch.randn(n_rows, size, generator=torch.Generator().manual_seed(seed)) * 3


# ---- H16


@pytest.mark.parametrize(("top_p", "ids"), [(0, [0]), (0.5, [0]), (0.75, [0, 1]), (1, [0, 1, 2, 3])])
def test_top_p_edges(top_p: float, ids: list[int]) -> None:
    assert kept(sampling.keep_top_p(LOGITS, top_p)) == [ids]
    # the order of the vocabulary must not matter
    assert kept(sampling.keep_top_p(LOGITS.flip(-1), top_p)) == [sorted(3 - i for i in ids)]


@pytest.mark.parametrize(("top_k", "n"), [(0, 4), (1, 1), (2, 2), (4, 4), (10, 4)])
def test_top_k_edges(top_k: int, n: int) -> None:
    assert kept(sampling.keep_top_k(LOGITS, top_k)) == [list(range(n))]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("top_k", -1), ("top_p", -0.1), ("top_p", 1.1), ("min_p", 2.0), ("temperature", -1.0), ("temperature", math.nan)],
)
def test_settings_out_of_range_are_refused_by_name(setting: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{setting} is {value:g}"):
        sampling.adjust(LOGITS, **{setting: value})


def test_settings_of_another_number_of_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="2 numbers for 1 rows"):
        sampling.adjust(LOGITS, temperature=[1.0, 0.5])


def test_temperature_zero_divides_nothing() -> None:
    assert torch.equal(sampling.scale_temperature(LOGITS, 0.0), LOGITS)


@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-300])
def test_a_tiny_temperature_is_the_best_token_and_never_nan(temperature: float) -> None:
    logits_BV = torch.cat([some_logits(), -some_logits().abs()])
    scaled_BV = sampling.adjust(logits_BV, temperature=temperature)
    assert not scaled_BV.isnan().any()
    assert sampling.draw(scaled_BV, [0.999] * 6).tolist() == logits_BV.argmax(-1).tolist()


def test_all_but_one_forbidden() -> None:
    logits_BV = torch.full((1, 4), -math.inf)
    logits_BV[0, 2] = -3.0
    assert sampling.greedy(logits_BV).tolist() == [2]
    for settings in ({"top_k": 3}, {"top_p": 0.5}, {"top_p": 0.0}, {"min_p": 0.5}, {"temperature": 0.1}):
        adjusted_BV = sampling.adjust(logits_BV, **settings)
        assert not adjusted_BV.isnan().any()
        for u in (0.0, 0.5, 1 - 2**-53):
            assert sampling.draw(adjusted_BV, [u]).tolist() == [2]


def test_a_row_with_nothing_left_says_so() -> None:
    rows = torch.tensor([[-math.inf, -math.inf], [0.0, math.nan], [0.0, 1.0]])
    assert sampling.greedy(rows).tolist() == [-1, -1, 1]
    assert sampling.draw(rows, [0.5, 0.5, 0.9]).tolist() == [-1, -1, 1]


def test_a_forced_token_is_drawn() -> None:
    forced_BV = sampling.add_bias(LOGITS, {3: math.inf})
    assert sampling.draw(sampling.adjust(forced_BV, temperature=0.7, top_p=0.9), [0.01]).tolist() == [3]


# ---- the same as transformers


@pytest.mark.parametrize("seed", range(3))
def test_filters_agree_with_transformers(seed: int) -> None:
    from transformers.generation import logits_process as theirs

    logits_BV = some_logits(4, 97, seed)
    ids = torch.zeros(4, 1, dtype=torch.long)
    for k in (1, 5, 96, 97, 200):
        assert torch.equal(sampling.keep_top_k(logits_BV, k), theirs.TopKLogitsWarper(k)(ids, logits_BV))
    for p in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert torch.equal(sampling.keep_top_p(logits_BV, p), theirs.TopPLogitsWarper(p)(ids, logits_BV))
    for p in (0.0, 0.01, 0.3, 1.0):
        assert torch.equal(sampling.keep_min_p(logits_BV, p), theirs.MinPLogitsWarper(p)(ids, logits_BV))
    for t in (0.1, 0.7, 2.0):
        assert torch.equal(sampling.scale_temperature(logits_BV, t), theirs.TemperatureLogitsWarper(t)(ids, logits_BV))


def test_penalty_and_bias_agree_with_transformers() -> None:
    from transformers.generation import logits_process as theirs

    logits_BV = some_logits(2, 20)
    ids = torch.tensor([[1, 2, 2, 3], [4, 4, 4, 19]])
    count_BV = torch.zeros(2, 20).scatter_add(1, ids, torch.ones(2, 4))
    for penalty in (0.5, 1.0, 1.3):
        right_BV = theirs.RepetitionPenaltyLogitsProcessor(penalty)(ids, logits_BV)
        assert error(sampling.penalise_repeats(logits_BV, count_BV, penalty), right_BV) <= TOLERANCE[torch.float32]
    right_BV = theirs.SequenceBiasLogitsProcessor([[[7], -2.0], [[0], 1.5]])(ids, logits_BV)
    assert error(sampling.add_bias(logits_BV, {7: -2.0, 0: 1.5}), right_BV) <= TOLERANCE[torch.float32]


def test_all_together_agree_with_transformers() -> None:
    from transformers.generation import logits_process as theirs

    logits_BV, ids = some_logits(3, 200), torch.zeros(3, 1, dtype=torch.long)
    right_BV = logits_BV
    for step in (theirs.TemperatureLogitsWarper(0.8), theirs.TopKLogitsWarper(40), theirs.TopPLogitsWarper(0.9)):
        right_BV = step(ids, right_BV)
    right_BV = theirs.MinPLogitsWarper(0.05)(ids, right_BV)
    assert torch.equal(sampling.adjust(logits_BV, temperature=0.8, top_k=40, top_p=0.9, min_p=0.05), right_BV)


def test_a_large_vocabulary_takes_the_shortlist_and_the_full_sort() -> None:
    from transformers.generation import logits_process as theirs

    sharp_BV, flat_BV = some_logits(1, 20_000), some_logits(1, 20_000, 1) / 30
    both_BV = torch.cat([sharp_BV, flat_BV])  # the first row needs a handful of tokens, the second thousands
    for logits_BV in (sharp_BV, both_BV):
        right_BV = theirs.TopPLogitsWarper(0.9)(torch.zeros(2, 1, dtype=torch.long), logits_BV)
        assert kept(sampling.keep_top_p(logits_BV, 0.9)) == kept(right_BV)


def test_presence_and_frequency_by_hand() -> None:
    logits_BV = torch.tensor([[1.0, 2.0, 3.0]])
    count_BV = torch.tensor([[0.0, 1.0, 3.0]])
    answer_BV = sampling.penalise_counts(logits_BV, count_BV, presence=0.5, frequency=0.25)
    assert answer_BV.tolist() == [[1.0, 2.0 - 0.75, 3.0 - 1.25]]


def test_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="outside 0 to 3"):
        sampling.add_bias(LOGITS, {4: 1.0})


# ---- rows are on their own


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits_BV = some_logits(4, 60)
    settings = {
        "temperature": [0.5, 0.0, 1.3, 1.0],
        "top_k": [3, 0, 60, 10],
        "top_p": [1.0, 0.4, 0.9, 0.0],
        "min_p": [0.0, 0.2, 0.05, 0.0],
    }
    together_BV = sampling.adjust(logits_BV, **settings)
    count_BV = (some_logits(4, 60, 9) > 2).float()
    penalties = {"presence": [0.0, 1.0, 0.2, 0.0], "frequency": [0.1, 0.0, 0.3, 0.0]}
    less_BV = sampling.penalise_counts(logits_BV, count_BV, **penalties)
    fewer_BV = sampling.penalise_repeats(logits_BV, count_BV, [1.0, 1.5, 0.7, 2.0])
    for row in range(4):
        one = slice(row, row + 1)
        alone_BV = sampling.adjust(logits_BV[one], **{name: values[row] for name, values in settings.items()})
        assert torch.equal(together_BV[one], alone_BV)
        alone_BV = sampling.penalise_counts(
            logits_BV[one], count_BV[one], **{name: values[row] for name, values in penalties.items()}
        )
        assert torch.equal(less_BV[one], alone_BV)
        assert torch.equal(
            fewer_BV[one], sampling.penalise_repeats(logits_BV[one], count_BV[one], [1.0, 1.5, 0.7, 2.0][row])
        )
    numbers = [0.1, 0.5, 0.7, 0.95]
    drawn = sampling.draw(together_BV, numbers).tolist()
    assert drawn == [sampling.draw(together_BV[i : i + 1], [numbers[i]]).item() for i in range(4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_scores_are_handled_in_float32(dtype: torch.dtype) -> None:
    half_BV = some_logits().to(dtype)
    settings = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01}
    answer_BV = sampling.adjust(half_BV, **settings)
    assert answer_BV.dtype == torch.float32
    assert torch.equal(answer_BV, sampling.adjust(half_BV.float(), **settings))


# ---- choosing


@pytest.mark.parametrize("size", [1, 4, 511, 1024, 1500, 50257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_is_argmax(size: int, dtype: torch.dtype) -> None:
    logits_BV = some_logits(5, size).to(dtype)  # bfloat16 has ties
    first = [row.index(max(row)) for row in logits_BV.tolist()]
    assert sampling.greedy(logits_BV).tolist() == first


@pytest.mark.parametrize("where", [0, 700, 1499])
def test_greedy_sees_a_nan_wherever_it_is(where: int) -> None:
    logits_BV = some_logits(1, 1500)
    logits_BV[0, where] = math.nan
    assert sampling.greedy(logits_BV).tolist() == [sampling.NOTHING_LEFT]


def test_draw_inverts_the_running_sum() -> None:
    ids = [sampling.draw(LOGITS, [u]).item() for u in (0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, 1 - 2**-53)]
    assert ids == [0, 0, 1, 1, 2, 2, 3, 3]


def test_draws_have_the_right_frequencies() -> None:
    n = 20_000
    numbers = [sampling.uniform(7, 0, position) for position in range(n)]
    counts_V = torch.bincount(sampling.draw(LOGITS.expand(n, -1), numbers), minlength=4)
    chi_square = ((counts_V - n * PROBS[0]) ** 2 / (n * PROBS[0])).sum().item()
    assert chi_square < 16.3  # 3 degrees of freedom: 1 in 1000 of fair draws


def test_uniform_numbers_are_fair_reproducible_and_unrelated() -> None:
    assert sampling.uniform(1, 2, 3) == sampling.uniform(1, 2, 3)
    series = {
        key: torch.tensor([sampling.uniform(*(k if k >= 0 else i for k in key)) for i in range(4096)])
        for key in ((-1, 0, 0), (0, -1, 0), (0, 0, -1), (2**63, 5, -1))
    }
    for numbers in series.values():
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts = torch.histc(numbers, bins=64, min=0, max=1)
        assert ((counts - 64) ** 2 / 64).sum() < 103.4  # 63 degrees of freedom, 1 in 1000
    together = torch.corrcoef(torch.stack(list(series.values())))
    assert (together - torch.eye(4)).abs().max() < 0.06  # four standard errors


def test_log_probs_are_the_models_own() -> None:
    logits_BV, tokens_B = some_logits(), torch.tensor([0, 7, 49])
    right_B = logits_BV.double().log_softmax(-1)[torch.arange(3), tokens_B]
    assert error(sampling.log_probs(logits_BV, tokens_B), right_B) <= TOLERANCE[torch.float32]
