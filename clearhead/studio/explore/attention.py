"""Attention of one head at one place, taken apart: weights of a row or column, and the dot product behind a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.attend import further_back
from clearhead.ops.masks import bind
from clearhead.studio.explore.parts import Address, Number, RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import terms
from clearhead.studio.operations import Answer, operation
from clearhead.taps import resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio


TOP = 8
PRODUCT = ("q", "k", "v", "z", "scores", "pattern")
"""The taps of an attention that a weight is made of, or makes."""
Key = Annotated[int, Field(ge=-1, le=1_000_000)]


@operation("explore.cell")
def cell(
    studio: Studio, *, run: RunId, at: Address, head: Number = 0, query: Number = 0, key: Key = -1
) -> Answer | Iterator[Answer]:
    """One weight, the row and the column it stands in: exact, whatever the map was drawn from.

    at: the address of an attention ("layers.3.mixer"). key: -1 is the one that has most of the row. The scores that the
    weights are made of come with them where they are there, or a short pass gives them.
    """
    names = [f"{at}.{name}" for name in ("pattern", "scores")]
    is_there = studio.runs.has(run, *names) or (studio.runs.has(run, names[0]) and not _is_short(studio, run))
    return promptly(is_there, lambda: _cell(studio, run, at, head, query, key))


def _cell(studio: Studio, run: str, at: str, head: int, query: int, key: int) -> Answer:
    one = studio.runs.get(run)
    pattern_HTS = studio.runs.exact(run, f"{at}.pattern")[0]
    _check(pattern_HTS, at, head, query, max(key, 0))
    pattern_TS = pattern_HTS[head]
    if key < 0:
        key = int(pattern_TS[query].argmax())
    row_S, column_T = pattern_TS[query], pattern_TS[:, key]
    weight = float(pattern_TS[query, key])
    scores = _scores_of(studio, run, at)
    arrays = {"row": row_S, "column": column_T}
    if scores is not None:
        log_sums_T = log_sums_of(studio.models.get(one.model), at, scores[head], head)
        arrays |= {"scores": scores[head, query], "column_scores": scores[head, :, key], "log_sums": log_sums_T.float()}
    return Answer(
        data={
            "query": query,
            "key": key,
            "weight": weight,
            "row_sum": float(row_S.double().sum()),
            "row_top": _top(row_S),
            "column_top": _top(column_T),
            "column_sum": float(column_T.double().sum()),
            "first": float(row_S[0]),
            "first_mean": float(pattern_TS[:, 0].double().mean()),
            "firsts": terms(pattern_TS[:, 0]),
            "sinks": getattr(studio.models.get(one.model).get_submodule(at), "sinks", None) is not None,
            "entropy_bits": _entropy(row_S),
            "seen": (seen := int((row_S > 0).sum())),
            "even_bits": math.log2(max(seen, 1)),
        },
        arrays=arrays,
        python=one.opening(studio.models.get(one.model))
        + f'pattern = {one.look(f"{at}.pattern")}["{at}.pattern"]\n'
        + f"print(float(pattern[0, {head}, {query}, {key}]))  # head {head}, from token {query} to token {key}\n",
        printed=(weight,),
    )


SHORT = 32 << 20
"""Bytes of scores that are recorded unasked, so that a weight can be told by what it was made of."""


def _is_short(studio: Studio, run: str) -> bool:
    """Whether a pass for the scores of every layer is a matter of moments."""
    return studio.runs.is_short(run) and sum(studio.runs.n_bytes(run, "*.scores").values()) <= SHORT


def _scores_of(studio: Studio, run: str, at: str) -> Tensor | None:
    """The scores (H, T, S) of an attention; None where a long pass would have to give them."""
    if not studio.runs.has(run, f"{at}.scores"):
        if not _is_short(studio, run):
            return None
        studio.runs.record(run, ["*.scores"])
    scores_HTS: Tensor = studio.runs.exact(run, f"{at}.scores")[0]
    return scores_HTS


def log_sums_of(model: Transformer, at: str, scores_TS: Tensor, head: int) -> Tensor:
    """The logarithm (T,) of what the softmax of each row divides by; a head's sink, where it has one, is in it."""
    sums_T = scores_TS.double().logsumexp(-1)
    sinks_H = getattr(model.get_submodule(at), "sinks", None)
    return sums_T if sinks_H is None else torch.logaddexp(sums_T, sinks_H[head].detach().double().cpu())


@operation("explore.striking")
def striking(studio: Studio, *, run: RunId, at: Address = "layers.*.mixer", query: Key = -1) -> Iterator[Answer]:
    """Of all heads of one kind, the one that looks hardest from a token at a single one further back: a place to begin.

    at: the kind, with a star for the layer. query: -1 is the last token.
    """
    one = studio.runs.get(run)
    model: Transformer = studio.models.get(one.model)
    best = (-1.0, 0, 0)
    for place, address in enumerate(resolve(model, [f"{at}.pattern"])):
        pattern = studio.runs.shares(run, address)[0]
        n_queries, n_keys = pattern.shape[1:]
        row_HS = pattern[:, min(query, n_queries - 1)].float()
        # Where keys are the queries' own text, its first token and the last two are looked at by nearly every head.
        kept = further_back(n_keys) if n_queries == n_keys else slice(0, n_keys)
        most_H = row_HS[:, kept].amax(dim=-1)
        found = (float(most_H.max()), place, int(most_H.argmax()))
        best = max(best, found, key=lambda one: one[0])
    yield Answer(data={"place": best[1], "head": best[2]})


