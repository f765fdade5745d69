"""Chapter 8: what a long text costs in memory and in steps, and what published models keep of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from clearhead.claims.scale.cost_of_2017 import BLEU, ENGLISH_GERMAN, GPUS, HOURS, SUSTAINED, flops_by_hours
from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    LatentAttentionConfig,
    RecurrentConfig,
    TransformerConfig,
)
from clearhead.costs.count import Counts
from clearhead.costs.devices import bytes_of
from clearhead.costs.serving import made_for, outweighs, state_at, weight_bytes
from clearhead.costs.shape import shape
from clearhead.costs.state import state_bytes
from clearhead.costs.time import recurrent_steps, sequential_steps
from clearhead.costs.traffic import heads_of as matrix_heads
from clearhead.errors import UsageError
from clearhead.ops.scan import chunk_size
from clearhead.studio.lesson.scale.terms import terms_of
from clearhead.studio.operations import Answer, operation
from clearhead.studio.presets import counted, groupings, heads_of, source_code, writers

POINTS = 41
SHORTEST, LONGEST = 2**7, 2**20
GRID = [round(SHORTEST * (LONGEST / SHORTEST) ** (i / (POINTS - 1))) for i in range(POINTS)]
Name = Annotated[str, Field(min_length=1, max_length=60)]
Context = Annotated[int, Field(ge=1, le=LONGEST)]
Batch = Annotated[int, Field(ge=1, le=4096)]
Dtype = Literal["float32", "bfloat16", "float16", "float8", "int8"]


def lengths(context: int) -> list[int]:
    """Where curves are worked out: evenly spaced in their logarithm, and at the length asked about."""
    return sorted({*GRID, context})


# ---- the square and the line


@operation("scale.cache")
def cache(
    *,
    preset: Name = "llama3-70b",
    context: Context = 8192,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    kv_heads: Annotated[int, Field(ge=0, le=1024)] = 0,
) -> Answer:
    """What a model keeps of texts of a length, and how many numbers one head computes of them; `kv_heads` 0: as many as
    it has.
    """
    if preset not in writers():
        raise UsageError(f"{preset[:60]!r} keeps no cache; those that do are {', '.join(writers())}")
    width = bytes_of(dtype)
    plain, found = counted(preset), counted(preset, kv_heads)
    config = found.config
    assert isinstance(config, TransformerConfig) and config.decoder is not None
    heads, able = heads_of(plain.config), groupings(plain.config)
    now = heads_of(config)
    per_token, total = found.state(1, 1, width).per_token, state_at(found, batch, context, width)
    weights = weight_bytes(found, width)
    matrices = [one for block in config.decoder.blocks if (one := matrix_heads(block.mixer.op)) is not None]
    n_matrices = sum(one.n for one in matrices)
    scores = max((one.n for one in matrices), default=0)
    outweighs_at = _outweighs(found, batch, width)
    groups = _groupings_told(preset, able, heads, batch, context, width)
    return Answer(
        data={
            "preset": preset,
            "context": context,
            "batch": batch,
            "dtype": dtype,
            "names": list(writers()),
            "shape": shape(config),
            "made_for": made_for(found),
            "heads": None
            if now is None
            else {"query": now[0], "kv": now[1], "published": heads[1] if heads else now[1]},
            "groupings": able,
            "groups": groups,
            "formula": terms_of(found, batch, context, width),
            "per_token": per_token,
            "growth": growth_of(found, context, width),
            "text": state_at(found, 1, context, width),
            "total": total,
            "weights": weights,
            "parameters": found.parameters.total,
            "width": width,
            "share": total / (total + weights),
            "outweighs": outweighs_at,
            "outweighing": None if outweighs_at is None else state_at(found, batch, outweighs_at, width),
            "matrices": sorted(Counter(one.n for one in matrices).items()),
            "score_heads": scores,
            "squared": context**2,
            "n_matrices": n_matrices,
            "all_squared": context**2 * n_matrices,
            "scores": width * scores * context**2,
            "curves": _curves(found, batch, width, scores, context),
        },
        python=_CACHE.format(
            **_code(preset, 0 if heads and kv_heads == heads[1] else kv_heads),
            batch=batch,
            dtype=dtype,
            context=context,
        ),
        printed=(float(per_token), float(total), float(weights), float(context**2)),
    )


_CACHE = """\
import clearhead
{before}
n = {context}
cost = clearhead.cost({what}, batch={batch}, dtype={dtype!r})
print("bytes kept of a token:", cost.counts.state(1, 1, cost.ask.width).per_token)
print("bytes kept of all texts:", cost.state_at(n))
print("bytes of the weights:", cost.weight_bytes)
print("numbers in the pattern of one head:", n**2)
"""


def _code(preset: str, kv_heads: int) -> dict[str, str]:
    before, what = source_code(preset, kv_heads)
    return {"before": before, "what": what}


def _groupings_told(
    preset: str, able: Sequence[int], heads: tuple[int, int] | None, batch: int, context: int, width: int
) -> list[dict[str, Any]]:
    """Multi-head, as published, and one head for all, side by side."""
    if heads is None:
        return []
    found = []
    for name, n in (("multi-head", able[0]), ("as published", heads[1]), ("multi-query", able[-1])):
        of = counted(preset, n)
        found.append(
            {
                "name": name,
                "kv_heads": n,
                "per_token": of.state(1, 1, width).per_token,
                "total": state_at(of, batch, context, width),
                "terms": terms_of(of, batch, context, width),
            }
        )
    return found


def growth_of(of: Counts, context: int, width: int) -> int:
    """Bytes that the next token of one text adds, even beyond what the model was made for."""
    config = of.config
    assert isinstance(config, TransformerConfig)
    return state_bytes(config.decoder, config.d_model, 1, context, width, 0).growth


def _curves(found: Counts, batch: int, width: int, scores: int, context: int) -> dict[str, Any]:
    n = lengths(context)
    return {
        "n": n,
        "cache": curve_of(found, batch, width, context),
        "weights": [weight_bytes(found, width)] * len(n),
        "scores": [width * scores * one**2 for one in n],
    }


def curve_of(of: Counts, batch: int, width: int, context: int) -> list[int]:
    """Bytes of state at each of `lengths(context)`."""
    known = {**_on_grid(of, batch, width), context: state_at(of, batch, context, width)}
    return [known[n] for n in lengths(context)]


@lru_cache(maxsize=512)
def _on_grid(of: Counts, batch: int, width: int) -> dict[int, int]:
    return {n: state_at(of, batch, n, width) for n in GRID}


@lru_cache(maxsize=512)
def _outweighs(of: Counts, batch: int, width: int) -> int | None:
    return outweighs(of, batch, width)


def blocks_of(of: Counts) -> tuple[BlockConfig, ...]:
    assert isinstance(of.config, TransformerConfig)
    return of.config.stack.blocks


# ---- steps that wait for one another


@operation("scale.steps")
def steps(*, preset: Name = "llama3-70b", context: Context = 8192) -> Answer:
    """How many steps of a pass wait for one another: attention's, a recurrent network's as deep, and of scans."""
    of, scans = counted(preset), counted("mamba-2.8b")
    if preset not in writers():
        raise UsageError(f"{preset[:60]!r} does not write; those that do are {', '.join(writers())}")
    n = lengths(context)
    at = {
        "model": sequential_steps(of, context),
        "recurrent": recurrent_steps(of, context),
        "scan": sequential_steps(scans, context),
    }
    return Answer(
        data={
            "preset": preset,
            "context": context,
            "names": list(writers()),
            "layers": len(blocks_of(of)),
            "waits": _waits(of),
            "scans": _waits(scans),
            "chunk": chunk_size(context),
            "chunks": -(-context // chunk_size(context)),
            "n": n,
            "model": [sequential_steps(of, one) for one in n],
            "recurrent": [recurrent_steps(of, one) for one in n],
            "scan": [sequential_steps(scans, one) for one in n],
            "at": at,
            "times": at["recurrent"] / at["model"],
        },
        python=_STEPS.format(preset=preset, context=context),
        printed=tuple(float(one) for one in at.values()),
    )


def _waits(of: Counts) -> dict[str, int]:
    """How many layers there are whose tokens are worked on at once, that scan, and that go from token to token."""
    ops = [block.mixer.op for block in blocks_of(of)]
    at_once, recurrent = (
        sum(hasattr(op, "mask") for op in ops),
        sum(isinstance(op, RecurrentConfig) for op in ops),
    )
    return {"at_once": at_once, "recurrent": recurrent, "scans": len(ops) - at_once - recurrent}


_STEPS = """\
import clearhead
from clearhead.costs.time import recurrent_steps, sequential_steps

