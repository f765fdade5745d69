"""From many key-value heads to few: a trained model with grouped queries (Ainslie 2023)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    LatentAttentionConfig,
    SublayerConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer


def grouped(model: Transformer, n_kv_heads: int) -> Transformer:
    """A new model whose decoder has `n_kv_heads` key-value heads, each the mean of a group of `model`'s (Ainslie 2023,
    section 2.1); all else is shared with `model`. It is where training goes on from: until then it is worse.

    Raises:
        ClearheadError: the heads don't fall into so many equal groups, or there are none.
    """
    config = grouped_config(model.config, n_kv_heads)
    with torch.device("meta"):
        new = Transformer(config)
    for path, module in new.named_modules():
        old = model.get_submodule(path)
        for leaf, wanted in list(module.named_parameters(recurse=False)):
            kept = old.get_parameter(leaf)
            if kept.shape != wanted.shape:
                kept = nn.Parameter(_pooled(kept, n_kv_heads, wanted.shape[0] // n_kv_heads), kept.requires_grad)
            setattr(module, leaf, kept)
    new.tokenizer, new.origin = model.tokenizer, model.origin
    return new.train(model.training)


def grouped_config(config: TransformerConfig | TwoTowersConfig, n_kv_heads: int) -> TransformerConfig:
    """`config` with so many key-value heads in its decoder, where each token waits for their memory to be read."""
    if isinstance(config, TwoTowersConfig) or config.decoder is None:
        raise ClearheadError("only a decoder gains by fewer key-value heads, and this model has none")
    if n_kv_heads < 1:
        raise ClearheadError(f"{n_kv_heads} key-value heads are asked for; there must be at least 1")
    blocks = [_grouped_block(block, layer, n_kv_heads) for layer, block in enumerate(config.decoder.blocks)]
    if not any(isinstance(block.mixer.op, AttentionConfig) for block in blocks):
        raise ClearheadError(f"this model has no key-value heads: its mixers are {type(blocks[0].mixer.op).__name__}")
    return replace(config, decoder=replace(config.decoder, blocks=tuple(blocks)))


def _grouped_block(block: BlockConfig, layer: int, n_kv_heads: int) -> BlockConfig:
    mixer = _grouped_sublayer(block.mixer, layer, n_kv_heads)
    cross = None if block.cross is None else _grouped_sublayer(block.cross, layer, n_kv_heads)
    return replace(block, mixer=mixer, cross=cross)


def _grouped_sublayer(sublayer: SublayerConfig, layer: int, n_kv_heads: int) -> SublayerConfig:
    op = sublayer.op
    if isinstance(op, LatentAttentionConfig):
        raise ClearheadError(
            f"layer {layer} has latent attention, which keeps one vector a token and no key-value heads to pool"
        )
    if not isinstance(op, AttentionConfig):
        return sublayer
    if op.n_kv_heads % n_kv_heads:
        divisors = ", ".join(str(n) for n in range(1, op.n_kv_heads + 1) if op.n_kv_heads % n == 0)
        raise ClearheadError(
            f"the {op.n_kv_heads} key-value heads of layer {layer} don't fall into {n_kv_heads} equal groups; "
            f"possible are {divisors}"
        )
    return replace(sublayer, op=replace(op, n_kv_heads=n_kv_heads))


def _pooled(old: Tensor, n_kv_heads: int, d_head: int) -> Tensor:
    """The mean over each group of neighbouring heads, of rows (G * K, ...) to (n * K, ...); summed in float64, so that
    equal heads give themselves.
    """
    with torch.no_grad():
        heads = old.double().unflatten(0, (n_kv_heads, -1, d_head))
        means: Tensor = heads.mean(1)
    return means.flatten(0, 1).to(old.dtype)
