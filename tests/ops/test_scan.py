"""Selective scans: the loops against the papers' formulas, and the fast forms against the loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.ops import scan
from clearhead.ops.scan import (
    head_scan,
    head_states,
    head_step,
    read_head_states,
    read_states,
    segment_sums,
    selective_scan,
    selective_states,
    selective_step,
)
from tests.oracles import error

LENGTHS = [1, 2, 3, 17, 64, 65, 150]


def channels(n_tokens: int, *, n_rows: int = 2, width: int = 40, d_state: int = 5, size: float = 1.0) -> list[Tensor]:
    """x, dt, A, B, C and a state to begin with."""
    dt = F.softplus(size * torch.randn(n_rows, n_tokens, width).double())
    A = -torch.exp(3 * torch.rand(width, d_state).double())
    x, h = torch.randn(n_rows, n_tokens, width).double(), torch.randn(n_rows, width, d_state).double()
    B, C = (torch.randn(n_rows, n_tokens, d_state).double() for _ in range(2))
    return [x, dt, A, B, C, h]


def heads(n_tokens: int, *, groups: int = 2, size: float = 1.0) -> list[Tensor]:
    dt = F.softplus(size * torch.randn(2, n_tokens, 6).double())
    A = -torch.exp(3 * torch.rand(6).double())
    x, h = torch.randn(2, n_tokens, 6, 5).double(), torch.randn(2, 6, 5, 4).double()
    B, C = (torch.randn(2, n_tokens, groups, 4).double() for _ in range(2))
    return [x, dt, A, B, C, h]


def starts(n_tokens: int) -> Tensor:
    return torch.rand(2, n_tokens) < 0.1


def by_loop(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, start: Tensor | None = None):
    """Both kinds' loops: what is read, and the last state."""
    if A.ndim == 2:
        states = selective_states(x, dt, A, B, h, start)
        return read_states(states, C), states[:, -1]
    states = head_states(x, dt, A, B, h, start)
    return read_head_states(states, C), states[:, -1]


def fast(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, start: Tensor | None = None):
    return (selective_scan if A.ndim == 2 else head_scan)(x, dt, A, B, C, h, start)


MAKERS = pytest.mark.parametrize("make", [channels, heads])


# ---- the loops


def test_loop_is_the_formula() -> None:
    """y_t = sum over s <= t of C_t (product of exp(dt_r A) for r from s + 1 to t) dt_s B_s x_s, number by number."""
    x, dt, A, B, C, h = channels(6, width=3, d_state=2)
    y, last = by_loop(x, dt, A, B, C, h)
    for b in range(2):
        for f in range(3):
            for t in range(6):
                total = 0.0
                for n in range(2):
                    kept = h[b, f, n] * math.exp(sum(dt[b, r, f] * A[f, n] for r in range(t + 1)))
                    for s in range(t + 1):
                        decay = math.exp(sum(dt[b, r, f] * A[f, n] for r in range(s + 1, t + 1)))
                        kept += decay * dt[b, s, f] * B[b, s, n] * x[b, s, f]
                    total += C[b, t, n] * kept
                    if t == 5:
                        assert abs(last[b, f, n] - kept) < 1e-12
                assert abs(y[b, t, f] - total) < 1e-12


def test_scan_of_heads_is_masked_attention() -> None:
    """Dao and Gu 2024, section 3: y = (L * C B^T) (dt x) with L[t, s] = exp(A sum of dt from s + 1 to t)."""
    x, dt, A, B, C, h = heads(9)
    y, _ = by_loop(x, dt, A, B, C, torch.zeros_like(h))
    for b in range(2):
        for i in range(6):
            total = (dt[b, :, i] * A[i]).cumsum(0)
            mask = torch.exp(total[:, None] - total).tril()
            g = i // 3
            expected = (mask * (C[b, :, g] @ B[b, :, g].T)) @ (dt[b, :, i, None] * x[b, :, i])
            assert error(y[b, :, i], expected) <= 1e-12


def test_scan_of_heads_is_that_of_channels() -> None:
    """With one decay a head, channels of a head are channels with equal decays."""
    x, dt, A, B, C, h = heads(11, groups=1)
    y, last = by_loop(x, dt, A, B, C, h)
    A_FN = A.repeat_interleave(5)[:, None].expand(30, 4).contiguous()
    same = by_loop(x.flatten(2), dt.repeat_interleave(5, dim=2), A_FN, B[:, :, 0], C[:, :, 0], h.flatten(1, 2))
    assert error(y.flatten(2), same[0]) <= 1e-12
    assert error(last.flatten(1, 2), same[1]) <= 1e-12


