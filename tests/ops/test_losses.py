"""Losses as sums over real targets: label smoothing, ignored rows, and the chunked one against the plain one."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.errors import ClearheadError
from clearhead.ops import losses
from clearhead.ops.losses import IGNORE, cross_entropy_sum, distillation_sum, linear_cross_entropy_sum
from tests.oracles import TOLERANCE, error

N, D, V = 13, 6, 11


# ---- label smoothing and ignored positions (H11)

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
TARGETS = torch.tensor([0, 1, IGNORE])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_uniform_part_never_counts_padding(dtype):
    total, n = cross_entropy_sum(LOGITS.to(dtype), TARGETS, 0.1)
    assert int(n) == 2
    assert float(total / n) == pytest.approx(0.477312, abs=5e-7)


def test_more_padding_changes_nothing():
    padding = torch.full((5, 3), float("inf"), dtype=torch.float64)
    padding[1] = float("-inf")
    padding[2] = float("nan")
    padding[3] = torch.tensor([3.0, -2.0, 0.5])
    logits = torch.cat([LOGITS, padding]).requires_grad_()
    total, n = cross_entropy_sum(logits, torch.cat([TARGETS, torch.full((5,), IGNORE)]), 0.1)
    assert (float(total.detach()), int(n)) == (float(cross_entropy_sum(LOGITS, TARGETS, 0.1)[0]), 2)
    total.backward()
    assert not logits.grad[2:].any() and logits.grad[:2].all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_where_all_is_ignored_there_is_no_loss_and_no_gradient(smoothing):
    logits = LOGITS.clone().requires_grad_()
    total, n = cross_entropy_sum(logits, torch.full((3,), IGNORE), smoothing)
    total.backward()
    assert (float(total.detach()), int(n)) == (0.0, 0) and not logits.grad.any()

    x, weight = torch.randn(3, D).double().requires_grad_(), torch.randn(V, D).double().requires_grad_()
    total, n = linear_cross_entropy_sum(x, weight, None, torch.full((3,), IGNORE), label_smoothing=smoothing)
    total.backward()
    assert (float(total.detach()), int(n)) == (0.0, 0) and not x.grad.any() and not weight.grad.any()


def test_smoothing_is_a_mixture_with_the_uniform_distribution():
    logits, targets = torch.randn(2, 4, V).double(), torch.randint(V, (2, 4))
    log_p = logits - logits.exp().sum(-1, keepdim=True).log()
    wanted = 0.7 * torch.nn.functional.one_hot(targets, V).double() + 0.3 / V
    total, n = cross_entropy_sum(logits, targets, 0.3)
    assert error(total, -(wanted * log_p).sum()) <= 1e-12 and int(n) == 8


def test_another_id_can_be_ignored():
    targets = torch.tensor([0, 1, 2])
    assert cross_entropy_sum(LOGITS, targets, 0.1, ignore=2)[0] == cross_entropy_sum(LOGITS, TARGETS, 0.1)[0]
    x, weight = torch.randn(3, D).double(), torch.randn(3, D).double()
    two, n = linear_cross_entropy_sum(x, weight, None, targets, ignore=2)
    assert int(n) == 2 and error(two, cross_entropy_sum(x[:2] @ weight.T, targets[:2])[0]) <= 1e-12


def test_half_precision_is_summed_in_float32():
    total, _ = cross_entropy_sum(LOGITS.bfloat16(), TARGETS)
    assert total.dtype == torch.float32


# ---- chunks

HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "scale": {"scale": 0.6},
    "softcap": {"softcap": 1.5},
    "smoothing": {"smoothing": 0.1},
    "all": {"bias": True, "scale": 0.6, "softcap": 1.5, "smoothing": 0.1},
}


def both(head, *, chunk, dtype, ignored=True, factor=1.0, seed=0):
    """Loss and gradients of the embedding (which is also the unembedding), a layer between, and the bias: chunked, and
    by the formula with all logits.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    table, middle, bias = draw(V, D), draw(D, D), draw(V)
    tokens, targets = (torch.randint(V, (N,), generator=generator) for _ in range(2))
    if ignored:
        targets[[0, 5, 6]] = IGNORE
    found = []
    for chunked in (True, False):
        leaves = [t.clone().requires_grad_() for t in (table, middle, bias)]
        weight_VD, middle_DD, bias_V = leaves
        x_ND = torch.tanh(weight_VD[tokens] @ middle_DD)
        smoothing, scale, softcap = head.get("smoothing", 0.0), head.get("scale", 1.0), head.get("softcap")
        bias_V = bias_V if head.get("bias") else None
        if chunked:
            total, n = linear_cross_entropy_sum(
                x_ND, weight_VD, bias_V, targets, scale=scale, softcap=softcap, label_smoothing=smoothing, chunk=chunk
            )
        else:
            logits = (x_ND @ weight_VD.T) * scale + (0.0 if bias_V is None else bias_V)
            logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
            total, n = cross_entropy_sum(logits, targets, smoothing)
        (total * factor).backward()
        found.append([total, n, *(leaf.grad for leaf in leaves if leaf.grad is not None)])
    return found


@pytest.mark.parametrize("chunk", [1, 4, 13, None])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunked_is_plain(head, chunk, dtype):
    chunked, plain = both(head, chunk=chunk, dtype=dtype)
    assert len(chunked) == len(plain) == (5 if head.get("bias") else 4)
    assert max(error(a, b) for a, b in zip(chunked, plain, strict=True)) <= TOLERANCE[dtype]


