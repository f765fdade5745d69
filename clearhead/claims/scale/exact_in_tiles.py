"""Attention in tiles: the same numbers, memory that grows along a line, and less to move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import linear_regression
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.costs.live import Live
from clearhead.costs.traffic import Heads, standard, tiled
from clearhead.ops.backends import BACKENDS
from clearhead.ops.masks import Causal, Everything, Mask, bind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_HEAD = 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
REFERENCE_UP_TO = 4096
"""Tokens; there its matrices take a quarter of a gigabyte."""
FAST_MEMORIES = tuple(2**power for power in range(14, 20))
"""In numbers: 32 KiB to 1 MiB of halves."""
FAR = 2**20
"""Tokens of a text that takes many blocks even in the largest of them."""
A100 = 51_200
"""100 kB of halves."""


def measure(run: Run) -> Measured:
    lengths = LENGTHS[:4] if run.quick else LENGTHS
    tick = run.progress(2 + len(lengths), "lengths")
    off = {}
    for dtype in (torch.float32, torch.float64):
        off[dtype] = max(difference(mask, dtype, run.seed) for mask in (Causal(), Everything()))
        tick()
    peaks: dict[str, list[int]] = {"tiled": [], "reference": []}
    for n in lengths:
        for name, found in peaks.items():
            if name == "tiled" or n <= REFERENCE_UP_TO:
                found.append(peak(name, n, run.seed))
        tick()
    head = Heads(1, D_HEAD, D_HEAD)
    moved = [tiled(FAR, FAR, head, size) for size in FAST_MEMORIES]
    saved = {n: standard(n, n, head) / tiled(n, n, head, A100) for n in (1024, 4096, 16384)}
    return Measured(
        values={
            "greatest difference in float32": off[torch.float32],
            "greatest difference in float64": off[torch.float64],
            "exponent of memory in tiles": growth(lengths, peaks["tiled"]),
            "exponent of memory of the reference": growth(lengths, peaks["reference"]),
            f"times the memory of the reference at {REFERENCE_UP_TO:,} tokens": peaks["reference"][-1]
            / peaks["tiled"][lengths.index(REFERENCE_UP_TO)],
            "exponent of traffic in fast memory": slope(FAST_MEMORIES, moved),
            **{f"times less moved at {n:,} tokens": ratio for n, ratio in saved.items()},
        },
        series={"n": list(lengths), "peaks": peaks, "fast": list(FAST_MEMORIES), "moved": moved},
    )


def inputs(n: int, n_heads: int, dtype: torch.dtype, seed: int) -> list[Tensor]:
    """Queries, keys and values, and the gradient that comes back."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, n_heads, n, D_HEAD)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(4)]
    return [*(x.requires_grad_() for x in drawn[:3]), drawn[3]]


def attended(name: str, given: list[Tensor], mask: Mask) -> list[Tensor]:
    """What a backend gives, and its three gradients."""
    q, k, v, upstream = given
    z = BACKENDS[name].function(q, k, v, bind(mask, q.shape[2], k.shape[2]), scale=D_HEAD**-0.5)
    return [z.detach(), *torch.autograd.grad(z, (q, k, v), upstream)]


def difference(mask: Mask, dtype: torch.dtype, seed: int) -> float:
    """Between tiles and the steps written out: the greatest, over outputs and gradients, in a text that is no whole
    number of tiles.
    """
    given = inputs(1000, 2, dtype, seed)
    ours, theirs = attended("tiled", given, mask), attended("reference", given, mask)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(ours, theirs, strict=True))


def peak(name: str, n: int, seed: int) -> int:
    """Bytes of the tensors that are there at once, at most, beside what is given: forward and backward."""
    given = inputs(n, 1, torch.float32, seed)
    live = Live(given)
    with live:
        attended(name, given, Causal())
    return live.peak


def growth(n: Sequence[int], peaks: Sequence[int]) -> float:
    """The exponent of what each doubling adds: the room for tiles, which is always the same, is no part of it."""
    added = [b - a for a, b in pairwise(peaks)]
    return slope(n[: len(added)], added)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    logs = torch.tensor([list(x), list(y)], dtype=torch.float64).log().tolist()
    return float(linear_regression(*logs).slope)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (left, right) = figures.panels(2, width=5.2)
    series, plain = results[0].series, figures.styles()
    for name, says in (("reference", "the matrix written out"), ("tiled", "in tiles")):
        found = [x / 2**20 for x in series["peaks"][name]]
        left.plot(series["n"][: len(found)], found, label=says, **next(plain))
    left.set_xlabel("tokens")
    left.set_ylabel("memory at its peak, MiB")
    moved = [2 * x / 1e9 for x in series["moved"]]
    right.plot(series["fast"], moved, label="by the counts of the algorithm", **next(plain))
    line = [moved[0] * series["fast"][0] / x * 0.7 for x in series["fast"]]
    right.plot(series["fast"], line, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label="mark: slope -1")
    right.set_xlabel("fast memory, KiB, at 2 bytes a number")
    right.set_ylabel("GB moved, one head, 1,048,576 tokens")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter("")
        axes.legend()
    left.set_xticks(series["n"], [f"{x:,}" for x in series["n"]])
    right.set_xticks(series["fast"], [f"{2 * x // 2**10:,}" for x in series["fast"]])
    return figure


PAPER = "as counted for d = 64 and 100 kB of halves; a memory that is larger against the head saves more"

CLAIM = Claim(
    says="FlashAttention is exact. It works in tiles held in fast memory and never makes the n x n matrix, so its "
    "memory is linear in n, and what it moves falls as the fast memory grows.",
    source=Source(statements=(60,), paper="Dao 2022, FlashAttention, theorems 1 and 2, algorithms 0, 1 and 4"),
    how="The backend `tiled` against the reference, which writes the matrix out: outputs and all gradients of two "
    "heads of 64 over 1,000 tokens, with a causal mask and without. Memory is the bytes of all tensors that are there "
    "at once in a forward and a backward pass over 512 to 16,384 tokens (the reference up to 4,096, as a quick run); "
    "its exponent is that of what each doubling of the text adds, so that the room of one tile is left out. What is "
    "moved is no measurement: the library's formulas count what algorithms 0 and 1 read and write.",
    marks=(
        Mark(
            of="greatest difference in float32",
            high=1e-6,
            why="sums in another order differ by a few units in the last place, some 1e-7",
        ),
        Mark(
            of="greatest difference in float64",
            high=1e-12,
            why="the same in float64; a method that approximates would stay where it was",
        ),
        Mark(of="exponent of memory in tiles", high=1.1, why="twice the text, twice the memory; a tenth is left over"),
        Mark(
            of="exponent of memory of the reference",
            low=1.8,
            why="its matrices take n² numbers, and what is linear is small beside them",
        ),
        Mark(
            of="exponent of traffic in fast memory",
            low=-1.1,
            high=-0.9,
            why="N² d² / M: twice the fast memory halves the blocks of keys, for each of which all queries come in",
        ),
        Mark(of="times less moved at 1,024 tokens", low=3.35, high=3.45, why=f"3.4, {PAPER}"),
        Mark(of="times less moved at 4,096 tokens", low=3.95, high=4.05, why=f"4.0, {PAPER}"),
        Mark(of="times less moved at 16,384 tokens", low=4.1, high=4.2, why=f"4.15, {PAPER}"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.3),
)
