"""T5 (Raffel 2020), version 1.1 and Flan: relative bias for positions, unscaled scores, RMSNorm before, no biases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    MaskConfig,
    NormConfig,
    RelativeBiasConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, write_ids
from clearhead.families.fairseq import read_start
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED
from clearhead.families.weights import Layout, Row

WRITER, BARE, ENCODER = "T5ForConditionalGeneration", "T5Model", "T5EncoderModel"


def read(r: Reader) -> TransformerConfig:
    r.get("is_encoder_decoder")
    d_model, n_heads, n_layers = r.get("d_model", 512), r.get("num_heads", 8), r.get("num_layers", 6)
    n_decoder_layers, dropout = r.get("num_decoder_layers", n_layers), r.get("dropout_rate", 0.1)
    tie = r.get("tie_word_embeddings", True)
    # The older sign of version 1.1, whose decoder's output is not scaled, is that the head is not tied.
    scaled = r.get("scale_decoder_outputs", tie)
    tie = not r.get("own_head", not tie)
    norm = NormConfig(eps=r.get("layer_norm_epsilon", 1e-6))
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=r.get("d_kv", 64),
        scores=ScoresConfig(scale=1.0, dropout=dropout),
        mask=MaskConfig(kind="full"),
    )
    distances = RelativeBiasConfig(
        n_buckets=r.get("relative_attention_num_buckets", 32),
        max_distance=r.get("relative_attention_max_distance", 128),
    )
    feed_forward = replace(read_feed_forward(r), dropout=dropout)
    embed = EmbedConfig(front=TokensConfig(vocab_size=r.get("vocab_size", 32128)), dropout=dropout)

    def sublayer(op: AttentionConfig | FeedForwardConfig) -> SublayerConfig:
        return SublayerConfig(op=op, pre=norm, dropout=dropout)

    def stack(n: int, decodes: bool) -> StackConfig:
        mask = MaskConfig(kind="causal" if decodes else "full")
        block = BlockConfig(
            mixer=sublayer(replace(attention, mask=mask, positions=distances)),
            cross=sublayer(attention) if decodes else None,
            ffn=sublayer(feed_forward),
        )
        return StackConfig(embed=embed, blocks=(block,) * n, norm=norm)

    head = TokenHeadConfig(tie=tie, scale=d_model**-0.5 if scaled else 1.0)
    return TransformerConfig(
        d_model=d_model,
        encoder=stack(n_layers, decodes=False),
        decoder=None if r.architecture == ENCODER else stack(n_decoder_layers, decodes=True),
        heads=HeadsConfig(tokens=head if r.architecture == WRITER else None),
        ids=read_start(r, (None, 1, 0), 0),
    )


def read_feed_forward(r: Reader) -> FeedForwardConfig:
    """relu, gated-gelu, gated-silu ...; newer files say it in two more keys."""
    named = r.get("feed_forward_proj", "relu")
    *gated, activation = named.split("-")
    if gated not in ([], ["gated"]):
        raise ClearheadError(f"{r.where}: feed_forward_proj is {named!r}; relu or gated-gelu or the like is expected")
    r.assume(dense_act_fn="gelu_new" if named == "gated-gelu" else activation, is_gated_act=bool(gated))
    return FeedForwardConfig(
        d_ff=r.get("d_ff", 2048),
        activation=r.choose("dense_act_fn", ACTIVATION_NAMES, "relu"),
        gated=r.get("is_gated_act"),
    )


def own_head(raw: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """The head is the embedding's table only where the file has none, whatever the config says."""
    return {"own_head": "lm_head.weight" in tensors}


