"""Plain weights made into blocks of 8 or 4 bits, in the layouts of GGUF files.

Q8_0 rounds to the nearest of 255 steps of the largest of 32. The four-bit kinds look for the scale that loses least:
of a few around the one that spans the block, that with the smallest sum of squared errors, large weights counting more.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.ops.blocks import SIZES

CHUNK = 2**21
"""Weights made into blocks at a time."""
TRIED = torch.linspace(0.75, 1.1, 15)
"""Scales that are tried, as parts of the one that spans the block."""


def quantise(weight: Float[Tensor, "*rows i"], kind: str) -> UInt8[Tensor, "*rows c"]:
    """Rows of weights, which are finite, as rows of blocks: bytes of `kind`, one of MAKE.

    Raises:
        ClearheadError: a row is not whole blocks.
    """
    size = SIZES[kind]
    if weight.shape[-1] % size.block:
        raise ClearheadError(f"rows of {weight.shape[-1]} weights are not whole blocks of {kind} ({size.block} each)")
    flat = weight.reshape(-1, size.block)
    out = torch.empty(flat.shape[0], size.nbytes, dtype=torch.uint8, device=weight.device)
    step = CHUNK // size.block
    for start in range(0, flat.shape[0], step):
        out[start : start + step] = MAKE[kind](flat[start : start + step].float())
    return out.view(*weight.shape[:-1], -1)


def _bytes_of(half: Tensor) -> Tensor:
    """Half-precision numbers (n, k) as bytes (n, 2 k)."""
    return half.contiguous().view(torch.uint8)


def _inverse(x: Tensor) -> Tensor:
    """1 / x, and 0 for 0."""
    return torch.where(x == 0, 0, 1 / x)


def _q8_0(x_N32: Tensor) -> Tensor:
    d_N1 = (x_N32.abs().amax(dim=1, keepdim=True) / 127).half()
    q = (x_N32 * _inverse(d_N1.float())).round_().clamp_(-127, 127).to(torch.int8)
    return torch.cat([_bytes_of(d_N1), q.view(torch.uint8)], dim=1)


def _q4_0(x_N32: Tensor) -> Tensor:
    """Steps -8 to 7: the weight that is largest in size becomes -8."""
    largest_N1 = x_N32.gather(1, x_N32.abs().argmax(dim=1, keepdim=True))
    weight = x_N32.square()
    best: tuple[Tensor, Tensor] | None = None
    for part in TRIED:
        d_N1 = (largest_N1 / -8 * part).half()
        q = (x_N32 * _inverse(d_N1.float())).round_().clamp_(-8, 7)
        error_N1 = ((q * d_N1.float() - x_N32).square() * weight).sum(dim=1, keepdim=True)
        best = (d_N1, error_N1) if best is None else _better(best, d_N1, error_N1)
    assert best is not None
    d_N1 = best[0]
    q = (x_N32 * _inverse(d_N1.float())).round_().clamp_(-8, 7).add_(8).to(torch.uint8)
    return torch.cat([_bytes_of(d_N1), q[:, :16] | q[:, 16:] << 4], dim=1)


def _better(best: tuple[Tensor, Tensor], candidate: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(error < best[1], candidate, best[0]), torch.minimum(error, best[1])


def _q4_k(x_NW: Tensor) -> Tensor:
    """Eight groups of 32: a step and a least value each, both in 6 bits times a half-precision number of the block."""
    x_N8G = x_NW.view(-1, 8, 32)
    least = (-x_N8G.amin(dim=2)).clamp_(min=0)
    step = (x_N8G.amax(dim=2) + least).clamp_(min=0) / 15
    weight = x_N8G.square() + x_N8G.square().mean(dim=2, keepdim=True)
    best: tuple[Tensor, Tensor] | None = None
    for part in TRIED:
        tried = step * part
        q = ((x_N8G + least[..., None]) * _inverse(tried)[..., None]).round_().clamp_(0, 15)
        error = ((q * tried[..., None] - least[..., None] - x_N8G).square() * weight).sum(dim=2)
        best = (tried, error) if best is None else _better(best, tried, error)
    assert best is not None
    d, six = _six_bits(best[0])
    m, six_m = _six_bits(least)
    step, least = six.float() * d.float(), six_m.float() * m.float()
    q = ((x_N8G + least[..., None]) * _inverse(step)[..., None]).round_().clamp_(0, 15).to(torch.uint8)
    low = torch.cat([six[:, :4] | (six[:, 4:] >> 4) << 6, six_m[:, :4] | (six_m[:, 4:] >> 4) << 6], dim=1)
    high = (six[:, 4:] & 15) | (six_m[:, 4:] & 15) << 4
    return torch.cat([_bytes_of(d), _bytes_of(m), low, high, (q[:, ::2] | q[:, 1::2] << 4).flatten(1)], dim=1)


def _six_bits(x_N8: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of 0 and more as 6 bits times one half-precision number."""
    d_N1 = (x_N8.amax(dim=1, keepdim=True) / 63).half()
    return d_N1, (x_N8 * _inverse(d_N1.float())).round_().clamp_(0, 63).to(torch.uint8)


MAKE: dict[str, Callable[[Tensor], Tensor]] = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_K": _q4_k}
"""Blocks of float32 weights (n x block) to bytes (n x bytes of a block)."""