@operation("explore.product")
def product(
    studio: Studio, *, run: RunId, at: Address, head: Number = 0, query: Number = 0, key: Key = -1
) -> Answer | Iterator[Answer]:
    """The dot product behind a cell, written out: q, k, their products, the score, the weight, the value, the mix."""
    names = [f"{at}.{name}" for name in PRODUCT]
    return promptly(studio.runs.has(run, *names), lambda: _product(studio, run, at, head, query, key))


def _product(studio: Studio, run: str, at: str, head: int, query: int, key: int) -> Answer:
    one = studio.runs.get(run)
    model: Transformer = studio.models.get(one.model)
    names = [f"{at}.{name}" for name in PRODUCT]
    studio.runs.record(run, [name for name in names if not name.endswith(("scores", "pattern"))])
    q_HTK, k_GSK, v_GSK, z_HTK, scores_HTS, pattern_HTS = (studio.runs.exact(run, name)[0] for name in names)
    _check(pattern_HTS, at, head, query, max(key, 0))
    if key < 0:
        key = int(pattern_HTS[head, query].argmax())
    group = head // (len(q_HTK) // len(k_GSK))
    q_K, k_K, v_K, z_K = q_HTK[head, query], k_GSK[group, key], v_GSK[group, key], z_HTK[head, query]
    op: Any = model.get_submodule(at)
    dot = float(q_K.double() @ k_K.double())
    score, weight = float(scores_HTS[head, query, key]), float(pattern_HTS[head, query, key])
    masked = score == float("-inf")
    scaled = dot * float(op.scale)
    log_sum = float(log_sums_of(model, at, scores_HTS[head, [query]], head))
    return Answer(
        data={
            "key": key,
            "dot": dot,
            "scale": float(op.scale),
            "scaled": scaled,
            "score": None if masked else score,
            "masked": masked,
            # What the layer adds beside the product: a bias for the distance, or what a soft cap takes off.
            "added": None if masked else score - scaled,
            "log_sum": log_sum,
            "seen": int(scores_HTS[head, query].isfinite().sum()),
            "sinks": getattr(op, "sinks", None) is not None,
            "weight": weight,
            "group": group,
            "heads_a_group": len(q_HTK) // len(k_GSK),
            "q_norm": float(q_K.double().norm()),
            "k_norm": float(k_K.double().norm()),
            "v_norm": float(v_K.double().norm()),
            "z_norm": float(z_K.double().norm()),
            "given_norm": float((weight * v_K.double()).norm()),
        },
        arrays={
            "q": q_K,
            "k": k_K,
            "products": q_K * k_K,
            "v": v_K,
            "given": weight * v_K,
            "z": z_K,
            "scores": scores_HTS[head, query],
        },
        python=one.opening(model)
        + f"seen = {one.look(f'{at}.q', f'{at}.k', f'{at}.pattern')}\n"
        + f'q = seen["{at}.q"][0, {head}, {query}].double()\n'
        + f'k = seen["{at}.k"][0, {group}, {key}].double()\n'
        + "print(float(q @ k))  # the dot product\n"
        + f'print(float(seen["{at}.pattern"][0, {head}, {query}, {key}]))  # the weight it became\n',
        printed=(dot, weight),
    )


@operation("explore.visible")
def visible(studio: Studio, *, run: RunId, at: Address) -> Iterator[Answer]:
    """Which keys each query of a layer may look at: from the first to the one before `end`. Nothing hides the keys of
    another stack.
    """
    one = studio.runs.get(run)
    model: Transformer = studio.models.get(one.model)
    n_queries, n_keys = studio.runs.shares(run, f"{at}.pattern").shape[-2:]
    mask = getattr(model.get_submodule(at), "mask", None)
    first_T, end_T = torch.zeros(n_queries, dtype=torch.int32), torch.full((n_queries,), n_keys, dtype=torch.int32)
    if mask is not None and not at.endswith(".cross"):
        allowed_TS = bind(mask, n_queries, n_keys).dense[0, 0].expand(n_queries, n_keys).to(torch.uint8)
        first_T = allowed_TS.argmax(dim=-1).int()
        end_T = n_keys - allowed_TS.flip(-1).argmax(dim=-1).int()
    yield Answer(
        data={"at": at, "hides": bool((first_T > 0).any() or (end_T < n_keys).any())},
        arrays={"first": first_T, "end": end_T},
    )


def _check(pattern_HTS: Tensor, at: str, head: int, query: int, key: int) -> None:
    for number, size, what in zip((head, query, key), pattern_HTS.shape, ("head", "query", "key"), strict=True):
        if number >= size:
            raise UsageError(f"{at} has no {what} {number}; there are 0 to {size - 1}")


def _top(weights: Tensor) -> list[dict[str, float]]:
    """The largest weights of a row or column, and where they are."""
    shares, places = weights.topk(min(TOP, len(weights)))
    return [{"at": place, "weight": share} for share, place in zip(shares.tolist(), places.tolist(), strict=True)]


def _entropy(row_S: Tensor) -> float:
    """How spread out a row is, in bits: 0 where all of it is on one key."""
    return float(torch.special.entr(row_S.double()).sum() / torch.log(torch.tensor(2.0, dtype=torch.float64)))
