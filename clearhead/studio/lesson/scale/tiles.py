"""Chapter 8: attention a tile at a time, with what each tile leaves behind and what has moved so far."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.costs.traffic import Heads, standard, tiled
from clearhead.costs.traffic import heads_of as matrix_heads
from clearhead.errors import UsageError
from clearhead.ops.attention import Trace, attention, traced
from clearhead.ops.attention_tiled import attention_tiled
from clearhead.ops.masks import Everything, bind
from clearhead.studio.lesson.masks.families import Drawn
from clearhead.studio.lesson.scale.terms import blocks_of_keys
from clearhead.studio.operations import Answer, operation
from clearhead.studio.presets import counted, writers

WIDTH = 4
HEAD = Heads(1, WIDTH, WIDTH)


@operation("scale.tiles")
def tiles(
    *,
    n: Annotated[int, Field(ge=4, le=32)] = 16,
    tile: Annotated[int, Field(ge=1, le=32)] = 4,
    step: Annotated[int, Field(ge=0, le=1024)] = 5,
    q: Annotated[int, Field(ge=0, le=31)] = 6,
    seed: Annotated[int, Field(ge=0, le=9999)] = 0,
) -> Answer:
    """Attention of random vectors after so many tiles, in the order of FlashAttention's algorithm 1: a block of keys
    and values stays in fast memory while all blocks of queries pass by. For each row its running maximum and sum, and
    for the whole the numbers moved.
    """
    tile, q = min(tile, n), min(q, n - 1)
    n_blocks = -(-n // tile)
    step = min(step, n_blocks**2)
    done, (at_k, at_q) = divmod(step, n_blocks), divmod(max(step - 1, 0), n_blocks)
    seen_TS = _visited(n, tile, *done)
    after = _traced(n, seed, seen_TS)
    plain, whole = _plain(n, seed), _in_tiles(n, seed)
    top_T, sum_T = _running(after.scores_BHTS[0, 0])
    moved = _moved(n, tile, *done, n_blocks)
    return Answer(
        data={
            "n": n,
            "tile": tile,
            "blocks": n_blocks,
            "steps": n_blocks**2,
            "step": step,
            "current": None if step == 0 else {"keys": at_k, "queries": at_q},
            "q": q,
            "seen": int(seen_TS[q].sum()),
            "top": [None if x == -torch.inf else x for x in top_T.tolist()],
            "sum": sum_T.tolist(),
            "out": after.z_BHTV[0, 0, q].tolist(),
            "final": plain[q].tolist(),
            "off": float((after.z_BHTV[0, 0] - plain).abs().max()),
            "library_off": float((whole - plain).abs().max()),
            "moved": moved,
            "moved_in_all": _moved(n, tile, n_blocks, 0, n_blocks),
            "standard": standard(n, n, HEAD),
            "width": WIDTH,
            "keys_in": min((done[0] + (done[1] > 0)) * tile, n),
            "rows_passed": done[0] * n + min(done[1] * tile, n),
            "held": 4 * WIDTH * tile,
            "matrix": n * n,
        },
        arrays={
            "seen": seen_TS.to(torch.uint8),
            "scores": _scores(n, seed),
            "weights": after.pattern_BHTS[0, 0],
            "values": _vectors(n, seed)[2][0, 0],
            "plain_row": _all(n, seed).pattern_BHTS[0, 0, q],
            "out": after.z_BHTV[0, 0],
            "plain": plain,
        },
        python=_TILES.format(n=n, tile=tile, step=step, q=q, seed=seed, width=WIDTH),
        printed=(
            *([float(top_T[q]), float(sum_T[q])] if seen_TS[q].any() else []),
            *after.z_BHTV[0, 0, q].tolist(),
            float(moved),
            float(standard(n, n, HEAD)),
        ),
    )


_TILES = """\
import torch
from clearhead.costs.traffic import Heads, standard

n, tile, width = {n}, {tile}, {width}
generator = torch.Generator().manual_seed({seed})
q, k, v = torch.randn(3, n, width, generator=generator, dtype=torch.float64)
top = torch.full((n, 1), float("-inf"), dtype=torch.float64)  # the largest score so far, a row
total = torch.zeros(n, 1, dtype=torch.float64)  # the softmax's sum so far
out = torch.zeros(n, width, dtype=torch.float64)
blocks = [slice(i, min(i + tile, n)) for i in range(0, n, tile)]
moved = 0
for step, (keys, rows) in enumerate([(keys, rows) for keys in blocks for rows in blocks][:{step}]):
    if rows == blocks[0]:
        moved += k[keys].numel() + v[keys].numel()  # a new block of keys and values
    scores = q[rows] @ k[keys].T * width**-0.5
    higher = torch.maximum(top[rows], scores.amax(-1, keepdim=True))
    weights, shrink = (scores - higher).exp(), (top[rows] - higher).exp()
    out[rows] = (out[rows] * total[rows] * shrink + weights @ v[keys]) / (
        total[rows] * shrink + weights.sum(-1, keepdim=True)
    )
    total[rows] = total[rows] * shrink + weights.sum(-1, keepdim=True)
    top[rows] = higher
    moved += q[rows].numel() + 2 * out[rows].numel()  # queries in, output in and out again
if total[{q}] > 0:
    print("running maximum:", float(top[{q}]), "running sum:", float(total[{q}]))
