"""What models that began in fairseq spell alike: an encoder and a decoder with the same names in both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    FeedForwardConfig,
    MaskConfig,
    NormConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, read_ids, write_ids
from clearhead.families.family import Reader
from clearhead.families.layouts import rows
from clearhead.families.weights import Row

NORM = NormConfig(kind="layer", eps=1e-5, bias=True)
ALL = BiasConfig(q=True, k=True, v=True, o=True)
IGNORES = frozenset(
    "init_std encoder_layerdrop decoder_layerdrop num_hidden_layers _num_labels classif_dropout "
    "extra_pos_embeddings gradient_checkpointing force_bos_token_to_be_generated save_step max_time "
    "forced_decoder_ids replacing_rate student_encoder_layers student_decoder_layers".split()
)

Part = Literal["encoder", "decoder"]


def read_blocks(
    r: Reader, part: Part, place: Literal["pre", "after"], bias: BiasConfig = ALL
) -> tuple[BlockConfig, ...]:
    """The blocks of one of the two stacks, their norms before each sub-layer or after it."""
    d_model, n_heads = r.get("d_model", 1024), r.get(f"{part}_attention_heads", 16)
    dropout = r.get("dropout", 0.1)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=bias,
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        mask=MaskConfig(kind="full"),
    )
    feed_forward = FeedForwardConfig(
        d_ff=r.get(f"{part}_ffn_dim", 4096),
        activation=r.choose("activation_function", ACTIVATION_NAMES, "gelu"),
        gated=False,
        bias=True,
        dropout=r.get("activation_dropout", 0.0),
    )

    def sublayer(op: AttentionConfig | FeedForwardConfig) -> SublayerConfig:
        pre, after = (NORM, None) if place == "pre" else (None, NORM)
        return SublayerConfig(op=op, pre=pre, after=after, dropout=dropout)

    decodes = part == "decoder"
    block = BlockConfig(
        mixer=sublayer(replace(attention, mask=MaskConfig(kind="causal" if decodes else "full"))),
        cross=sublayer(attention) if decodes else None,
        ffn=sublayer(feed_forward),
    )
    n_layers: int = r.get(f"{part}_layers", 12)
    return (block,) * n_layers


def read_start(r: Reader, ids: tuple[int | None, int | None, int | None], start: int | None) -> TokenIds:
    """The special tokens; `ids` are what absent keys mean of the first, the last and the padding token."""
    bos, eos, pad = ids
    return replace(read_ids(r, bos, eos, pad), decoder_start=r.get("decoder_start_token_id", start))


def write_stacks(config: TransformerConfig, positions: str) -> dict[str, Any]:
    """What both stacks and the ends say. `positions` is the name of the key for the longest text."""
    decoder, encoder = a(StackConfig, config.decoder), a(StackConfig, config.encoder)
    first = decoder.blocks[0]
    feed_forward = a(FeedForwardConfig, a(SublayerConfig, first.ffn).op)
    head = config.heads.tokens
    return {
        **_write_part(encoder, "encoder"),
        **_write_part(decoder, "decoder"),
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        positions: config.context,
        "activation_function": published_activation(a(str, feed_forward.activation), tanh="gelu_new"),
        "dropout": first.mixer.dropout,
        "attention_dropout": a(AttentionConfig, first.mixer.op).scores.dropout,
        "activation_dropout": feed_forward.dropout,
        "scale_embedding": decoder.embed.scale != 1.0,
        "tie_word_embeddings": head is None or a(TokenHeadConfig, head).tie,
        "is_encoder_decoder": True,
        "decoder_start_token_id": config.ids.decoder_start,
        **write_ids(config.ids),
    }


def _write_part(stack: StackConfig, part: Part) -> dict[str, Any]:
    first = stack.blocks[0]
    return {
        f"{part}_layers": len(stack.blocks),
        f"{part}_attention_heads": a(AttentionConfig, first.mixer.op).n_heads,
        f"{part}_ffn_dim": a(FeedForwardConfig, a(SublayerConfig, first.ffn).op).d_ff,
    }


def stack_rows(part: Part, place: Literal["pre", "after"]) -> tuple[Row, ...]:
    """Rows of one of the two stacks."""
    ours = "encoder.layers.{l}." if part == "encoder" else "layers.{l}."
    attentions = {"self_attn": "mixer", "encoder_attn": "cross"} if part == "decoder" else {"self_attn": "mixer"}
    names = {"fc1": "ffn.up_proj", "fc2": "ffn.down_proj", "final_layer_norm": f"ffn_norm.{place}"}
    for theirs, mine in attentions.items():
        names |= {f"{theirs}.{x}_proj": f"{mine}.{x}_proj" for x in "qkv"}
        names |= {f"{theirs}.out_proj": f"{mine}.o_proj", f"{theirs}_layer_norm": f"{mine}_norm.{place}"}
    return rows(f"model.{part}.layers.{{l}}.", names, ours=ours)
