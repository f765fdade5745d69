"""Llama 2, 3, 3.1 (scaled rotary) and 3.2 (tied) (Touvron 2023; Llama team 2024)."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    NormConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, read_ids, write_ids
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.rope import read_rotary, write_rotary
from clearhead.families.weights import Layout, RopeOrder, Row, Tied


def read(r: Reader) -> TransformerConfig:
    d_model, n_heads = r.get("hidden_size", 4096), r.get("num_attention_heads", 32)
    context = r.get("max_position_embeddings", 2048)
    norm = NormConfig(eps=r.get("rms_norm_eps", 1e-6))
    bias = r.get("attention_bias", False)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=r.get("num_key_value_heads", n_heads),
        d_head=r.get("head_dim", d_model // n_heads),
        bias=BiasConfig(q=bias, k=bias, v=bias, o=bias),
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        positions=read_rotary(r, context),
    )
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 11008),
        activation=r.choose("hidden_act", ACTIVATION_NAMES, "silu"),
        bias=r.get("mlp_bias", False),
    )
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm), ffn=SublayerConfig(op=feed_forward, pre=norm))
    return TransformerConfig(
        d_model=d_model,
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=r.get("vocab_size", 32000))),
            blocks=(block,) * r.get("num_hidden_layers", 32),
            norm=norm,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=r.get("tie_word_embeddings", False))),
        context=context,
        ids=read_ids(r, bos=1, eos=2),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, block = config.stack, config.stack.blocks[0]
    attention, head = a(AttentionConfig, block.mixer.op), a(TokenHeadConfig, config.heads.tokens)
    feed_forward = a(FeedForwardConfig, a(SublayerConfig, block.ffn).op)
    return {
        "vocab_size": stack.embed.front.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": feed_forward.d_ff,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        "head_dim": attention.d_head,
        "hidden_act": published_activation(feed_forward.activation),
        "max_position_embeddings": config.context,
        "rms_norm_eps": a(NormConfig, block.mixer.pre).eps,
        "tie_word_embeddings": head.tie,
        "rope_parameters": write_rotary(a(RotaryConfig, attention.positions)),
        "attention_bias": attention.bias.q,
        "attention_dropout": attention.scores.dropout,
        "mlp_bias": feed_forward.bias,
        **write_ids(config.ids),
    }


WEIGHTS = (
    Row("model.embed_tokens.weight", "embed.tokens.weight"),
    Row("model.layers.{l}.input_layernorm.weight", "layers.{l}.mixer_norm.pre.weight"),
    *(
        Row(f"model.layers.{{l}}.self_attn.{name}.{kind}", f"layers.{{l}}.mixer.{name}.{kind}")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj")
        for kind in ("weight", "bias")
    ),
    Row("model.layers.{l}.post_attention_layernorm.weight", "layers.{l}.ffn_norm.pre.weight"),
    *(
        Row(f"model.layers.{{l}}.mlp.{name}.{kind}", f"layers.{{l}}.ffn.{name}.{kind}")
        for name in ("gate_proj", "up_proj", "down_proj")
        for kind in ("weight", "bias")
    ),
    Row("model.norm.weight", "norm.weight"),
    Row("lm_head.weight", "head.weight", Tied("embed.tokens.weight")),
)

GGUF_WEIGHTS = (
    Row("token_embd.weight", "embed.tokens.weight"),
    Row("blk.{l}.attn_norm.weight", "layers.{l}.mixer_norm.pre.weight"),
    *(
        row
        for kind in ("weight", "bias")
        for row in (
            Row(f"blk.{{l}}.attn_q.{kind}", f"layers.{{l}}.mixer.q_proj.{kind}", RopeOrder()),
            Row(f"blk.{{l}}.attn_k.{kind}", f"layers.{{l}}.mixer.k_proj.{kind}", RopeOrder()),
            Row(f"blk.{{l}}.attn_v.{kind}", f"layers.{{l}}.mixer.v_proj.{kind}"),
            Row(f"blk.{{l}}.attn_output.{kind}", f"layers.{{l}}.mixer.o_proj.{kind}"),
            Row(f"blk.{{l}}.ffn_gate.{kind}", f"layers.{{l}}.ffn.gate_proj.{kind}"),
            Row(f"blk.{{l}}.ffn_up.{kind}", f"layers.{{l}}.ffn.up_proj.{kind}"),
            Row(f"blk.{{l}}.ffn_down.{kind}", f"layers.{{l}}.ffn.down_proj.{kind}"),
        )
    ),
    Row("blk.{l}.ffn_norm.weight", "layers.{l}.ffn_norm.pre.weight"),
    Row("output_norm.weight", "norm.weight"),
    Row("output.weight", "head.weight", Tied("embed.tokens.weight")),
)


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    d_model, n_heads = r.need("embedding_length"), r.need("attention.head_count")
    r.get("rope.dimension_count")
    r.get("vocab_size")
    r.get("attention.value_length")
    return {
        "vocab_size": file.shapes["token_embd.weight"][0],
        "hidden_size": d_model,
        "intermediate_size": r.need("feed_forward_length"),
        "num_hidden_layers": r.need("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": r.get("attention.head_count_kv", n_heads),
        "head_dim": r.get("attention.key_length", d_model // n_heads),
        "max_position_embeddings": r.need("context_length"),
        "rms_norm_eps": r.need("attention.layer_norm_rms_epsilon"),
        "rope_theta": r.get("rope.freq_base", 10000.0),
        "rope_scaling": _factors(file) or gguf_scaling(r),
        "attention_bias": "blk.0.attn_q.bias" in file.shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in file.shapes,
        "tie_word_embeddings": "output.weight" not in file.shapes,
    }


def _factors(file: GGUFFile) -> dict[str, Any] | None:
    """Llama 3.1's scaling, which the file gives as one divisor a frequency."""
    if "rope_freqs.weight" not in file.shapes:
        return None
    divisors = file.numbers("rope_freqs.weight")
    return {
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "factor": 1.0,
        "attention_factor": 1.0,
    }


def gguf_scaling(r: Reader) -> dict[str, Any] | None:
    """Rotary scaling as GGUF metadata has it."""
    kind = r.get("rope.scaling.type", "none")
    factor, trained = r.get("rope.scaling.factor"), r.get("rope.scaling.original_context_length")
    r.get("rope.scaling.finetuned")
    if kind == "none":
        return None
    return {"rope_type": kind, "factor": factor, "original_max_position_embeddings": trained}


FAMILY = Family(
    model_type="llama",
    architectures=("LlamaForCausalLM",),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=("model.layers.{l}.self_attn.rotary_emb.inv_freq",)),
    gguf=GGUF(architecture="llama", config=from_gguf, weights=Layout(GGUF_WEIGHTS, skips=("rope_freqs.weight",))),
)
