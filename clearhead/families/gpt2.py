"""GPT-2 (Radford 2019): learned positions, pre-norm, fused q, k, v stored (in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    NormConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, read_ids, write_ids
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.weights import Concat, Layout, Row, Tied, Transpose


def read(r: Reader) -> TransformerConfig:
    d_model, n_heads, n_layers = r.get("n_embd", 768), r.get("n_head", 12), r.get("n_layer", 12)
    context = r.get("n_positions", 1024)
    norm = NormConfig(kind="layer", eps=r.get("layer_norm_epsilon", 1e-5), bias=True)
    d_head = d_model // n_heads
    scale = d_head**-0.5 if r.get("scale_attn_weights", True) else 1.0
    by_layer = r.get("scale_attn_by_inverse_layer_idx", False)
    dropout, attention_dropout = r.get("resid_pdrop", 0.1), r.get("attn_pdrop", 0.1)
    feed_forward = FeedForwardConfig(
        d_ff=r.get("n_inner", 4 * d_model),
        activation=r.choose("activation_function", ACTIVATION_NAMES, "gelu_new"),
        gated=False,
        bias=True,
    )

    def block(layer: int) -> BlockConfig:
        attention = AttentionConfig(
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_head,
            bias=BiasConfig(q=True, k=True, v=True, o=True),
            scores=ScoresConfig(scale=scale / (layer + 1) if by_layer else scale, dropout=attention_dropout),
        )
        return BlockConfig(
            mixer=SublayerConfig(op=attention, pre=norm, dropout=dropout),
            ffn=SublayerConfig(op=feed_forward, pre=norm, dropout=dropout),
        )

    return TransformerConfig(
        d_model=d_model,
        decoder=StackConfig(
            embed=EmbedConfig(
                front=TokensConfig(vocab_size=r.get("vocab_size", 50257)),
                positions=LearnedPositions(n=context),
                dropout=r.get("embd_pdrop", 0.1),
            ),
            blocks=tuple(block(layer) for layer in range(n_layers)),
            norm=norm,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=r.get("tie_word_embeddings", True))),
        context=context,
        ids=read_ids(r, bos=50256, eos=50256),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, first = config.stack, config.stack.blocks[0]
    attention, head = a(AttentionConfig, first.mixer.op), a(TokenHeadConfig, config.heads.tokens)
    feed_forward = a(FeedForwardConfig, a(SublayerConfig, first.ffn).op)
    last = a(AttentionConfig, stack.blocks[-1].mixer.op)
    return {
        "vocab_size": stack.embed.front.vocab_size,
        "n_positions": config.context,
        "n_embd": config.d_model,
        "n_layer": len(stack.blocks),
        "n_head": attention.n_heads,
        "n_inner": feed_forward.d_ff,
        "activation_function": published_activation(feed_forward.activation, tanh="gelu_new"),
        "resid_pdrop": first.mixer.dropout,
        "embd_pdrop": stack.embed.dropout,
        "attn_pdrop": attention.scores.dropout,
        "layer_norm_epsilon": a(NormConfig, first.mixer.pre).eps,
        "scale_attn_weights": attention.scores.scale != 1.0,
        "scale_attn_by_inverse_layer_idx": last.scores.scale != attention.scores.scale,
        "tie_word_embeddings": head.tie,
        **write_ids(config.ids),
    }


def _rows(layer: str, names: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows of a layer's parameters with weight and bias, stored alike."""
    return tuple(
        Row(f"{layer}.{file}.{kind}", f"layers.{{l}}.{ours}.{kind}") for file, ours in names.items() for kind in KINDS
    )


KINDS = ("weight", "bias")
QKV = ("q_proj", "k_proj", "v_proj")

WEIGHTS = (
    Row("transformer.wte.weight", "embed.tokens.weight"),
    Row("transformer.wpe.weight", "embed.positions.weight"),
    *_rows("transformer.h.{l}", {"ln_1": "mixer_norm.pre", "ln_2": "ffn_norm.pre"}),
    *(
        Row(
            f"transformer.h.{{l}}.attn.c_attn.{kind}",
            tuple(f"layers.{{l}}.mixer.{name}.{kind}" for name in QKV),
            Concat(transposed=kind == "weight"),
        )
        for kind in KINDS
    ),
    Row("transformer.h.{l}.attn.c_proj.weight", "layers.{l}.mixer.o_proj.weight", Transpose),
    Row("transformer.h.{l}.attn.c_proj.bias", "layers.{l}.mixer.o_proj.bias"),
    Row("transformer.h.{l}.mlp.c_fc.weight", "layers.{l}.ffn.up_proj.weight", Transpose),
    Row("transformer.h.{l}.mlp.c_fc.bias", "layers.{l}.ffn.up_proj.bias"),
    Row("transformer.h.{l}.mlp.c_proj.weight", "layers.{l}.ffn.down_proj.weight", Transpose),
    Row("transformer.h.{l}.mlp.c_proj.bias", "layers.{l}.ffn.down_proj.bias"),
    Row("transformer.ln_f.weight", "norm.weight"),
    Row("transformer.ln_f.bias", "norm.bias"),
    Row("lm_head.weight", "head.weight", Tied("embed.tokens.weight")),
)

GGUF_WEIGHTS = (
    Row("token_embd.weight", "embed.tokens.weight"),
    Row("position_embd.weight", "embed.positions.weight"),
    *_rows("blk.{l}", {"attn_norm": "mixer_norm.pre", "ffn_norm": "ffn_norm.pre", "attn_output": "mixer.o_proj"}),
    *_rows("blk.{l}", {"ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj"}),
    *(
        Row(f"blk.{{l}}.attn_qkv.{kind}", tuple(f"layers.{{l}}.mixer.{name}.{kind}" for name in QKV), Concat())
        for kind in KINDS
    ),
    Row("output_norm.weight", "norm.weight"),
    Row("output_norm.bias", "norm.bias"),
    Row("output.weight", "head.weight", Tied("embed.tokens.weight")),
)


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    return {
        "vocab_size": file.shapes["token_embd.weight"][0],
        "n_positions": r.need("context_length"),
        "n_embd": r.need("embedding_length"),
        "n_layer": r.need("block_count"),
        "n_head": r.need("attention.head_count"),
        "n_inner": r.need("feed_forward_length"),
        "layer_norm_epsilon": r.need("attention.layer_norm_epsilon"),
        # The converter writes the head twice where it is tied; which it is shows only when both are compared.
        "tie_word_embeddings": "output.weight" not in file.shapes,
    }


FAMILY = Family(
    model_type="gpt2",
    architectures=("GPT2LMHeadModel",),
    config=read,
    to_hf=write,
    weights=Layout(
        WEIGHTS,
        # The masks of older files.
        skips=("transformer.h.{l}.attn.bias", "transformer.h.{l}.attn.masked_bias"),
        prefix="transformer.",
    ),
    ignores=frozenset(
        "n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels "
        "summary_first_dropout gradient_checkpointing".split()
    ),
    gguf=GGUF(architecture="gpt2", config=from_gguf, weights=Layout(GGUF_WEIGHTS)),
)
