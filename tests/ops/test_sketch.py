"""A bound that is to be proved is tested where it is tightest: rows and vectors that lie as badly as they can."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.ops.sketch import BLOCK, GROUP, Sketch, _padded, at_least, largest, sketch, upper_bounds

WIDTHS = [8, GROUP, 100, 640]


def of(w_VD: Tensor, x_ND: Tensor) -> Sketch:
    made = sketch(lambda start, stop: w_VD[start:stop], len(w_VD), x_ND)
    assert made is not None
    return made


def matrices(d: int) -> dict[str, Tensor]:
    """(V, D) of kinds that round badly."""
    rows = torch.randn(700, d)
    lone = torch.zeros(700, d)
    lone[torch.arange(700), torch.arange(700) % d] = 1000.0
    return {
        "ordinary": rows,
        "far from zero": rows + 50,
        "heavy tails": rows.exp() * rows.sign() * 10,
        "one large number a row": lone + 0.01 * rows,
        "all the same": torch.full((700, d), 0.3),
        "zeros": torch.zeros(700, d),
        "tiny": rows * 1e-20,
        "half types": rows.bfloat16(),
        "two levels": rows.sign() * 0.1,
    }


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("kind", list(matrices(8)))
def test_no_product_exceeds_its_bound(kind: str, d: int) -> None:
    w_VD = matrices(d)[kind]
    uneven_D = torch.rand(d).exp() ** 8
    x_ND = torch.cat(
        [
            torch.randn(3, d),
            torch.randn(3, d) * uneven_D,
            w_VD[:3].float(),
            torch.zeros(1, d),
            torch.randn(2, d).bfloat16().float() * 1e4,
        ]
    )
    made = of(w_VD, x_ND[4:5])
    # The worst vectors there are: along what the sketch leaves of a row, where Cauchy and Schwarz leave no room.
    x_ND = torch.cat([x_ND, left_by(made, w_VD)[:5], -left_by(made, w_VD)[5:8]])
    y_NV = x_ND.double() @ w_VD.double().T
    assert bool((upper_bounds(made, x_ND) >= y_NV).all())


def left_by(made: Sketch, w_VD: Tensor) -> Tensor:
    """What a sketch leaves of each row, read out of its kernel one place at a time."""
    places_DD = torch.eye(w_VD.shape[1])
    wide_DE = torch.cat([_padded(places_DD), _padded(places_DD[:, made.twice_K])], dim=1).bfloat16()
    told_DV = torch.ops.aten._weight_int4pack_mm_for_cpu(wide_DE, made.packed, GROUP, made.scales_GV2)
    return w_VD.float() - made.mean_D.float() - told_DV[:, : len(w_VD)].float().T


def test_the_bound_is_of_use() -> None:
    """Where a few places of the stream are large, nearly all rows are out."""
    w_VD = torch.randn(20000, 256) / 16
    x_D = torch.randn(256)
    x_D[:16] *= 15
    w_VD[77] = w_VD[77] * 0.9 + 0.1 * x_D / x_D.norm() * 8
    made = of(w_VD, x_D[None])
    bound_V = upper_bounds(made, x_D[None])[0]
    y_V = w_VD @ x_D
    assert int((bound_V >= y_V.max()).sum()) < 40
    assert made.nbytes < 0.22 * w_VD.nbytes + 4e5


def test_a_vector_that_is_the_remainder_itself() -> None:
    """x = r_v: the product is what the sketch says and all of |r_v| |x| more. A bound without it would be broken."""
    w_VD = torch.randn(300, 256)
    made = of(w_VD, torch.randn(1, 256))
    r_VD = left_by(made, w_VD)
    for v in range(20):
        x_D = r_VD[v] * 100
        bound, y = float(upper_bounds(made, x_D[None])[0, v]), float(w_VD[v].double() @ x_D.double())
        assert y <= bound <= y + 0.2 * float(w_VD[v].norm() * x_D.norm())


def test_rows_are_told_in_order() -> None:
    for n in (10, BLOCK, 5 * BLOCK + 3):
        bound_V = torch.randn(n)
        least = float(bound_V.median())
        assert at_least(bound_V, least).tolist() == (bound_V >= least).nonzero()[:, 0].tolist()
        assert int(largest(bound_V, 1)) == int(bound_V.argmax())
        found = largest(bound_V, 7)
        assert len(set(found.tolist())) == 7 and int(bound_V.argmax()) in found


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_sketch(bad: float) -> None:
    w_VD = torch.randn(100, 40)
    w_VD[33, 5] = bad
    assert sketch(lambda start, stop: w_VD[start:stop], 100, torch.randn(1, 40)) is None
    made = of(torch.randn(100, 40), torch.randn(1, 40))
    assert bool(upper_bounds(made, torch.full((1, 40), bad)).isnan().any())
