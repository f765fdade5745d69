"""Whisper (Radford 2022): an encoder of sound, pre-norm; keys are projected without a bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    EmbedConfig,
    FramesConfig,
    HeadsConfig,
    LearnedPositions,
    StackConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import a
from clearhead.families.fairseq import ALL, IGNORES, NORM, Part, read_blocks, read_start, stack_rows, write_stacks
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED, rows
from clearhead.families.weights import Layout, Row

WRITER, BARE = "WhisperForConditionalGeneration", "WhisperModel"


def read(r: Reader) -> TransformerConfig:
    r.assume(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        dropout=0.0,
    )
    r.expect("is_encoder_decoder", True)
    d_model, context, dropout = r.get("d_model"), r.get("max_target_positions", 448), r.get("dropout")
    encoder = EmbedConfig(
        # The convolutions have this activation whatever the feed-forwards have.
        front=FramesConfig(n_mels=r.get("num_mel_bins", 80), activation="gelu"),
        positions=LearnedPositions(n=r.get("max_source_positions", 1500)),
        dropout=dropout,
    )
    decoder = EmbedConfig(
        front=TokensConfig(vocab_size=r.get("vocab_size", 51865)),
        positions=LearnedPositions(n=context),
        dropout=dropout,
    )

    def stack(part: Part, embed: EmbedConfig) -> StackConfig:
        return StackConfig(embed=embed, blocks=read_blocks(r, part, "pre", replace(ALL, k=False)), norm=NORM)

    head = TokenHeadConfig(tie=r.get("tie_word_embeddings", True))
    return TransformerConfig(
        d_model=d_model,
        encoder=stack("encoder", encoder),
        decoder=stack("decoder", decoder),
        heads=HeadsConfig(tokens=head if r.architecture == WRITER else None),
        context=context,
        ids=read_start(r, (50256, 50256, 50256), 50257),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    embed = a(StackConfig, config.encoder).embed
    return {
        **write_stacks(config, "max_target_positions"),
        "num_mel_bins": a(FramesConfig, embed.front).n_mels,
        "max_source_positions": a(LearnedPositions, embed.positions).n,
        **({} if config.heads.tokens is not None else {"architectures": [BARE]}),
    }


CONVOLUTIONS = {f"conv{i + 1}": f"embed.frames.{i}" for i in range(2)}
ENDS = {"embed_positions": "embed.positions", "layer_norm": "norm"}

WEIGHTS = (
    Row("model.decoder.embed_tokens.weight", "embed.tokens.weight"),
    *rows("model.encoder.", CONVOLUTIONS | ENDS, ours="encoder."),
    *rows("model.decoder.", ENDS, ours=""),
    *stack_rows("encoder", "pre"),
    *stack_rows("decoder", "pre"),
    Row("proj_out.weight", "head.weight", TIED),
)

FAMILY = Family(
    model_type="whisper",
    architectures=(WRITER, BARE),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, prefix="model."),
    ignores=IGNORES
    | frozenset(
        # No embedding is scaled, whatever the config says.
        "scale_embedding apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob "
        "mask_feature_length mask_feature_min_masks median_filter_width classifier_proj_size "
        "use_weighted_layer_sum".split()
    ),
)
