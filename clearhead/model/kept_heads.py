"""Which heads a model has, and which were cut off: in its config, and in the words of a config file.

Heads are counted within a sub-layer, which is named by its address (`layers.3.mixer`, `encoder.layers.0.mixer`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    KeptHeads,
    LatentAttentionConfig,
    StackConfig,
    SublayerConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.errors import ClearheadError

Config = TransformerConfig | TwoTowersConfig
MIXER = re.compile(r"layers\.(\d+)\.mixer")


def attention_layers(config: Config) -> dict[str, SublayerConfig]:
    """The sub-layers that have attention heads, by their addresses, in the order of the stacks."""
    return {
        f"{prefix}layers.{i}.{part}": sublayer
        for prefix, stack in stacks(config)
        for i, block in enumerate(stack.blocks)
        for part, sublayer in _sublayers(block)
    }


def head_counts(sublayer: SublayerConfig) -> tuple[int, int]:
    """How many heads and key-value heads there are; as many where each head has keys and values of its own."""
    match sublayer.op:
        case AttentionConfig(n_heads=n_heads, n_kv_heads=n_kv_heads):
            return n_heads, n_kv_heads
        case LatentAttentionConfig(n_heads=n_heads):
            return n_heads, n_heads
    raise AssertionError(f"{type(sublayer.op).__name__} has no attention heads")


def kept_in(sublayer: SublayerConfig) -> KeptHeads:
    """Which heads there are, where none was cut off too."""
    if sublayer.kept is not None:
        return sublayer.kept
    n_heads, n_kv_heads = head_counts(sublayer)
    return KeptHeads(heads=tuple(range(n_heads)), of=n_heads, of_kv=n_kv_heads)


def without(config: Config, cut: Mapping[str, Sequence[int]]) -> Any:
    """`config` without the heads in `cut`: {address: heads, as they are counted now}.

    Raises:
        ClearheadError: an address or a head that is not there, a sub-layer that would lose all of its heads, or heads
            that leave the others unevenly on the key-value heads.
    """
    layers = attention_layers(config)
    new = {}
    for address, heads in cut.items():
        if address not in layers:
            known = list(layers)
            some = f"there is {known[0]} to {known[-1]}" if known else "this model has no attention"
            raise ClearheadError(f"there are no attention heads at {address!r}; {some}")
        kept = kept_in(layers[address])
        n = len(kept.heads)
        strange = [head for head in heads if not 0 <= head < n]
        if strange:
            raise ClearheadError(f"{address} has no head {strange[0]}; its heads are 0 to {n - 1}")
        left = tuple(head for place, head in enumerate(kept.heads) if place not in set(heads))
        if not left:
            raise ClearheadError(f"all {n} heads of {address} are to be cut off; at least one must stay")
        try:
            new[address] = replace(kept, heads=left)
        except ClearheadError as problem:
            raise ClearheadError(f"{address}: {problem}") from problem
    return _with_kept(config, new)


def written(config: Config) -> dict[str, list[int]]:
    """What was cut off as a config file says it, "pruned_heads": {layer: heads, as they were counted at first}. A model
    of one stack has plain numbers for its layers, as `transformers` up to version 4 wrote and read them; others have
    the addresses of their sub-layers.
    """
    gone = {
        address: [head for head in range(kept.of) if head not in kept.heads]
        for address, kept in ((address, kept_in(layer)) for address, layer in attention_layers(config).items())
        if len(kept.heads) < kept.of
    }
    numbers = {address: MIXER.fullmatch(address) for address in attention_layers(config)}
    return {match[1] if all(numbers.values()) and (match := numbers[at]) else at: heads for at, heads in gone.items()}


def read(config: Config, said: Any) -> Any:
    """`config` without the heads that a config file's "pruned_heads" names.

    Raises:
        ClearheadError: it is no such mapping, or names what is not there.
    """
    lists = isinstance(said, Mapping) and all(
        isinstance(heads, list) and all(type(head) is int for head in heads) for heads in said.values()
    )
    if not lists:
        raise ClearheadError(f"pruned_heads is {said!r}; a mapping from layers to lists of heads is expected")
    cut = {f"layers.{at}.mixer" if str(at).isdigit() else str(at): heads for at, heads in said.items() if heads}
    return without(config, cut)


def restored(config: Config) -> Any:
    """`config` as it was before any head was cut off."""
    whole = {at: kept_in(layer) for at, layer in attention_layers(config).items() if layer.kept is not None}
    return _with_kept(config, {at: replace(kept, heads=tuple(range(kept.of))) for at, kept in whole.items()})


def stacks(config: Config, prefix: str = "") -> Iterator[tuple[str, StackConfig]]:
    """The stacks of a model by what the addresses in them begin with."""
    if isinstance(config, TwoTowersConfig):
        yield from stacks(config.text, "text.")
        yield from stacks(config.image, "image.")
        return
    yield prefix, config.stack
    if config.encoder is not None and config.decoder is not None:
        yield f"{prefix}encoder.", config.encoder


def _sublayers(block: BlockConfig) -> Iterator[tuple[str, SublayerConfig]]:
    for part, sublayer in (("mixer", block.mixer), ("cross", block.cross)):
        if sublayer is not None and isinstance(sublayer.op, AttentionConfig | LatentAttentionConfig):
            yield part, sublayer


def _with_kept(config: Config, kept: Mapping[str, KeptHeads], prefix: str = "") -> Any:
    """`config` with these heads in its sub-layers; the rest as it is."""
    if not kept:
        return config
    if isinstance(config, TwoTowersConfig):
        return replace(
            config, text=_with_kept(config.text, kept, "text."), image=_with_kept(config.image, kept, "image.")
        )
    inner = f"{prefix}encoder." if config.decoder is not None else prefix
    return replace(
        config,
        decoder=None if config.decoder is None else _stack_with(config.decoder, kept, prefix),
        encoder=None if config.encoder is None else _stack_with(config.encoder, kept, inner),
    )


def _stack_with(stack: StackConfig, kept: Mapping[str, KeptHeads], begins: str) -> StackConfig:
    blocks = []
    for i, block in enumerate(stack.blocks):
        parts = dict(_sublayers(block))
        found = {part: kept.get(f"{begins}layers.{i}.{part}") for part in parts}
        parts |= {part: _sublayer_with(parts[part], heads) for part, heads in found.items() if heads is not None}
        blocks.append(replace(block, mixer=parts.get("mixer", block.mixer), cross=parts.get("cross", block.cross)))
    return replace(stack, blocks=tuple(blocks))


def _sublayer_with(sublayer: SublayerConfig, kept: KeptHeads) -> SublayerConfig:
    n_heads, n_groups = len(kept.heads), len(kept.groups)
    match sublayer.op:
        case AttentionConfig() as op:
            new: AttentionConfig | LatentAttentionConfig = replace(op, n_heads=n_heads, n_kv_heads=n_groups)
        case LatentAttentionConfig() as op:
            new = replace(op, n_heads=n_heads)
    return replace(sublayer, op=new, kept=kept if n_heads < kept.of else None)
