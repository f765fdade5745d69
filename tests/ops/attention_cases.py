"""What the attention tests share: random problems, a mask of every kind, and one way to run a backend both ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clearhead.ops.biases import Alibi, Bias, RelativeBias
from clearhead.ops.masks import (
    Around,
    BoundMask,
    Causal,
    Everything,
    Mask,
    Positions,
    Prefix,
    Present,
    SameDocument,
    Window,
    bind,
)

N_ROWS, D_KEY, SCALE = 3, 8, 0.3
CPU = torch.device("cpu")


def documents(n_keys: int) -> SameDocument:
    """Three documents or fewer a row, cut at other places in each row."""
    cuts = torch.tensor([[n_keys // 3, n_keys // 2], [1, n_keys - 1], [n_keys, n_keys]])
    columns = torch.arange(n_keys)
    return SameDocument((columns[None, None] >= cuts[..., None]).sum(1))


def prefix(n_keys: int) -> Prefix:
    return Prefix(torch.tensor([0, n_keys // 2, n_keys]))


PREDICATES = {
    "everything": lambda n: Everything(),
    "causal": lambda n: Causal(),
    "window": lambda n: Causal() & Window(3),
    "around": lambda n: Around(2),
    "documents": lambda n: Causal() & documents(n),
    "prefix": lambda n: Causal() | prefix(n),
    "present": lambda n: Causal() & Present(torch.arange(n)[None] >= torch.tensor([[0], [n // 2], [n]])),
    "not": lambda n: ~Causal() & Window(5),
    "all together": lambda n: ((Causal() & Window(4)) | prefix(n)) & documents(n),
}
"""Masks for three rows of n keys. In "present" the third row's queries see nothing; in "not" the last queries don't."""

PADDINGS = ("none", "padded")


def bound(predicate: str, n_queries: int, n_keys: int, padding: str = "none") -> BoundMask:
    """The mask of the newest queries among the keys; padded: 2 slots of row 0 and all of row 1 are empty."""
    mask: Mask = PREDICATES[predicate](n_keys)
    if padding == "none":
        return bind(mask, n_queries, n_keys)
    columns = torch.arange(n_keys)[None]
    n_empty = torch.tensor([[2], [n_keys], [0]])
    keys = torch.where(columns < n_empty, -1, columns)
    return BoundMask(mask, Positions(rows_BT=keys[:, n_keys - n_queries :]), Positions(rows_BT=keys), CPU)


@dataclass(frozen=True)
class Problem:
    """Everything attention is given, in float64."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: BoundMask
    bias: Bias | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


def problem(
    mask: BoundMask, *, n_heads: int = 4, n_groups: int = 2, d_value: int = D_KEY, with_: str = "plain"
) -> Problem:
    """A random problem; `with_` names what comes on top of the plain one."""
    n_queries, n_keys = len(mask.queries), len(mask.keys)
    q = torch.randn(N_ROWS, n_heads, n_queries, D_KEY, dtype=torch.float64)
    k = torch.randn(N_ROWS, n_groups, n_keys, D_KEY, dtype=torch.float64)
    v = torch.randn(N_ROWS, n_groups, n_keys, d_value, dtype=torch.float64)
    made = Problem(q, k, v, mask)
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "sinks": {"sinks": torch.randn(n_heads, dtype=torch.float64)},
        "softcap": {"softcap": 1.5},
        "alibi": {"bias": Alibi(torch.rand(n_heads, dtype=torch.float64))},
        "relative bias": {"bias": RelativeBias(torch.randn(8, n_heads, dtype=torch.float64), max_distance=16)},
    }
    options["all"] = {**options["sinks"], **options["softcap"], **options["relative bias"]}
    return replace(made, **options[with_])


def solve(function: Any, given: Problem, dtype: torch.dtype, backward: bool, train_bias: bool = True) -> list[Tensor]:
    """z, and with `backward` the gradients of q, k, v, sinks and bias of a loss that weighs every number anew."""
    q, k, v = (x.to(dtype).requires_grad_(backward) for x in (given.q, given.k, given.v))
    sinks = None if given.sinks is None else given.sinks.to(dtype).requires_grad_(backward)
    bias, trained = given.bias, []
    if isinstance(bias, Alibi):
        bias = Alibi(bias.slopes_H.to(dtype).requires_grad_(backward and train_bias))
    elif isinstance(bias, RelativeBias):
        bias = replace(bias, table_NH=bias.table_NH.to(dtype).requires_grad_(backward and train_bias))
    if bias is not None and train_bias:
        trained = list(bias.tensors())
    z = function(q, k, v, given.mask, scale=SCALE, bias=bias, softcap=given.softcap, sinks_H=sinks)
    assert z.dtype == dtype
    if not backward:
        return [z]
    weight = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(dtype)
    (z * weight).sum().backward()
    return [z.detach(), *(x.grad for x in (q, k, v, sinks, *trained) if x is not None)]


def rounded(given: Problem, dtype: torch.dtype) -> Problem:
    """The same problem with its numbers rounded to `dtype`, in float64: what a backend is really given."""

    def through(x: Tensor) -> Tensor:
        return x.to(dtype).double()

    bias = given.bias
    if isinstance(bias, Alibi):
        bias = Alibi(through(bias.slopes_H))
    elif isinstance(bias, RelativeBias):
        bias = replace(bias, table_NH=through(bias.table_NH))
    sinks = None if given.sinks is None else through(given.sinks)
    return replace(given, q=through(given.q), k=through(given.k), v=through(given.v), bias=bias, sinks=sinks)
