"""A model in one line: its layers, and what its mixers are."""

from __future__ import annotations

from collections import Counter
from functools import singledispatch
from typing import Any

from clearhead.config import (
    AttentionConfig,
    ExpertsConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    RecurrentConfig,
    StackConfig,
    TransformerConfig,
    TwoTowersConfig,
)


def shape(config: TransformerConfig | TwoTowersConfig) -> str:
    """As in "80 layers, 64 query heads on 8 key-value heads of 128, width 8,192"."""
    if isinstance(config, TwoTowersConfig):
        return f"of texts: {shape(config.text)}; of pictures: {shape(config.image)}"
    parts = [f"width {config.d_model:,}"]
    if config.encoder is not None and config.decoder is not None:
        return f"{_stack(config.encoder)} in the encoder, {_stack(config.decoder)} in the decoder, {parts[0]}"
    return ", ".join([_stack(config.stack), *parts])


def _stack(stack: StackConfig) -> str:
    mixers = Counter(_mixer(block.mixer.op) for block in stack.blocks)
    layers = f"{len(stack.blocks)} layers"
    if len(mixers) == 1:
        said = [f"{layers}, {next(iter(mixers))}"]
    else:
        said = [layers + ": " + "; ".join(f"{n} of {words}" for words, n in mixers.items())]
    ops = [block.ffn.op for block in stack.blocks if block.ffn is not None]
    chosen = Counter(f"{op.n_chosen} of {op.n_experts} experts" for op in ops if isinstance(op, ExpertsConfig))
    said += [words + ("" if n == len(stack.blocks) else f" in {n} of them") for words, n in chosen.items()]
    return ", ".join(said)


@singledispatch
def _mixer(op: Any) -> str:
    return type(op).__name__


@_mixer.register
def _attention(op: AttentionConfig) -> str:
    if op.n_kv_heads == op.n_heads:
        heads = f"{op.n_heads} heads of {op.d_head}"
    else:
        one = "head" if op.n_kv_heads == 1 else "heads"
        heads = f"{op.n_heads} query heads on {op.n_kv_heads} key-value {one} of {op.d_head}"
    return heads + ("" if op.mask.window is None else f" in a window of {op.mask.window:,}")


@_mixer.register
def _latent(op: LatentAttentionConfig) -> str:
    return f"{op.n_heads} heads on a latent of {op.widths.kv} + {op.widths.rope}"


@_mixer.register
def _mamba(op: MambaConfig) -> str:
    return f"scans of {op.d_inner:,} channels with a state of {op.d_state}"


@_mixer.register
def _mamba2(op: Mamba2Config) -> str:
    return f"scans of {op.n_heads} heads of {op.d_head} with a state of {op.d_state}"


@_mixer.register
def _recurrent(op: RecurrentConfig) -> str:
    ways = " each way" if op.both_ways else ""
    return f"{CELL_NAMES[op.cell]} of {op.d_hidden:,}{ways}"


CELL_NAMES = {"simple": "simple recurrence", "lstm": "LSTM", "lstm_1997": "LSTM without a forget gate", "gru": "GRU"}