def test_gradients_grow_with_what_is_above():
    chunked, plain = both(HEADS["all"], chunk=5, dtype=torch.float64, factor=-0.37)
    assert max(error(a, b) for a, b in zip(chunked, plain, strict=True)) <= 1e-12


@pytest.mark.parametrize("multiplies", [True, False], ids=["with instructions for it", "without"])
def test_half_precision_under_autocast_and_by_itself(multiplies, monkeypatch):
    """A processor that can't multiply halves does it in float32; under autocast nothing is rounded then."""
    monkeypatch.setattr(losses, "multiplies", lambda dtype: multiplies)
    x, weight = torch.randn(N, D).requires_grad_(), torch.randn(V, D).requires_grad_()
    targets = torch.randint(V, (N,))
    exact, _ = cross_entropy_sum(x @ weight.T, targets)
    wanted = torch.autograd.grad(exact, (x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = linear_cross_entropy_sum(x, weight, None, targets, chunk=4)
    found = torch.autograd.grad(total, (x, weight))
    assert total.dtype == found[0].dtype == found[1].dtype == torch.float32
    worst = max(error(a, b) for a, b in zip((total, *found), (exact, *wanted), strict=True))
    if multiplies:
        assert TOLERANCE[torch.float32] < worst <= TOLERANCE[torch.bfloat16]
    else:
        assert worst <= TOLERANCE[torch.float32]

    halves = [t.detach().bfloat16().requires_grad_() for t in (x, weight)]
    total, _ = linear_cross_entropy_sum(*halves, None, targets, chunk=4)
    found = torch.autograd.grad(total, halves)
    assert total.dtype == torch.float32 and found[0].dtype == found[1].dtype == torch.bfloat16
    assert max(error(a, b) for a, b in zip(found, wanted, strict=True)) <= TOLERANCE[torch.bfloat16]


def test_gradients_are_taken_only_where_they_are_wanted():
    x, weight, targets = torch.randn(N, D), torch.randn(V, D), torch.randint(V, (N,))
    assert not linear_cross_entropy_sum(x, weight, None, targets)[0].requires_grad
    with torch.no_grad():
        assert not linear_cross_entropy_sum(x, weight.clone().requires_grad_(), None, targets)[0].requires_grad
    x.requires_grad_()
    linear_cross_entropy_sum(x, weight, None, targets)[0].backward()
    assert x.grad.any() and weight.grad is None


def test_gradients_are_given_once():
    x, targets = torch.randn(N, D).requires_grad_(), torch.randint(V, (N,))
    total, _ = linear_cross_entropy_sum(x, torch.randn(V, D), None, targets)
    total.backward(retain_graph=True)
    with pytest.raises(ClearheadError, match="once"):
        total.backward()


class Largest(TorchDispatchMode):
    """The size of the largest tensor that anything returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return out


def test_the_logits_of_all_rows_are_never_there():
    x, weight = torch.randn(96, 8).requires_grad_(), torch.randn(500, 8).requires_grad_()
    targets = torch.randint(500, (96,))
    with Largest() as plain:
        cross_entropy_sum(x @ weight.T, targets)[0].backward()
    with Largest() as chunked:
        linear_cross_entropy_sum(x, weight, None, targets, chunk=16)[0].backward()
    assert plain.numbers == 96 * 500
    assert chunked.numbers == 16 * 500


@pytest.mark.parametrize(("n_words", "rows"), [(50257, 667), (2**18, 128), (2**25, 1)])
def test_rows_at_once_are_few_enough_for_memory(n_words, rows):
    assert losses.rows_at_once(n_words, 4) == rows
    assert rows * n_words * 4 <= losses.HELD or rows == 1
    assert losses.rows_at_once(n_words, 2) in (2 * rows, 2 * rows + 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_certain_word_costs_next_to_nothing_and_an_impossible_one_much(dtype):
    """The loss is exact far from the middle, where probabilities are 1, or too small to be numbers."""
    x = torch.tensor([[40.0], [-40.0], [300.0]], dtype=dtype)
    weight = torch.tensor([[1.0], [0.0]], dtype=dtype)
    for row, wanted in zip(x, (4.248354255291589e-18, 40.0, 0.0), strict=True):
        total, _ = linear_cross_entropy_sum(row[None], weight, None, torch.tensor([0]))
        assert float(total) == pytest.approx(wanted, abs=1e-6 if dtype == torch.float32 else 1e-15)
    total, _ = linear_cross_entropy_sum(x[2:], weight, None, torch.tensor([1]))
    assert float(total) == pytest.approx(300.0)


# ---- distillation


def test_distillation_is_the_divergence_at_a_temperature():
    ours, theirs = torch.randn(N, V).double().requires_grad_(), torch.randn(N, V).double()
    p, q = (torch.softmax(t.detach() / 3, -1) for t in (theirs, ours))
    total = distillation_sum(ours, theirs, 3.0)
    assert error(total, 9 * (p * (p / q).log()).sum()) <= 1e-12
    total.backward()
    assert error(ours.grad, 3 * (q - p)) <= 1e-12
    assert abs(float(distillation_sum(theirs, theirs, 2.0))) <= 1e-12