# ---- the fast forms


@MAKERS
@pytest.mark.parametrize("n_tokens", LENGTHS)
@pytest.mark.parametrize("restarts", [False, True])
def test_chunks_equal_the_loop_and_so_do_gradients(make, n_tokens: int, restarts: bool, monkeypatch) -> None:
    # Small tiles and segments, so that the text spans several of each.
    monkeypatch.setattr(scan, "TILE", 2**12)
    monkeypatch.setattr(scan, "SEGMENT", 48)
    given = [part.requires_grad_() for part in make(n_tokens)]
    start = starts(n_tokens) if restarts else None
    expected, found = by_loop(*given, start), fast(*given, start)
    for a, b in zip(found, expected, strict=True):
        assert error(a, b) <= 1e-12
    weights = [torch.randn_like(b) for b in expected]
    gradients = [
        torch.autograd.grad(sum((out * w).sum() for out, w in zip(pair, weights, strict=True)), given)
        for pair in (found, expected)
    ]
    for a, b in zip(*gradients, strict=True):
        assert error(a, b) <= 1e-12


@MAKERS
def test_gradients_are_those_of_finite_differences(make) -> None:
    given = [part.requires_grad_() for part in make(5)]
    torch.autograd.gradcheck(lambda *parts: fast(*parts), given, fast_mode=True)


@MAKERS
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1000.0])
def test_decays_of_any_size(make, size: float) -> None:
    """dt A from next to nothing to thousands, in one text: no overflow, no loss, finite gradients."""
    x, dt, A, B, C, h = make(130)
    dt = dt * torch.exp(torch.randn_like(dt) * 3) * size
    given = [part.float().requires_grad_() for part in (x, dt, A, B, C, h)]
    y, last = fast(*given)
    wide = by_loop(*(part.detach().double() for part in given))
    assert error(y, wide[0]) <= 1e-5
    assert error(last, wide[1]) <= 1e-5
    (y.square().sum() + last.square().sum()).backward()
    assert all(part.grad.isfinite().all() for part in given)


@MAKERS
def test_one_step(make) -> None:
    x, dt, A, B, C, h = make(1)
    step = selective_step if make is channels else head_step
    y, state = step(x[:, 0], dt[:, 0], A, B[:, 0], C[:, 0], h)
    expected, last = by_loop(x, dt, A, B, C, h)
    assert error(y, expected[:, 0]) <= 1e-12
    assert error(state, last) <= 1e-12


@MAKERS
def test_a_text_in_pieces(make) -> None:
    x, dt, A, B, C, h = make(90)
    whole, last = fast(x, dt, A, B, C, h)
    pieces = []
    for piece in (slice(0, 1), slice(1, 40), slice(40, 41), slice(41, 90)):
        y, h = fast(x[:, piece], dt[:, piece], A, B[:, piece], C[:, piece], h)
        pieces.append(y)
    assert error(torch.cat(pieces, dim=1), whole) <= 1e-12
    assert error(h, last) <= 1e-12


@MAKERS
def test_a_step_of_zero_leaves_the_state_alone(make) -> None:
    x, dt, A, B, C, h = make(40)
    dt[:, 10:30] = 0.0
    _, last = fast(x, dt, A, B, C, h)
    kept = [*range(10), *range(30, 40)]
    _, without = fast(x[:, kept], dt[:, kept], A, B[:, kept], C[:, kept], h)
    assert error(last, without) <= 1e-12


def test_segment_sums() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    assert segment_sums(x).tril().tolist() == [[0, 0, 0], [2, 0, 0], [5, 3, 0]]
    large = torch.tensor([-1e6, -1e-3, -2e-3])
    assert float(segment_sums(large)[2, 0]) == pytest.approx(-3e-3, rel=1e-5)


def test_compiled(without_shape_checks: None) -> None:
    given = [part.float() for part in channels(20)]
    compiled = torch.compile(selective_scan, backend="eager", fullgraph=True)
    assert error(compiled(*given)[0], selective_scan(*given)[0]) <= 1e-5
