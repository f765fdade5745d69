"""GPT-NeoX and Pythia (Black 2022; Biderman 2023): halves of a block read the same x; a quarter of a head turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    FeedForwardConfig,
    NormConfig,
    RotaryConfig,
    ScoresConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, ANSWER, CLASSIFY, TAG, a, write_heads, write_ids
from clearhead.families.decoders import (
    architectures,
    attention_of,
    pre_norm,
    read_biases,
    read_decoder,
    write_feed_forward,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import LABELS_BY_CLASS, QKV, TIED, fused, rows
from clearhead.families.rope import read_rotary, write_rotary
from clearhead.families.row_ops import PerHead
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("GPTNeoX", CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    r.assume(vocab_size=50432, hidden_size=6144, max_position_embeddings=2048, attention_bias=True)
    n_heads, dropout = r.get("num_attention_heads", 64), r.get("hidden_dropout", 0.0)
    norm = NormConfig(kind="layer", eps=r.get("layer_norm_eps", 1e-5), bias=True)
    theta, fraction = r.get("rotary_emb_base", 10000.0), r.get("rotary_pct", 0.25)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=r.get("hidden_size") // n_heads,
        bias=read_biases(r),
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        positions=read_rotary(r, r.get("max_position_embeddings"), theta, fraction),
    )
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 24576),
        activation=r.choose("hidden_act", ACTIVATION_NAMES, "gelu"),
        gated=False,
        bias=True,
    )
    block = replace(pre_norm(attention, feed_forward, norm, dropout), parallel=r.get("use_parallel_residual", True))
    config = read_decoder(r, (block,) * r.get("num_hidden_layers", 44), norm, ids=(0, 2, None))
    stack = config.stack
    return replace(config, decoder=replace(stack, embed=replace(stack.embed, dropout=dropout)))


def write(config: TransformerConfig) -> dict[str, Any]:
    block, attention = config.stack.blocks[0], attention_of(config)
    rotary = a(RotaryConfig, attention.positions)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(config.stack.blocks),
        "num_attention_heads": attention.n_heads,
        **write_feed_forward(a(FeedForwardConfig, a(SublayerConfig, block.ffn).op)),
        "max_position_embeddings": config.context,
        "layer_norm_eps": a(NormConfig, block.mixer.pre).eps,
        "rope_parameters": {**write_rotary(rotary), "partial_rotary_factor": rotary.fraction},
        "use_parallel_residual": block.parallel,
        "attention_bias": attention.bias.q,
        "attention_dropout": attention.scores.dropout,
        "hidden_dropout": block.mixer.dropout,
        **write_heads(config.heads, ARCHITECTURES),
        **write_ids(config.ids),
    }


LAYER = "gpt_neox.layers.{l}."
NAMES = {
    "input_layernorm": "mixer_norm.pre",
    "post_attention_layernorm": "ffn_norm.pre",
    "attention.dense": "mixer.o_proj",
    "mlp.dense_h_to_4h": "ffn.up_proj",
    "mlp.dense_4h_to_h": "ffn.down_proj",
}
WEIGHTS = (
    Row("gpt_neox.embed_in.weight", "embed.tokens.weight"),
    *rows(LAYER, NAMES),
    *fused(f"{LAYER}attention.query_key_value", tuple(f"mixer.{name}" for name in QKV), PerHead()),
    *rows("gpt_neox.", {"final_layer_norm": "norm"}, ours=""),
    Row("embed_out.weight", "head.weight", TIED),
    *LABELS_BY_CLASS,
)
# The masks and rotary tables of older files.
BUFFERS = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")

FAMILY = Family(
    model_type="gpt_neox",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=tuple(LAYER + name for name in BUFFERS), prefix="gpt_neox."),
    ignores=frozenset({"attention_probs_dropout_prob", "hidden_dropout_prob"}),
)
