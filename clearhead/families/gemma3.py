"""Gemma 3, text (Gemma team 2025): windows five to one, two rotary bases, norms on both sides of a sub-layer."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    MaskConfig,
    NormConfig,
    QKNormConfig,
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
from clearhead.families.llama import gguf_scaling
from clearhead.families.rope import rotary_from, write_rotary
from clearhead.families.weights import Layout, Row, Shift, Tied

FULL, SLIDING = "full_attention", "sliding_attention"


def read(r: Reader) -> TransformerConfig:
    d_model, d_head = r.get("hidden_size", 2304), r.get("head_dim", 256)
    context, n_layers = r.get("max_position_embeddings", 131072), r.get("num_hidden_layers", 26)
    norm = NormConfig(eps=r.get("rms_norm_eps", 1e-6), offset=1.0, round_first=False)
    bias = r.get("attention_bias", False)
    rotary = _read_rotary(r, context)
    masks = _read_masks(r)
    scores = ScoresConfig(scale=r.get("query_pre_attn_scalar", 256.0) ** -0.5, dropout=r.get("attention_dropout", 0.0))
    n_heads, n_kv_heads = r.get("num_attention_heads", 8), r.get("num_key_value_heads", 4)
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 9216),
        activation=r.choose("hidden_activation", ACTIVATION_NAMES, "gelu_pytorch_tanh"),
    )

    def block(kind: str) -> BlockConfig:
        attention = AttentionConfig(
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            bias=BiasConfig(q=bias, k=bias, v=bias, o=bias),
            scores=scores,
            mask=masks[kind],
            positions=rotary[kind],
            qk_norm=QKNormConfig(norm=norm),
        )
        return BlockConfig(
            mixer=SublayerConfig(op=attention, pre=norm, out=norm),
            ffn=SublayerConfig(op=feed_forward, pre=norm, out=norm),
        )

    return TransformerConfig(
        d_model=d_model,
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=r.get("vocab_size", 262208)), scale=d_model**0.5),
            blocks=tuple(block(kind) for kind in _read_layer_types(r, n_layers)),
            norm=norm,
        ),
        heads=HeadsConfig(
            tokens=TokenHeadConfig(tie=r.get("tie_word_embeddings", True), softcap=r.get("final_logit_softcapping"))
        ),
        context=context,
        ids=read_ids(r, bos=2, eos=1, pad=0),
    )


def _read_layer_types(r: Reader, n_layers: int) -> list[str]:
    # The first spelling is still written beside layer_types, so it is carried along and not replaced.
    every = r.get("sliding_window_pattern", r.raw.get("_sliding_window_pattern", 6))
    by_pattern = [SLIDING if (layer + 1) % every else FULL for layer in range(n_layers)]
    kinds: list[str] = r.get("layer_types", by_pattern)
    r.expect_list("layer_types", kinds, n_layers, (FULL, SLIDING))
    return kinds


def _read_masks(r: Reader) -> dict[str, MaskConfig]:
    window = r.get("sliding_window", 4096)
    if r.get("use_bidirectional_attention", False):
        return {FULL: MaskConfig(kind="full"), SLIDING: MaskConfig(kind="full", window=window // 2)}
    return {FULL: MaskConfig(), SLIDING: MaskConfig(window=window)}


def _read_rotary(r: Reader, context: int) -> dict[str, RotaryConfig]:
    """Full layers turn slowly and may be scaled; windows turn as in Gemma 2 and never are."""
    theta, local = r.get("rope_theta", 1_000_000.0), r.get("rope_local_base_freq", 10_000.0)
    old, new = r.inner("rope_scaling"), r.inner("rope_parameters")
    if new is None:
        return {FULL: rotary_from(old, theta, 1.0, context), SLIDING: rotary_from(None, local, 1.0, context)}
    both = {
        FULL: rotary_from(new.inner(FULL), theta, 1.0, context),
        SLIDING: rotary_from(new.inner(SLIDING), local, 1.0, context),
    }
    new.finish()
    return both


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, first = config.stack, config.stack.blocks[0]
    ops = [a(AttentionConfig, block.mixer.op) for block in stack.blocks]
    attention, head = ops[0], a(TokenHeadConfig, config.heads.tokens)
    feed_forward = a(FeedForwardConfig, a(SublayerConfig, first.ffn).op)
    windowed = [op.mask.window for op in ops if op.mask.window is not None]
    both_ways = attention.mask.kind == "full"
    kinds = [FULL if op.mask.window is None else SLIDING for op in ops]
    rotary = {kind: op.positions for kind, op in zip(kinds, ops, strict=True)}
    return {
        "vocab_size": stack.embed.front.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": feed_forward.d_ff,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        "head_dim": attention.d_head,
        "hidden_activation": published_activation(feed_forward.activation),
        "max_position_embeddings": config.context,
        "rms_norm_eps": a(NormConfig, first.mixer.pre).eps,
        "tie_word_embeddings": head.tie,
        "rope_parameters": {
            kind: write_rotary(a(RotaryConfig, positions)) for kind, positions in sorted(rotary.items())
        },
        "attention_bias": attention.bias.q,
        "attention_dropout": attention.scores.dropout,
        "query_pre_attn_scalar": _whole(a(float, attention.scores.scale) ** -2),
        "sliding_window": (windowed[0] * (2 if both_ways else 1)) if windowed else None,
        "layer_types": kinds,
        "final_logit_softcapping": head.softcap,
        "use_bidirectional_attention": both_ways,
        **write_ids(config.ids),
    }


def _whole(x: float) -> int | float:
    """The whole number that rounding has moved x away from, if any."""
    return round(x) if abs(x - round(x)) < 1e-6 * x else x


NAMES = {
    "self_attn.q_proj": "mixer.q_proj",
    "self_attn.k_proj": "mixer.k_proj",
    "self_attn.v_proj": "mixer.v_proj",
    "self_attn.o_proj": "mixer.o_proj",
    "mlp.gate_proj": "ffn.gate_proj",
    "mlp.up_proj": "ffn.up_proj",
    "mlp.down_proj": "ffn.down_proj",
}
NORMS = {
    "input_layernorm": "mixer_norm.pre",
    "post_attention_layernorm": "mixer_norm.out",
    "pre_feedforward_layernorm": "ffn_norm.pre",
    "post_feedforward_layernorm": "ffn_norm.out",
    "self_attn.q_norm": "mixer.q_norm",
    "self_attn.k_norm": "mixer.k_norm",
}

WEIGHTS = (
    Row("model.embed_tokens.weight", "embed.tokens.weight"),
    *(Row(f"model.layers.{{l}}.{file}.weight", f"layers.{{l}}.{ours}.weight") for file, ours in NORMS.items()),
    *(
        Row(f"model.layers.{{l}}.{file}.{kind}", f"layers.{{l}}.{ours}.{kind}")
        for file, ours in NAMES.items()
        for kind in ("weight", "bias")
    ),
    Row("model.norm.weight", "norm.weight"),
    Row("lm_head.weight", "head.weight", Tied("embed.tokens.weight")),
)

GGUF_NAMES = {
    "attn_q": "mixer.q_proj",
    "attn_k": "mixer.k_proj",
    "attn_v": "mixer.v_proj",
    "attn_output": "mixer.o_proj",
    "ffn_gate": "ffn.gate_proj",
    "ffn_up": "ffn.up_proj",
    "ffn_down": "ffn.down_proj",
}
GGUF_NORMS = {
    "attn_norm": "mixer_norm.pre",
    "post_attention_norm": "mixer_norm.out",
    "ffn_norm": "ffn_norm.pre",
    "post_ffw_norm": "ffn_norm.out",
    "attn_q_norm": "mixer.q_norm",
    "attn_k_norm": "mixer.k_norm",
}

GGUF_WEIGHTS = (
    Row("token_embd.weight", "embed.tokens.weight"),
    # There the norms' weights are stored with their offset of 1.
    *(Row(f"blk.{{l}}.{file}.weight", f"layers.{{l}}.{ours}.weight", Shift(1.0)) for file, ours in GGUF_NORMS.items()),
    *(Row(f"blk.{{l}}.{file}.weight", f"layers.{{l}}.{ours}.weight") for file, ours in GGUF_NAMES.items()),
    Row("output_norm.weight", "norm.weight", Shift(1.0)),
    Row("output.weight", "head.weight", Tied("embed.tokens.weight")),
)

LAYERS_OF_27B = 62


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    d_model, n_heads, n_layers = r.need("embedding_length"), r.need("attention.head_count"), r.need("block_count")
    d_head = r.get("attention.key_length", 256)
    r.expect("attention.value_length", d_head)
    return {
        "vocab_size": file.shapes["token_embd.weight"][0],
        "hidden_size": d_model,
        "intermediate_size": r.need("feed_forward_length"),
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": r.get("attention.head_count_kv", n_heads),
        "head_dim": d_head,
        "max_position_embeddings": r.need("context_length"),
        "rms_norm_eps": r.need("attention.layer_norm_rms_epsilon"),
        "sliding_window": r.need("attention.sliding_window"),
        "rope_theta": r.get("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": r.get("rope.freq_base_swa", 10_000.0),
        "rope_scaling": gguf_scaling(r),
        # The file does not say; every published size uses the width of a head, but the largest.
        "query_pre_attn_scalar": d_model // n_heads if n_layers == LAYERS_OF_27B else d_head,
        "final_logit_softcapping": r.get("final_logit_softcapping"),
        "tie_word_embeddings": "output.weight" not in file.shapes,
    }


FAMILY = Family(
    model_type="gemma3_text",
    architectures=("Gemma3ForCausalLM",),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS),
    # attn_logit_softcapping is in the files and in no published computation.
    ignores=frozenset({"attn_logit_softcapping", "cache_implementation", "_sliding_window_pattern"}),
    gguf=GGUF(architecture="gemma3", config=from_gguf, weights=Layout(GGUF_WEIGHTS)),
)
