"""Marian (Junczys-Dowmunt 2018): the Transformer of 2017 as it is on disk, post-norm and with sinusoidal positions."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    EmbedConfig,
    HeadsConfig,
    SinusoidalPositions,
    StackConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import a
from clearhead.families.fairseq import IGNORES, Part, read_blocks, read_start, stack_rows, write_stacks
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED
from clearhead.families.row_ops import Leading
from clearhead.families.weights import Layout, Row

TRANSLATOR, BARE = "MarianMTModel", "MarianModel"


def read(r: Reader) -> TransformerConfig:
    r.expect("is_encoder_decoder", True)
    r.expect("static_position_embeddings", True)
    for old in ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"):
        r.expect(old, False)
    d_model, context = r.get("d_model", 1024), r.get("max_position_embeddings", 1024)
    vocab_size, shared = r.get("vocab_size", 58101), r.get("share_encoder_decoder_embeddings", True)
    decoder_size = r.get("decoder_vocab_size", vocab_size)
    scale = d_model**0.5 if r.get("scale_embedding", False) else 1.0
    if shared:
        r.expect("tie_word_embeddings", True)

    def stack(part: Part, size: int) -> StackConfig:
        embed = EmbedConfig(
            front=TokensConfig(vocab_size=size),
            positions=SinusoidalPositions(n=context, layout="halves"),
            scale=scale,
            dropout=r.get("dropout", 0.1),
        )
        return StackConfig(embed=embed, blocks=read_blocks(r, part, "after"))

    head = TokenHeadConfig(tie=r.get("tie_word_embeddings", True), bias=True)
    return TransformerConfig(
        d_model=d_model,
        encoder=stack("encoder", vocab_size),
        decoder=stack("decoder", vocab_size if shared else decoder_size),
        heads=HeadsConfig(tokens=head if r.architecture == TRANSLATOR else None),
        share_tokens=shared,
        context=context,
        ids=read_start(r, (None, 0, 58100), 58100),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    return {
        **write_stacks(config, "max_position_embeddings"),
        "vocab_size": a(TokensConfig, a(StackConfig, config.encoder).embed.front).vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.share_tokens,
        **({} if config.heads.tokens is not None else {"architectures": [BARE]}),
    }


def shares(config: TransformerConfig) -> bool:
    return config.share_tokens


def keeps_apart(config: TransformerConfig) -> bool:
    return not config.share_tokens


WEIGHTS = (
    Row("model.shared.weight", "embed.tokens.weight", when=shares),
    Row("model.decoder.embed_tokens.weight", "embed.tokens.weight", when=keeps_apart),
    Row("model.encoder.embed_tokens.weight", "encoder.embed.tokens.weight", TIED),
    # Older files repeat the shared table.
    Row("model.decoder.embed_tokens.weight", "decoder.embed.tokens.weight", TIED, when=shares),
    *stack_rows("encoder", "after"),
    *stack_rows("decoder", "after"),
    Row("lm_head.weight", "head.weight", TIED),
    Row("final_logits_bias", "head.bias", Leading(1)),
)

FAMILY = Family(
    model_type="marian",
    architectures=(TRANSLATOR, BARE),
    config=read,
    to_hf=write,
    weights=Layout(
        WEIGHTS,
        skips=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
        prefix="model.",
    ),
    ignores=IGNORES,
)
