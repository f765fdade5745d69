"""GPT-2 (Radford 2019): learned positions, pre-norm, fused q, k, v stored (in, out)."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    LearnedPositions,
    NormConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import (
    ACTIVATION_NAMES,
    ANSWER,
    CLASSIFY,
    TAG,
    a,
    published_activation,
    read_heads,
    read_ids,
    write_heads,
    write_ids,
)
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.layouts import BLOCK, GGUF_EMBEDDING, GGUF_PRE_NORMS, LABELS_BY_CLASS, QKV, TIED, fused, rows
from clearhead.families.row_ops import Transpose
from clearhead.families.weights import Layout, Row

ARCHITECTURES = ("GPT2LMHeadModel", "GPT2Model", *(f"GPT2{task}" for task in (CLASSIFY, TAG, ANSWER)))


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
        heads=read_heads(r, TokenHeadConfig(tie=r.get("tie_word_embeddings", True))),
        context=context,
        ids=read_ids(r, bos=50256, eos=50256),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, first = config.stack, config.stack.blocks[0]
    attention = a(AttentionConfig, first.mixer.op)
    feed_forward = a(FeedForwardConfig, a(SublayerConfig, first.ffn).op)
    last = a(AttentionConfig, stack.blocks[-1].mixer.op)
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.context,
        "n_embd": config.d_model,
        "n_layer": len(stack.blocks),
        "n_head": attention.n_heads,
        "n_inner": feed_forward.d_ff,
        "activation_function": published_activation(a(str, feed_forward.activation), tanh="gelu_new"),
        "resid_pdrop": first.mixer.dropout,
        "embd_pdrop": stack.embed.dropout,
        "attn_pdrop": attention.scores.dropout,
        "layer_norm_epsilon": a(NormConfig, first.mixer.pre).eps,
        "scale_attn_weights": attention.scores.scale != 1.0,
        "scale_attn_by_inverse_layer_idx": last.scores.scale != attention.scores.scale,
        **write_heads(config.heads, ARCHITECTURES),
        **write_ids(config.ids),
    }


LAYER = "transformer.h.{l}."
QKV_PARTS = tuple(f"mixer.{name}" for name in QKV)

WEIGHTS = (
    Row("transformer.wte.weight", "embed.tokens.weight"),
    Row("transformer.wpe.weight", "embed.positions.weight"),
    *rows(LAYER, {"ln_1": "mixer_norm.pre", "ln_2": "ffn_norm.pre"}),
    *fused(f"{LAYER}attn.c_attn", QKV_PARTS, Transpose),
    *rows(LAYER, {"attn.c_proj": "mixer.o_proj"}, Transpose),
    *rows(LAYER, {"mlp.c_fc": "ffn.up_proj", "mlp.c_proj": "ffn.down_proj"}, Transpose),
    *rows("transformer.", {"ln_f": "norm"}, ours=""),
    Row("lm_head.weight", "head.weight", TIED),
    *LABELS_BY_CLASS,
)

GGUF_WEIGHTS = (
    *GGUF_EMBEDDING,
    Row("position_embd.weight", "embed.positions.weight"),
    *rows(
        BLOCK, GGUF_PRE_NORMS | {"attn_output": "mixer.o_proj", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj"}
    ),
    *fused(f"{BLOCK}attn_qkv", QKV_PARTS),
    *rows("", {"output_norm": "norm"}, ours=""),
    Row("output.weight", "head.weight", TIED),
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
    architectures=ARCHITECTURES,
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
