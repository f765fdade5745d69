"""A model without some of its attention heads: the same function as with their output set to zero, in smaller matrices
(Michel 2019, "Are Sixteen Heads Really Better than One?").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.config import AttentionConfig, LatentAttentionConfig, SublayerConfig
from clearhead.model.build import build
from clearhead.model.kept_heads import attention_layers, head_counts, without

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Kept = tuple[int, int, list[int]]
"""Along which dimension heads lie, how many they are, and which of them stay."""


def without_heads(model: Transformer, cut: Mapping[str, Sequence[int]]) -> Any:
    """A new model without the heads in `cut`, {address: heads}: {"layers.3.mixer": [0, 5]}. All that does not belong to
    them is shared with `model`. Its output is that of `model` with `z` of these heads zero.

    A key-value head goes with the last of its heads. One norm over the queries of all heads reads those of the heads
    that were cut off too, so there they are still made: what goes is the values' share, and the output's.

    Raises:
        ClearheadError: an address or a head that is not there, or one without which the others can't be as they are:
            the last of its sub-layer, or one of a key-value head's while others keep all of theirs. Where blocks run
            with the weights of another, the same heads must be cut in each.
    """
    config = without(model.config, cut)
    with torch.device("meta"):
        new = build(config)
    kept = dict(_kept(model, attention_layers(model.config), cut))
    made: dict[tuple[int, str], nn.Parameter] = {}
    for path, module in new.named_modules():
        for leaf, wanted in list(module.named_parameters(recurse=False)):
            name = f"{path}.{leaf}".removeprefix(".")
            parameter = model.get_parameter(name)
            if parameter.shape != wanted.shape:
                key = id(parameter), str(kept[name])
                if key not in made:
                    made[key] = nn.Parameter(_chosen(parameter, *kept[name]), parameter.requires_grad)
                parameter = made[key]
            setattr(module, leaf, parameter)
    new.tokenizer, new.origin = model.tokenizer, model.origin
    return new.train(model.training)


def _kept(
    model: Transformer, layers: Mapping[str, SublayerConfig], cut: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Kept]]:
    """By the name of each parameter that has a part for every head: which parts stay."""
    of_all: dict[str, list[tuple[int, list[int]]]] = {}
    for address, sublayer in layers.items():
        n_heads, n_groups = head_counts(sublayer)
        gone = set(cut.get(address, ()))
        heads = [head for head in range(n_heads) if head not in gone]
        groups = sorted({head * n_groups // n_heads for head in heads})
        for part in _parts(sublayer):
            for leaf in ("weight", "bias"):
                yield f"{address}.{part}.{leaf}", (0, n_heads, heads)
        for part in ("k_proj", "v_proj"):
            for leaf in ("weight", "bias"):
                yield f"{address}.{part}.{leaf}", (0, n_groups, groups)
        yield f"{address}.o_proj.weight", (1, n_heads, heads)
        yield f"{address}.sinks", (0, n_heads, heads)
        of_all.setdefault(address.rpartition("layers.")[0], []).append((n_heads, heads))
    for prefix, by_layer in of_all.items():
        # One number for each head of each layer.
        before = [sum(n for n, _ in by_layer[:i]) for i in range(len(by_layer) + 1)]
        left = [start + head for start, (_, heads) in zip(before, by_layer, strict=False) for head in heads]
        yield f"{prefix}contacts.weight", (1, before[-1], left)


def _parts(sublayer: SublayerConfig) -> tuple[str, ...]:
    """The matrices with a part of their outputs for every head."""
    match sublayer.op:
        case AttentionConfig():
            return ("q_proj",)
        case LatentAttentionConfig():
            return ("q_proj", "q_b_proj", "kv_b_proj")
    raise AssertionError(sublayer.op)


def _chosen(old: Tensor, dim: int, n: int, which: list[int]) -> Tensor:
    """Of `n` equal parts along a dimension, some."""
    parts = old.detach().unflatten(dim, (n, -1))
    chosen: Tensor = parts.index_select(dim, torch.tensor(which, device=old.device))
    return chosen.flatten(dim, dim + 1)