model, mamba = (clearhead.cost(name).counts for name in ({preset!r}, "mamba-2.8b"))
print("steps that wait for one another:", sequential_steps(model, {context}))
print("of a recurrent network as deep:", recurrent_steps(model, {context}))
print("of scans, in chunks:", sequential_steps(mamba, {context}))
"""


# ---- how modern models cope


@operation("scale.models")
def models(
    *,
    context: Context = 8192,
    dtype: Dtype = "bfloat16",
    only: Literal["all", "grouped", "windows", "experts", "scans"] = "all",
) -> Answer:
    """Shipped models that write, all or those with one of the remedies: layers and heads, and what they keep."""
    every = [_model_row(name, context, bytes_of(dtype)) for name in writers()]
    rows = [row for row in every if _HAS[only](row)]
    return Answer(
        data={
            "context": context,
            "only": only,
            "rows": rows,
            "numbers": {kind: sum(map(has, every)) for kind, has in _HAS.items()},
            "least": min(
                (row for row in every if row["per_token"]), key=lambda row: row["per_token"] / row["parameters"]
            ),
        },
        python=_MODELS.format(names=[row["name"] for row in rows], context=context, dtype=dtype),
        printed=tuple(float(row[key]) for row in rows for key in ("parameters", "per_token", "at")),
    )


_HAS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda row: True,
    "grouped": lambda row: row["latent"] or (row["kv_heads"] is not None and row["kv_heads"] < row["heads"]),
    "windows": lambda row: row["window"] is not None,
    "experts": lambda row: row["experts"] is not None,
    "scans": lambda row: row["scans"] > 0,
}


def _model_row(name: str, context: int, width: int) -> dict[str, Any]:
    of = counted(name)
    blocks = blocks_of(of)
    ops = [block.mixer.op for block in blocks]
    heads = [op for op in ops if isinstance(op, AttentionConfig | LatentAttentionConfig)]
    grouped = [op for op in ops if isinstance(op, AttentionConfig)]
    windows = sorted({op.mask.window for op in heads if op.mask.window is not None})
    feeds = [block.ffn.op for block in blocks if block.ffn is not None and isinstance(block.ffn.op, ExpertsConfig)]
    told = of.parameters
    return {
        "name": name,
        "parameters": told.total,
        "parts": told.parts,
        "active": told.active,
        "idle": told.total - told.active,
        "terms": terms_of(of, 1, context, width),
        "layers": len(blocks),
        "heads": heads[0].n_heads if heads else None,
        "kv_heads": grouped[0].n_kv_heads if grouped else None,
        "latent": len(heads) > len(grouped),
        "window": windows[0] if windows else None,
        "windowed": sum(op.mask.window is not None for op in heads),
        "scans": len(ops) - len(heads),
        "experts": [feeds[0].n_chosen, feeds[0].n_experts] if feeds else None,
        "made_for": made_for(of),
        "per_token": of.state(1, 1, width).per_token,
        "at": state_at(of, 1, context, width),
        "cross": any(block.cross is not None for block in blocks),
    }


_MODELS = """\
import clearhead

