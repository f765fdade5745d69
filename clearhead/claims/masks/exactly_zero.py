"""What a mask hides has a weight of exactly zero, and gets a gradient of exactly zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.lens import look
from clearhead.ops.backends import attend
from clearhead.ops.masks import Around, BoundMask, Causal, Everything, Mask, Positions, Window, bind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_KEYS, N_QUERIES, N_HEADS = 24, 10, 2
BACKENDS = ("reference", "tiled", "sdpa", "auto")
COMPILED = "flex"
"""A backend that compiles a kernel first, which takes a minute: for full runs, and forward only."""
FAR = 300.0
"""By so much queries and keys are longer than usual where scores are to be extreme."""
Size = Literal["usual", "far apart", "far below"]
"""Of scores. Far apart, a hidden one may be 10^5 above the others, and taking a large number off it is not enough; far
below zero, all that may be seen are at -10^5, and a large negative number in a hidden one's place is not low enough."""
TEXT = "Nobody can look at what comes later."


@dataclass(frozen=True)
class Case:
    """A mask with its positions, and by a formula of the claim's own which cells it leaves, (B or 1, 1, T, S)."""

    name: str
    mask: BoundMask
    seen: Tensor


def cases() -> list[Case]:
    """Ten queries at the end of 24 keys, as when a text goes on."""
    ahead = N_KEYS - N_QUERIES
    i_T1, j_S = torch.arange(N_QUERIES)[:, None] + ahead, torch.arange(N_KEYS)
    formulas: dict[str, tuple[Mask, Tensor]] = {
        "causal": (Causal(), j_S <= i_T1),
        "causal, window of 4": (Causal() & Window(4), (j_S <= i_T1) & (i_T1 - j_S < 4)),
        "2 to either side": (Around(2), (i_T1 - j_S).abs() <= 2),
    }
    bound = [Case(name, bind(mask, N_QUERIES, N_KEYS), seen[None, None]) for name, (mask, seen) in formulas.items()]
    # The first row is padded on the left by 7 slots; there a causal query of padding may see nothing at all.
    padded = torch.stack([(torch.arange(N_KEYS) - 7).clamp(min=-1), torch.arange(N_KEYS)])
    places = Positions(rows_BT=padded)
    there = (padded >= 0)[:, None, None, :]
    square = torch.arange(N_KEYS)[:, None] >= j_S
    bound.append(
        Case("padding", BoundMask(Everything(), places, places, torch.device("cpu")), there.expand(-1, 1, N_KEYS, -1))
    )
    bound.append(Case("causal, padding", BoundMask(Causal(), places, places, torch.device("cpu")), there & square))
    return bound


def measure(run: Run) -> Measured:
    backends = BACKENDS if run.quick else (*BACKENDS, COMPILED)
    tick = run.progress(len(backends) * len(cases()), "masks")
    found: dict[str, list[float]] = {}
    by_case: dict[str, dict[str, float]] = {}
    for backend in backends:
        for case in cases():
            numbers = look_at(case, backend, run.seed)
            by_case.setdefault(backend, {})[case.name] = numbers["largest hidden weight"]
            for name, number in numbers.items():
                found.setdefault(name, []).append(number)
            tick()
    values = {name: max(numbers) for name, numbers in found.items()}
    return Measured(
        values=values | {"clear-gpt, largest weight on what comes later": ahead_in_a_model()},
        series={"hidden": by_case, "pattern": pattern(cases()[0], "auto", "usual", run.seed)[0, 0].tolist()},
    )


def look_at(case: Case, backend: str, seed: int) -> dict[str, float]:
    """The largest numbers where none should be, of one backend with one mask."""
    sizes = torch.stack([pattern(case, backend, size, seed) for size in get_args(Size)])
    usual, seen = sizes[0], case.seen.expand_as(sizes)
    alive = case.seen.any(dim=-1).expand(sizes.shape[:-1])
    numbers = {
        "largest hidden weight": float(sizes.masked_fill(seen, 0.0).abs().max()),
        "cells that are not as the formula has them": float(((usual > 0) != seen[0]).sum()),
        "rows that see something, farthest from a sum of 1": float((sizes.sum(dim=-1) - 1)[alive].abs().max()),
        "rows that see nothing, largest output": float(sizes.masked_fill(alive[..., None], 0.0).abs().max()),
    }
    if backend != COMPILED:
        numbers["largest gradient of what nobody sees"] = hidden_gradient(case, backend, seed)
    return numbers


def pattern(case: Case, backend: str, size: Size, seed: int) -> Tensor:
    """The weights themselves, of any backend: what it mixes are the unit vectors, so that each weight comes out."""
    q, k, _ = drawn(case, size, seed)
    units = torch.eye(N_KEYS).expand(*k.shape[:2], -1, -1).contiguous()
    with torch.no_grad():
        return attend(q, k, units, case.mask, backend=backend, scale=1 / math.sqrt(N_KEYS))