print("output so far:", *out[{q}].tolist())
print("numbers moved:", moved)
print("with the whole matrix:", standard(n, n, Heads(1, width, width)))
"""


@lru_cache(maxsize=32)
def _vectors(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (1, 1, n, WIDTH)."""
    generator = torch.Generator().manual_seed(seed)
    q_TK, k_TK, v_TK = torch.randn(3, n, WIDTH, generator=generator, dtype=torch.float64)
    return q_TK[None, None], k_TK[None, None], v_TK[None, None]


def _traced(n: int, seed: int, seen_TS: Tensor) -> Trace:
    """Attention over what was met so far: what an online softmax holds then, divided by its sum."""
    return traced(*_vectors(n, seed), bind(Drawn(seen_TS), n, n), scale=WIDTH**-0.5)


def _running(scores_TS: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row so far, and the sum of the exponentials of what the others fall short of it."""
    top_T = scores_TS.amax(-1)
    finite_T1 = top_T.clamp(min=torch.finfo(scores_TS.dtype).min)[:, None]
    return top_T, (scores_TS - finite_T1).exp().sum(-1)


@lru_cache(maxsize=32)
def _plain(n: int, seed: int) -> Tensor:
    return attention(*_vectors(n, seed), bind(Everything(), n, n), scale=WIDTH**-0.5)[0, 0]


@lru_cache(maxsize=32)
def _in_tiles(n: int, seed: int) -> Tensor:
    return attention_tiled(*_vectors(n, seed), bind(Everything(), n, n), scale=WIDTH**-0.5)[0, 0]


@lru_cache(maxsize=32)
def _scores(n: int, seed: int) -> Tensor:
    return _all(n, seed).scores_BHTS[0, 0]


@lru_cache(maxsize=32)
def _all(n: int, seed: int) -> Trace:
    return traced(*_vectors(n, seed), bind(Everything(), n, n), scale=WIDTH**-0.5)


def _visited(n: int, tile: int, key_blocks: int, query_blocks: int) -> Tensor:
    """Which pairs have met: all queries the first blocks of keys, and the first queries one block more."""
    seen_TS = torch.zeros(n, n, dtype=torch.bool)
    seen_TS[:, : key_blocks * tile] = True
    seen_TS[: query_blocks * tile, : (key_blocks + 1) * tile] = True
    return seen_TS


def _moved(n: int, tile: int, key_blocks: int, query_blocks: int, n_blocks: int) -> int:
    """Numbers that have gone between memories: by the library's count, of what was done whole and of what is begun."""
    fast = 4 * WIDTH * tile
    whole = tiled(n, min(key_blocks * tile, n), HEAD, fast) if key_blocks else 0
    if not query_blocks or key_blocks >= n_blocks:
        return whole
    width = min(tile, n - key_blocks * tile)
    return whole + tiled(min(query_blocks * tile, n), width, HEAD, fast)


# ---- the same at the sizes of real models


@operation("scale.traffic")
def traffic(
    *,
    preset: Annotated[str, Field(min_length=1, max_length=60)] = "llama3-70b",
    context: Annotated[int, Field(ge=128, le=2**20)] = 8192,
    fast: Annotated[int, Field(ge=16, le=4096)] = 192,
) -> Answer:
    """Bytes that one head of a model moves in bfloat16, against the length, for a fast memory of so many KiB."""
    head = _head_of(preset) if preset in writers() else None
    if head is None:
        raise UsageError(f"{preset[:60]!r} has no attention that writes a text")
    one = Heads(1, head.d_key, head.d_value)
    numbers = fast * 2**10 // 2
    n = sorted({context, *(2**power for power in range(7, 21))})
    at = {"standard": 2 * standard(context, context, one), "tiled": 2 * tiled(context, context, one, numbers)}
    return Answer(
        data={
            "preset": preset,
            "context": context,
            "fast": fast,
            "names": list(attending()),
            "d_head": head.d_key,
            "d_value": head.d_value,
            "blocks": blocks_of_keys(context, one, numbers),
            "all_blocks": [blocks_of_keys(length, one, numbers) for length in n],
            "n": n,
            "standard": [2 * standard(length, length, one) for length in n],
            "tiled": [2 * tiled(length, length, one, numbers) for length in n],
            "at": at,
            "times": at["standard"] / at["tiled"],
            "matrix": 2 * context**2,
            "kept": 2 * context * head.d_value,
        },
        python=_TRAFFIC.format(key=head.d_key, value=head.d_value, context=context, fast=fast),
        printed=tuple(float(x) for x in at.values()),
    )


def _head_of(preset: str) -> Heads | None:
    """The first of a model's heads that score pairs of tokens; None where all its layers are scans."""
    ops = [block.mixer.op for block in counted(preset).stacks[-1].blocks]
    return next((one for op in ops if (one := matrix_heads(op)) is not None), None)


@cache
def attending() -> tuple[str, ...]:
    """The models that write and have such heads."""
    return tuple(name for name in writers() if _head_of(name) is not None)


_TRAFFIC = """\
from clearhead.costs.traffic import Heads, standard, tiled

n, head, numbers = {context}, Heads(1, {key}, {value}), {fast} * 2**10 // 2  # of two bytes, in fast memory
print("bytes with the matrix written out:", 2 * standard(n, n, head))
print("bytes in tiles:", 2 * tiled(n, n, head, numbers))
"""
