"""DeepSeek-V3 and R1: latent attention, and many small experts of which one is always asked (DeepSeek-AI 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    LatentAttentionConfig,
    LatentWidths,
    NormConfig,
    RouterConfig,
    ScoresConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, write_heads, write_ids
from clearhead.families.decoders import read_decoder
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import EMBEDDING, ENDS, FEED_FORWARD, LAYER, OLD_ROTARY, PRE_NORMS, experts, rows
from clearhead.families.rope import read_rotary, write_rotary
from clearhead.families.weights import Layout, Row

ARCHITECTURES = (
    "DeepseekV3ForCausalLM",
    "DeepseekV3Model",
    "DeepseekV3ForSequenceClassification",
    "DeepseekV3ForTokenClassification",
)
LATENT_NORM = NormConfig(eps=1e-6)
"""Whatever rms_norm_eps says."""


def read(r: Reader) -> TransformerConfig:
    r.assume(hidden_size=7168, vocab_size=129280, num_hidden_layers=61, max_position_embeddings=4096)
    norm, n_layers = NormConfig(eps=r.get("rms_norm_eps", 1e-6)), r.get("num_hidden_layers")
    n_dense = min(r.get("first_k_dense_replace", 3), n_layers)
    attention, experts = _read_attention(r), _read_experts(r)
    dense = replace(experts.expert, d_ff=r.get("intermediate_size", 18432)) if n_dense else experts
    blocks = [
        BlockConfig(
            mixer=SublayerConfig(op=attention, pre=norm),
            ffn=SublayerConfig(op=dense if layer < n_dense else experts, pre=norm),
        )
        for layer in range(n_layers)
    ]
    return read_decoder(r, blocks, norm, (0, 1, None))


def _read_attention(r: Reader) -> LatentAttentionConfig:
    n_heads = r.get("num_attention_heads", 128)
    r.expect("num_key_value_heads", n_heads)
    r.assume(q_lora_rank=1536)
    rotary = read_rotary(r, r.get("max_position_embeddings"))
    return LatentAttentionConfig(
        n_heads=n_heads,
        widths=LatentWidths(
            q=r.optional("q_lora_rank"),
            kv=r.get("kv_lora_rank", 512),
            nope=r.get("qk_nope_head_dim", 128),
            rope=r.get("qk_rope_head_dim", 64),
            value=r.get("v_head_dim", 128),
        ),
        norm=LATENT_NORM,
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        positions=replace(rotary, interleaved=r.get("rope_interleave", True)),
        bias=r.get("attention_bias", False),
    )


def _read_experts(r: Reader) -> ExpertsConfig:
    for name, understood in (("scoring_func", "sigmoid"), ("topk_method", "noaux_tc"), ("moe_layer_freq", 1)):
        r.expect(name, understood)
    expert = FeedForwardConfig(
        d_ff=r.get("moe_intermediate_size", 2048), activation=r.choose("hidden_act", ACTIVATION_NAMES, "silu")
    )
    return ExpertsConfig(
        n_experts=r.get("n_routed_experts", r.get("num_local_experts", 256)),
        n_chosen=r.get("num_experts_per_tok", 8),
        expert=expert,
        router=RouterConfig(
            score="sigmoid",
            renormalise=r.get("norm_topk_prob", True),
            scale=float(r.get("routed_scaling_factor", 2.5)),
            n_groups=r.get("n_group", 8),
            n_chosen_groups=r.get("topk_group", 4),
            correction=True,
        ),
        shared=replace(expert, d_ff=expert.d_ff * r.get("n_shared_experts", 1)),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    blocks = config.stack.blocks
    attention = a(LatentAttentionConfig, blocks[0].mixer.op)
    feed_forwards = [a(SublayerConfig, block.ffn).op for block in blocks]
    dense = [op for op in feed_forwards if isinstance(op, FeedForwardConfig)]
    experts = [op for op in feed_forwards if isinstance(op, ExpertsConfig)]
    out = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(blocks),
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_heads,
        "q_lora_rank": attention.widths.q,
        "kv_lora_rank": attention.widths.kv,
        "qk_nope_head_dim": attention.widths.nope,
        "qk_rope_head_dim": attention.widths.rope,
        "v_head_dim": attention.widths.value,
        "rope_interleave": attention.positions.interleaved,
        "rope_parameters": write_rotary(attention.positions),
        "attention_bias": attention.bias,
        "attention_dropout": attention.scores.dropout,
        "max_position_embeddings": config.context,
        "rms_norm_eps": a(NormConfig, blocks[0].mixer.pre).eps,
        "first_k_dense_replace": len(dense),
        **write_heads(config.heads, ARCHITECTURES),
        **write_ids(config.ids),
    }
    if dense:
        out |= {"intermediate_size": dense[0].d_ff, "hidden_act": published_activation(a(str, dense[0].activation))}
    return out | (_write_experts(experts[0]) if experts else {})


def _write_experts(experts: ExpertsConfig) -> dict[str, Any]:
    router, d_ff = experts.router, experts.expert.d_ff
    return {
        "hidden_act": published_activation(a(str, experts.expert.activation)),
        "moe_intermediate_size": d_ff,
        "n_routed_experts": experts.n_experts,
        "n_shared_experts": a(FeedForwardConfig, experts.shared).d_ff // d_ff,
        "num_experts_per_tok": experts.n_chosen,
        "n_group": router.n_groups,
        "topk_group": router.n_chosen_groups,
        "norm_topk_prob": router.renormalise,
        "routed_scaling_factor": router.scale,
    }


ATTENTION = {
    "q_proj": "q_proj",
    "q_a_proj": "q_a_proj",
    "q_a_layernorm": "q_a_norm",
    "q_b_proj": "q_b_proj",
    "kv_a_proj_with_mqa": "kv_a_proj",
    "kv_a_layernorm": "kv_a_norm",
    "kv_b_proj": "kv_b_proj",
    "o_proj": "o_proj",
}
GATED = {f"{part}_proj": f"{part}_proj" for part in ("gate", "up", "down")}
LAYERS = (
    *rows(LAYER, PRE_NORMS | FEED_FORWARD),
    *rows(f"{LAYER}self_attn.", ATTENTION, ours="layers.{l}.mixer."),
    Row(f"{LAYER}mlp.gate.weight", "layers.{l}.ffn.router.weight"),
    Row(f"{LAYER}mlp.gate.e_score_correction_bias", "layers.{l}.ffn.router.correction"),
    *experts(f"{LAYER}mlp.experts.{{e}}", *GATED),
    *rows(f"{LAYER}mlp.shared_experts.", GATED, ours="layers.{l}.ffn.shared."),
)
# The released files' layer 61 guesses the token after the next, for training; no pass runs it.
MTP = "embed_tokens enorm hnorm eh_proj shared_head.norm shared_head.head".split()

FAMILY = Family(
    model_type="deepseek_v3",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(
        (*EMBEDDING, *LAYERS, *ENDS),
        skips=(
            *OLD_ROTARY,
            *(row.file.replace("{l}", "61") for row in LAYERS),
            *(f"model.layers.61.{name}.weight" for name in MTP),
        ),
        prefix="model.",
    ),
    ignores=frozenset(
        "intermediate_size head_dim qk_head_dim num_nextn_predict_layers num_mtp_layers output_router_logits "
        "ep_size aux_loss_alpha seq_aux".split()
    ),
)
