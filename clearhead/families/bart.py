"""BART (Lewis 2019): post-norm, learned positions from row 2 on, a norm after the embedding."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    EmbedConfig,
    HeadsConfig,
    LearnedPositions,
    StackConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.fairseq import IGNORES, NORM, Part, read_blocks, read_start, stack_rows, write_stacks
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED, rows
from clearhead.families.row_ops import Leading
from clearhead.families.weights import Layout, Row

WRITER, BARE = "BartForConditionalGeneration", "BartModel"
OFFSET = 2


def read(r: Reader) -> TransformerConfig:
    r.expect("is_encoder_decoder", True)
    r.expect("normalize_embedding", True)
    r.expect("tie_word_embeddings", True)
    for old in ("normalize_before", "add_final_layer_norm", "add_bias_logits", "static_position_embeddings"):
        r.expect(old, False)
    d_model, context = r.get("d_model", 1024), r.get("max_position_embeddings", 1024)
    embed = EmbedConfig(
        front=TokensConfig(vocab_size=r.get("vocab_size", 50265)),
        positions=LearnedPositions(n=context + OFFSET, offset=OFFSET),
        scale=d_model**0.5 if r.get("scale_embedding", False) else 1.0,
        norm=NORM,
        dropout=r.get("dropout", 0.1),
    )

    def stack(part: Part) -> StackConfig:
        return StackConfig(embed=embed, blocks=read_blocks(r, part, "after"))

    return TransformerConfig(
        d_model=d_model,
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        heads=HeadsConfig(tokens=TokenHeadConfig(bias=True) if r.architecture == WRITER else None),
        context=context,
        ids=read_start(r, (0, 2, 1), 2),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    bare = {} if config.heads.tokens is not None else {"architectures": [BARE]}
    return {**write_stacks(config, "max_position_embeddings"), **bare}


EMBED = {"embed_positions": "embed.positions", "layernorm_embedding": "embed.norm"}

WEIGHTS = (
    Row("model.shared.weight", "embed.tokens.weight"),
    # Older files repeat the shared table.
    Row("model.encoder.embed_tokens.weight", "encoder.embed.tokens.weight", TIED),
    Row("model.decoder.embed_tokens.weight", "decoder.embed.tokens.weight", TIED),
    *rows("model.encoder.", EMBED, ours="encoder."),
    *rows("model.decoder.", EMBED, ours=""),
    *stack_rows("encoder", "after"),
    *stack_rows("decoder", "after"),
    Row("lm_head.weight", "head.weight", TIED),
    Row("final_logits_bias", "head.bias", Leading(1)),
)

FAMILY = Family(
    model_type="bart",
    architectures=(WRITER, BARE),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=("model.encoder.version", "model.decoder.version"), prefix="model."),
    ignores=IGNORES,
)