def drawn(case: Case, size: Size, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, as wide as there are keys."""
    generator = torch.Generator().manual_seed(seed)
    n_rows, n_queries = case.seen.shape[0], case.seen.shape[2]
    q = torch.randn(n_rows, N_HEADS, n_queries, N_KEYS, generator=generator)
    k, v = (torch.randn(n_rows, N_HEADS, N_KEYS, N_KEYS, generator=generator) for _ in range(2))
    if size == "far below":
        q, k = q.abs(), -k.abs()
    return (q, k, v) if size == "usual" else (FAR * q, FAR * k, v)


def hidden_gradient(case: Case, backend: str, seed: int) -> float:
    """The largest gradient of a key or a value that no query sees, or of a query that sees none; infinite for NaN."""
    q, k, v = (x.requires_grad_() for x in drawn(case, "usual", seed))
    z = attend(q, k, v, case.mask, backend=backend, scale=1 / math.sqrt(N_KEYS))
    weights = torch.randn(z.shape, generator=torch.Generator().manual_seed(seed + 1))
    grads = torch.autograd.grad((z * weights).sum(), [q, k, v])
    unseen_B1S1 = ~case.seen.any(dim=2)[..., None]
    blind_B1T1 = ~case.seen.any(dim=3)[..., None]
    left = [grads[0].where(blind_B1T1, 0), grads[1].where(unseen_B1S1, 0), grads[2].where(unseen_B1S1, 0)]
    worst = max(float(one.abs().max()) for one in left)
    return worst if all(bool(one.isfinite().all()) for one in grads) else math.inf


def ahead_in_a_model() -> float:
    """Of all heads of all layers."""
    model = load("clear-gpt")
    seen = look(model, TEXT, "layers.*.mixer.pattern")
    return max(float(one.triu(diagonal=1).abs().max()) for one in seen.values())


def draw(results: Sequence[Measured]) -> Figure:
    figure, (cells, table) = figures.panels(2, width=6.2, height=4.4)
    pattern_TS = torch.tensor(results[0].series["pattern"])
    image = cells.imshow(pattern_TS.where(pattern_TS != 0, torch.nan).numpy(), cmap="Blues", vmin=0, aspect="auto")
    cells.set(xlabel="key", ylabel="query", title="The last 10 queries of 24 tokens, causal: blank is exactly 0")
    cells.set_yticks(range(N_QUERIES), [str(i + N_KEYS - N_QUERIES) for i in range(N_QUERIES)])
    cells.grid(visible=False)
    figure.colorbar(image, ax=cells, label="weight")
    hidden = results[0].series["hidden"]
    masks = [name.replace(", ", ",\n") for name in next(iter(hidden.values()))]
    rows = [list(by_mask.values()) for by_mask in hidden.values()]
    figures.heat(table, rows, row_names=list(hidden), column_names=masks, say="{:g}")
    table.set(xlabel="mask", ylabel="backend", title="The largest weight on what is hidden (mark: exactly 0)")
    return figure


CLAIM = Claim(
    says="Masked scores are minus infinity before the softmax, so what a mask hides has a weight of exactly zero, not "
    "a small one: nothing of it comes through, and no gradient goes back to it. A row that may see nothing gives "
    "zeros.",
    source=Source(statements=(50,), paper="Vaswani 2017, section 3.2.3 ('setting to minus infinity')"),
    how="Every backend mixes unit vectors, so that its output is the weights themselves; with ten queries at the end "
    "of 24 keys (causal, with a window, to either side) and in padded batches. Which cells may be seen is worked out "
    "again by a formula. Queries and keys have their usual length, then they are 300 times as long, so that hidden "
    "scores are up to 10^5 above the others, and then all scores are about -10^5. Gradients are those of keys and "
    "values that no query sees, and of queries that see none. FlexAttention, which compiles for a minute and has no "
    "gradients on a CPU, runs in a full run only. Last, all patterns of clear-gpt.",
    marks=(
        Mark(of="largest hidden weight", why="exp(-infinity) is 0.", high=0.0),
        Mark(of="cells that are not as the formula has them", why="All that may be seen has some weight.", high=0.0),
        Mark(of="rows that see something, farthest from a sum of 1", why="Rounding of float32.", high=1e-5),
        Mark(of="rows that see nothing, largest output", why="0 / 0 is defined as 0 here, in every backend.", high=0.0),
        Mark(of="largest gradient of what nobody sees", why="The derivative of nothing.", high=0.0),
        Mark(of="clear-gpt, largest weight on what comes later", why="Token i sees 0 to i.", high=0.0),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=1.0),
)
