"""What stands at one cell of a tap, made again from what the pass had before it: two numbers added, a row weighed.

Only what comes out the same is told: a layer that scales, caps or norms on the way is no plain sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.studio.explore.attention import log_sums_of
from clearhead.studio.explore.parts import Address, RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import FIRST
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

Index = Annotated[tuple[Annotated[int, Field(ge=0, le=10_000_000)], ...], Field(min_length=2, max_length=4)]
SAME = 1e-3
"""How far, in parts of its size or of 1, a number made again may be from the one that stands there: rounding."""
ADDED = {
    "resid_mid": (("resid_pre", "mixer.out"),),
    "resid_cross": (("resid_mid", "cross.out"),),
    "resid_post": (("resid_cross", "ffn.out"), ("resid_mid", "ffn.out"), ("resid_pre", "mixer.out")),
}
"""What the stream is the sum of, by its tap; the first whose taps the layer has."""


@operation("explore.made")
def made(studio: Studio, *, run: RunId, address: Address, index: Index) -> Answer | Iterator[Answer]:
    """What one number of a tap was made from.

    index: its place without the batch. `kind` is "sum" (terms: name and value), "softmax" (score and log_sum),
    "product" (pairs, the first of `n`, times `scale`), or "" where the taps don't say.
    """
    known = catalogue(studio.models.get(studio.runs.get(run).model))
    path, _, name = address.rpartition(".")
    maker = MAKERS.get(name)
    needs = () if maker is None else _needs(known, path, name)
    is_there = not needs or studio.runs.has(run, address, *needs)
    if not is_there and not studio.runs.is_short(run):
        needs = ()

    def answer() -> Answer:
        value = _at(studio.runs.exact(run, address)[0], index, address)
        data: dict[str, Any] = {"kind": "", "address": address, "index": list(index)}
        # A score that the mask hides is minus infinity, and made of nothing.
        if maker is not None and needs and math.isfinite(value):
            studio.runs.record(run, needs)
            found = maker(studio, run, path, needs, index)
            again = found.pop("again")
            if abs(again - value) <= SAME * max(1.0, abs(value)):
                data |= found
        return Answer(data=data)

    return promptly(is_there or not needs, answer)


def _needs(known: dict[str, str], path: str, name: str) -> tuple[str, ...]:
    """The addresses that a number is made again from."""
    if name in ADDED:
        for pair in ADDED[name]:
            if all(f"{path}.{one}" in known for one in pair):
                return tuple(f"{path}.{one}" for one in pair)
        return ()
    return tuple(f"{path}.{one}" for one in PARTS[name])


def _at(value: Tensor, index: tuple[int, ...], address: str) -> float:
    if len(index) != value.ndim or any(i >= n for i, n in zip(index, value.shape, strict=True)):
        raise UsageError(f"{address} has no cell {list(index)}; its shape is {list(value.shape)}")
    return float(value[index])


def _sum(studio: Studio, run: str, path: str, needs: tuple[str, ...], index: tuple[int, ...]) -> dict[str, Any]:
    values = [_at(studio.runs.exact(run, one)[0], index, one) for one in needs]
    terms = [{"name": one, "value": value} for one, value in zip(needs, values, strict=True)]
    return {"kind": "sum", "terms": terms, "again": sum(values)}


def _softmax(studio: Studio, run: str, path: str, needs: tuple[str, ...], index: tuple[int, ...]) -> dict[str, Any]:
    head, query, key = index
    scores_TS = studio.runs.exact(run, needs[0])[0][head][[query]]
    log_sum = log_sums_of(studio.models.get(studio.runs.get(run).model), path, scores_TS, head)
    score = scores_TS[0, key].double()
    hidden = score == float("-inf")
    return {
        "kind": "softmax",
        "score": None if hidden else float(score),
        "log_sum": float(log_sum),
        "again": float((score - log_sum).exp()),
    }


def _dot(studio: Studio, run: str, path: str, needs: tuple[str, ...], index: tuple[int, ...]) -> dict[str, Any]:
    """A score: the products of a query and a key, times the layer's scale."""
    head, query, key = index
    q_HTK, k_GSK = (studio.runs.exact(run, one)[0] for one in needs)
    op: Any = studio.models.get(studio.runs.get(run).model).get_submodule(path)
    return _products(q_HTK[head, query], k_GSK[_group(q_HTK, k_GSK, head), key], float(op.scale))


def _mixed(studio: Studio, run: str, path: str, needs: tuple[str, ...], index: tuple[int, ...]) -> dict[str, Any]:
    """A number of the mix: the row's weights, times that number of each key's value."""
    head, query, dimension = index
    pattern_HTS, v_GSK = (studio.runs.exact(run, one)[0] for one in needs)
    return _products(pattern_HTS[head, query], v_GSK[_group(pattern_HTS, v_GSK, head), :, dimension], 1.0)


def _group(of_heads: Tensor, of_groups: Tensor, head: int) -> int:
    return head // (len(of_heads) // len(of_groups))


def _products(a_N: Tensor, b_N: Tensor, scale: float) -> dict[str, Any]:
    pairs = [[float(a), float(b)] for a, b in zip(a_N[:FIRST], b_N[:FIRST], strict=True)]
    total = float(a_N.double() @ b_N.double())
    return {"kind": "product", "pairs": pairs, "n": len(a_N), "sum": total, "scale": scale, "again": total * scale}


PARTS = {"pattern": ("scores",), "scores": ("q", "k"), "z": ("pattern", "v")}
MAKERS: dict[str, Callable[[Studio, str, str, tuple[str, ...], tuple[int, ...]], dict[str, Any]]] = {
    **dict.fromkeys(ADDED, _sum),
    "pattern": _softmax,
    "scores": _dot,
    "z": _mixed,
}