def write(config: TransformerConfig) -> dict[str, Any]:
    encoder, decoder, head = a(StackConfig, config.encoder), config.decoder, config.heads.tokens
    first = encoder.blocks[0]
    attention, ffn = a(AttentionConfig, first.mixer.op), a(FeedForwardConfig, a(SublayerConfig, first.ffn).op)
    distances, activation = a(RelativeBiasConfig, attention.positions), a(str, ffn.activation)
    published = published_activation(activation, tanh="gelu_new")
    named = "gelu" if ffn.gated and activation == "gelu_tanh" else published
    return {
        "architectures": [WRITER if head is not None else ENCODER if decoder is None else BARE],
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": attention.d_head,
        "d_ff": ffn.d_ff,
        "num_layers": len(encoder.blocks),
        "num_decoder_layers": len((decoder or encoder).blocks),
        "num_heads": attention.n_heads,
        "relative_attention_num_buckets": distances.n_buckets,
        "relative_attention_max_distance": distances.max_distance,
        "dropout_rate": first.mixer.dropout,
        "layer_norm_epsilon": a(NormConfig, first.mixer.pre).eps,
        "feed_forward_proj": f"gated-{named}" if ffn.gated else named,
        "dense_act_fn": published,
        "is_gated_act": ffn.gated,
        "tie_word_embeddings": head is None or head.tie,
        "scale_decoder_outputs": head is None or head.scale != 1.0,
        "is_encoder_decoder": decoder is not None,
        "decoder_start_token_id": config.ids.decoder_start,
        # Most have no token to begin with, and do not say so.
        **{key: value for key, value in write_ids(config.ids).items() if value is not None},
    }


def models(alone: bool, gated: bool | None = None) -> Callable[[TransformerConfig], bool]:
    """Which models have a row: encoders alone or with a decoder, with gated feed-forwards or plain ones."""

    def hold(config: TransformerConfig) -> bool:
        ffn = a(FeedForwardConfig, a(SublayerConfig, config.stack.blocks[0].ffn).op)
        return (config.decoder is None) == alone and gated in (None, ffn.gated)

    return hold


def stack_rows(theirs: str, ours: str, *parts: str, alone: bool = False) -> tuple[Row, ...]:
    """Rows of a stack, whose layers in the file are lists of `parts`."""
    every = models(alone)
    found = [
        Row(f"{theirs}.final_layer_norm.weight", f"{ours}norm.weight", when=every),
        Row(f"{theirs}.block.0.layer.0.{MIXER}.relative_attention_bias.weight", f"{ours}relative.weight", when=every),
    ]
    for i, part in enumerate(parts):
        file, layer = f"{theirs}.block.{{l}}.layer.{i}.", f"{ours}layers.{{l}}."
        found.append(Row(f"{file}layer_norm.weight", f"{layer}{part}_norm.pre.weight", when=every))
        if part != "ffn":
            kind = MIXER if part == "mixer" else CROSS
            found += [Row(f"{file}{kind}.{x}.weight", f"{layer}{part}.{x}_proj.weight", when=every) for x in "qkvo"]
            continue
        names = {"wi": ("up", False), "wi_0": ("gate", True), "wi_1": ("up", True), "wo": ("down", None)}
        for name, (ffn, gated) in names.items():
            row = Row(f"{file}DenseReluDense.{name}.weight", f"{layer}ffn.{ffn}_proj.weight", when=models(alone, gated))
            found.append(row)
    return tuple(found)


MIXER, CROSS = "SelfAttention", "EncDecAttention"

WEIGHTS = (
    Row("shared.weight", "embed.tokens.weight"),
    # Older files repeat the shared table.
    Row("encoder.embed_tokens.weight", "encoder.embed.tokens.weight", TIED),
    Row("decoder.embed_tokens.weight", "decoder.embed.tokens.weight", TIED),
    *stack_rows("encoder", "encoder.", "mixer", "ffn"),
    *stack_rows("decoder", "", "mixer", "cross", "ffn"),
    *stack_rows("encoder", "", "mixer", "ffn", alone=True),
    Row("lm_head.weight", "head.weight", TIED),
)

FAMILY = Family(
    model_type="t5",
    architectures=(WRITER, BARE, ENCODER),
    config=read,
    to_hf=write,
    # Of a bias of cross-attention that nothing adds.
    weights=Layout(
        WEIGHTS, skips=(f"decoder.block.0.layer.1.{CROSS}.relative_attention_bias.weight",), spares=("decoder.",)
    ),
    ignores=frozenset("initializer_factor n_positions gradient_checkpointing".split()),
    told=own_head,
)
