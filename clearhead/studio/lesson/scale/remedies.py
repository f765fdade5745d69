"""Chapter 8: what each remedy saves, on one shape; and experts, which are stored and not all used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from clearhead.config import (
    AttentionConfig,
    ExpertsConfig,
    LatentAttentionConfig,
    LatentWidths,
    MambaConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    TransformerConfig,
)
from clearhead.costs.count import Counts, counts
from clearhead.costs.devices import bytes_of
from clearhead.costs.serving import state_at
from clearhead.costs.shape import shape
from clearhead.studio.lesson.scale.calculator import Context, blocks_of, curve_of, growth_of, lengths
from clearhead.studio.lesson.scale.terms import terms_of
from clearhead.studio.operations import Answer, operation
from clearhead.studio.presets import counted, groupings, writers

Change = Callable[[AttentionConfig, int], Any]
"""From a layer's attention and the stream's width to what takes its place."""
SHAPES = (
    "llama3-8b",
    "llama3-70b",
    "llama3-405b",
    "llama3.2-1b",
    "olmo2-7b",
    "pythia-6.9b",
    "qwen2.5-7b",
    "qwen3-8b",
)


@operation("scale.remedies")
def remedies(
    *,
    preset: Literal[SHAPES] = "llama3-70b",  # type: ignore[valid-type]
    context: Context = 131072,
    window: Annotated[int, Field(ge=16, le=65536)] = 4096,
    dtype: Literal["float32", "bfloat16", "float16", "float8", "int8"] = "bfloat16",
) -> Answer:
    """One model's cache against the length, as it is and with its layers made otherwise: what each change saves."""
    width, config = bytes_of(dtype), counted(preset).config
    assert isinstance(config, TransformerConfig)
    variants = {
        "multi-head": counted(preset, groupings(config)[0]),
        "grouped, as published": counted(preset),
        "multi-query": counted(preset, 1),
        "latent, as in DeepSeek-V3": _made(preset, (_latent,)),
        "a window in every layer": _made(preset, (_windowed(window),)),
        "a window in every other layer": _made(preset, (_windowed(window), None)),
        "attention in one layer of four, else scans": _made(preset, (_scanning, _scanning, _scanning, None)),
        "scans alone (Mamba)": _made(preset, (_scanning,)),
    }
    n = lengths(context)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "at": state_at(one, 1, context, width),
            "growth": growth_of(one, context, width),
            "curve": curve_of(one, 1, width, context),
            "terms": terms_of(one, 1, context, width),
        }
        for name, one in variants.items()
    ]
    return Answer(
        data={
            "preset": preset,
            "context": context,
            "window": window,
            "names": list(SHAPES),
            "n": n,
            "rows": rows,
            "shape": shape(config),
            "most": rows[0]["at"],
        },
        python=_REMEDIES.format(preset=preset, context=context, window=window, width=width),
        printed=tuple(float(row["at"]) for row in rows),
    )


@lru_cache(maxsize=128)
def _made(preset: str, changes: tuple[Change | None, ...]) -> Counts:
    """A model whose layers are changed in turn, each by one of these; None leaves a layer as it is."""
    config = counted(preset).config
    assert isinstance(config, TransformerConfig) and config.decoder is not None
    blocks = []
    for i, block in enumerate(config.decoder.blocks):
        change = changes[i % len(changes)]
        op = block.mixer.op
        assert isinstance(op, AttentionConfig)
        new = op if change is None else change(op, config.d_model)
        blocks.append(replace(block, mixer=replace(block.mixer, op=new)))
    return counts(replace(config, decoder=replace(config.decoder, blocks=tuple(blocks))))


@lru_cache(maxsize=64)
def _windowed(size: int) -> Change:
    return lambda op, d_model: replace(op, mask=MaskConfig(kind="causal", window=size))


def _latent(op: AttentionConfig, d_model: int) -> LatentAttentionConfig:
    """A vector of 512 a token for keys and values, and a rotated key of 64 (DeepSeek-V3)."""
    widths = LatentWidths(q=None, kv=512, nope=128, rope=64, value=128)
    return LatentAttentionConfig(n_heads=op.n_heads, widths=widths, norm=NormConfig(), positions=RotaryConfig())


def _scanning(op: AttentionConfig, d_model: int) -> MambaConfig:
    """As wide as in Mamba's models: twice the stream, 16 numbers a channel."""
    return MambaConfig(d_inner=2 * d_model, d_state=16, dt_rank=math.ceil(d_model / 16))


_REMEDIES = """\
from dataclasses import replace
from clearhead.config import LatentAttentionConfig, LatentWidths, MambaConfig, MaskConfig, NormConfig, RotaryConfig
from clearhead.costs import counts
from clearhead.costs.serving import state_at
from clearhead.costs.source import read_config

config = read_config({preset!r}).config
old = config.decoder.blocks[0].mixer.op
grouped = lambda n: replace(old, n_kv_heads=n)
window = replace(old, mask=MaskConfig(kind="causal", window={window}))
widths = LatentWidths(q=None, kv=512, nope=128, rope=64, value=128)
latent = LatentAttentionConfig(n_heads=old.n_heads, widths=widths, norm=NormConfig(), positions=RotaryConfig())
scan = MambaConfig(d_inner=2 * config.d_model, d_state=16, dt_rank=-(-config.d_model // 16))
mixers = {{
    "multi-head": [grouped(old.n_heads)],
    "grouped, as published": [old],
    "multi-query": [grouped(1)],
    "latent": [latent],
    "a window in every layer": [window],
    "a window in every other layer": [window, old],
    "attention in one layer of four, else scans": [scan, scan, scan, old],
    "scans alone": [scan],
}}
for name, turn in mixers.items():
    blocks = tuple(
        replace(block, mixer=replace(block.mixer, op=turn[i % len(turn)]))
        for i, block in enumerate(config.decoder.blocks)
    )
    made = counts(replace(config, decoder=replace(config.decoder, blocks=blocks)))
    print(f"{{name}}:", state_at(made, 1, {context}, {width}))
"""


# ---- experts


EXAMPLE = "mixtral-8x7b"
"""What the figure tells of in words."""


@operation("scale.experts")
def experts() -> Answer:
    """Every shipped model with experts: what is stored, and what works on one token."""
    rows: list[dict[str, Any]] = []
    for name in writers():
        of = counted(name)
        ops = [block.ffn.op for block in blocks_of(of) if block.ffn is not None]
        op = next((one for one in ops if isinstance(one, ExpertsConfig)), None)
        if op is not None:
            told = of.parameters
            rows.append(
                {
                    "name": name,
                    "stored": told.total,
                    "used": told.active,
                    "parts": told.parts,
                    "idle": told.total - told.active,
                    "share": told.active / told.total,
                    "n_experts": op.n_experts,
                    "n_chosen": op.n_chosen,
                }
            )
    rows.sort(key=lambda row: row["stored"])
    return Answer(
        data={"rows": rows, "told": next(i for i, row in enumerate(rows) if row["name"] == EXAMPLE)},
        python=_EXPERTS.format(names=[row["name"] for row in rows]),
        printed=tuple(float(row[key]) for row in rows for key in ("stored", "used")),
    )


_EXPERTS = """\
import clearhead

for name in {names}:
    parameters = clearhead.cost(name).counts.parameters
    print("stored:", parameters.total, "used for one token:", parameters.active)
"""
