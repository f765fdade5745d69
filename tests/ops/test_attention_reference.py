"""The four steps against their formulas, written out cell by cell."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from clearhead.ops.attention import attention, mix, normalise, score, traced
from clearhead.ops.biases import Alibi, RelativeBias, alibi_slopes, relative_bucket
from clearhead.ops.masks import Causal, Everything, Window, bind
from tests.ops.attention_cases import PADDINGS, PREDICATES, SCALE, Problem, bound, problem, solve
from tests.oracles import TOLERANCE, error

EXACT = TOLERANCE[torch.float64]


def by_hand(given: Problem) -> tuple[Tensor, Tensor]:
    """The pattern and z of every cell by the formulas of Vaswani 2017, with plain numbers."""
    n_rows, n_heads, n_queries, _ = given.q.shape
    n_keys, shared = given.k.shape[2], n_heads // given.k.shape[1]
    queries, keys = (p.rows(torch.device("cpu")) for p in (given.mask.queries, given.mask.keys))
    pattern = torch.zeros(n_rows, n_heads, n_queries, n_keys, dtype=torch.float64)
    z = torch.zeros(n_rows, n_heads, n_queries, given.v.shape[-1], dtype=torch.float64)
    for b in range(n_rows):
        for h in range(n_heads):
            for t in range(n_queries):
                i = queries[b % len(queries), t]
                weights = {}
                for s in range(n_keys):
                    j = keys[b % len(keys), s]
                    if j < 0 or not given.mask.mask.allow(i, j, torch.tensor(b)):
                        continue
                    x = SCALE * float(given.q[b, h, t] @ given.k[b, h // shared, s])
                    if given.softcap is not None:
                        x = given.softcap * math.tanh(x / given.softcap)
                    if given.bias is not None:
                        x += float(given.bias.term(torch.tensor(h), i, j))
                    weights[s] = math.exp(x)
                total = sum(weights.values()) + (math.exp(float(given.sinks[h])) if given.sinks is not None else 0)
                for s, weight in weights.items():
                    pattern[b, h, t, s] = weight / total
                    z[b, h, t] += weight / total * given.v[b, h // shared, s]
    return pattern, z


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("predicate", PREDICATES)
def test_reference_is_the_formula(predicate: str, padding: str) -> None:
    given = problem(bound(predicate, 4, 6, padding), d_value=5, with_="all")
    pattern, z = by_hand(given)
    options = {"scale": SCALE, "bias": given.bias, "softcap": given.softcap, "sinks_H": given.sinks}
    trace = traced(given.q, given.k, given.v, given.mask, **options)
    assert error(trace.pattern_BHTS, pattern) < EXACT
    assert error(trace.z_BHTV, z) < EXACT
    assert torch.equal(attention(given.q, given.k, given.v, given.mask, **options), trace.z_BHTV)
    assert torch.equal(trace.scores_BHTS == -math.inf, (pattern == 0))


@pytest.mark.parametrize("with_", ["plain", "softcap", "alibi", "relative bias"])
def test_patterns_sum_to_one_or_to_nothing(with_: str) -> None:
    given = problem(bound("causal", 6, 6, "padded"), with_=with_)
    pattern, z = by_hand(given)
    trace = traced(given.q, given.k, given.v, given.mask, scale=SCALE, bias=given.bias, softcap=given.softcap)
    assert error(trace.pattern_BHTS, pattern) < EXACT
    assert error(trace.z_BHTV, z) < EXACT
    sums = trace.pattern_BHTS.sum(-1)
    assert error(sums, given.mask.dense.any(-1).double().expand_as(sums)) < EXACT
    assert (sums == 0).any()


def test_gradients_are_the_slopes() -> None:
    given = problem(bound("all together", 4, 5, "padded"), with_="all")
    tensors = [x.requires_grad_() for x in (given.q, given.k, given.v, given.sinks, given.bias.table_NH)]

    def function(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, table: Tensor) -> Tensor:
        bias = RelativeBias(table, max_distance=16)
        return attention(q, k, v, given.mask, scale=SCALE, bias=bias, softcap=given.softcap, sinks_H=sinks)

    torch.autograd.gradcheck(function, tensors, fast_mode=True)


def test_a_row_with_nothing_to_see_is_zero_and_leaves_finite_gradients() -> None:
    for found in solve(attention, problem(bound("present", 5, 5)), torch.float32, backward=True):
        assert found.isfinite().all()
        assert (found[2] == 0).all()  # the third row of the batch sees nothing


def test_half_precision_is_summed_in_float32() -> None:
    q, k = torch.randn(1, 1, 4, 64).bfloat16(), torch.randn(1, 1, 4, 64).bfloat16()
    scores = score(q, k)
    assert scores.dtype == torch.float32
    assert error(scores, q.double() @ k.double().mT) < TOLERANCE[torch.float32]
    assert mix(normalise(scores), k).dtype == torch.bfloat16


def test_no_keys_at_all() -> None:
    q, nothing = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 0, 8)
    assert (attention(q, nothing, nothing, bind(Everything(), 3, 0), scale=1.0) == 0).all()


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    q = torch.zeros(1, 1, 100, 8)
    v = torch.eye(100)[None, None]
    z = attention(q, torch.zeros(1, 1, 100, 8), v, bind(Everything(), 100, 100), scale=1.0, dropout=0.25)
    assert abs(float((z == 0).float().mean()) - 0.25) < 0.02  # 10,000 cells: the deviation is 0.0043
    assert error(z[z > 0], torch.full_like(z[z > 0], 0.01 / 0.75)) < 1e-6


# ---- biases


def test_alibi_slopes_are_the_papers() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16)[:2].tolist() == pytest.approx([2**-0.5, 2**-1])
    # 12 heads: the 8 of 8 heads, then every other one of 16 (as the authors' code does)
    assert alibi_slopes(12).tolist() == pytest.approx(
        [2.0**-i for i in range(1, 9)] + [2 ** -(i + 0.5) for i in range(4)]
    )


def test_alibi_falls_with_distance() -> None:
    position = torch.arange(4)
    term = Alibi(torch.tensor([0.5, 2.0])).term(torch.tensor([1]), position[:, None], position[None])
    assert term.tolist() == [[-2.0 * abs(i - j) for j in range(4)] for i in range(4)]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_those_of_the_original(bidirectional: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 301)
    ours = relative_bucket(distance, 32, bidirectional, 128)
    assert torch.equal(ours, T5Attention._relative_position_bucket(distance, bidirectional, 32, 128))


# ---- cases


def test_h06_newest_query_sits_at_the_newest_key() -> None:
    """H06: with fewer queries than keys the causal mask is aligned at the end (pytorch #108108)."""
    assert bind(Causal(), 2, 5).dense[0, 0].tolist() == [[True] * 4 + [False], [True] * 5]
    assert bind(Causal(), 1, 4).dense.all()
    assert bind(Causal() & Window(2), 1, 4).dense[0, 0].tolist() == [[False, False, True, True]]