for name in {names}:
    cost = clearhead.cost(name, dtype={dtype!r})
    print(cost.parameters, cost.counts.state(1, 1, cost.ask.width).per_token, cost.state_at({context}))
"""


# ---- what training the model of 2017 cost


@operation("scale.first")
def first() -> Answer:
    """What training the Transformer of 2017 cost by the hours of its GPUs, beside its rivals by their papers."""
    ours: list[dict[str, Any]] = [
        {
            "name": f"Transformer, {size}",
            "flops": flops,
            "bleu": BLEU[size],
            "hours": HOURS[size],
            "ours": True,
            "told": size == "base",
        }
        for size, flops in flops_by_hours().items()
    ]
    rivals: list[dict[str, Any]] = [
        {"name": name, "flops": flops, "bleu": bleu, "hours": None, "ours": False, "told": False}
        for name, (bleu, flops) in ENGLISH_GERMAN.items()
    ]
    return Answer(
        data={
            "rows": sorted([*ours, *rivals], key=lambda row: float(row["flops"])),
            "gpus": GPUS,
            "sustained": SUSTAINED,
        },
        python=_FIRST,
        printed=tuple(float(row["flops"]) for row in ours),
    )


_FIRST = """\
from clearhead.claims.scale.cost_of_2017 import flops_by_hours

for size, flops in flops_by_hours().items():  # hours, seconds, GPUs, operations a second
    print(f"operations of {size}:", flops)
"""
