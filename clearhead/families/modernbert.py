"""ModernBERT (Warner 2024): pre-norm, gated, rotary with two bases, and windows on two layers of three."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LabelHeadConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.families import encoders as e
from clearhead.families.common import (
    ACTIVATION_NAMES,
    ANSWER,
    CLASSES,
    CLASSIFY,
    SPAN,
    TAG,
    a,
    n_labels,
    published_activation,
    read_ids,
    write_ids,
)
from clearhead.families.decoders import FULL, SLIDING, layer_types, read_layer_types, window_of
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import QKV, fused, rows
from clearhead.families.rope import rotary_from, write_rotary
from clearhead.families.row_ops import Tied
from clearhead.families.weights import Layout, Row

LABELLED = (CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    e.check_carried(r, "position_embedding_type", "absolute")
    d_model, context = r.get("hidden_size", 768), r.get("max_position_embeddings", 8192)
    norm = NormConfig(kind="layer", eps=r.get("norm_eps", 1e-5), bias=r.get("norm_bias", False))
    n_heads, bias = r.get("num_attention_heads", 12), r.get("attention_bias", False)
    dropout = r.get("attention_dropout", 0.0)
    rotary = read_bases(r, context)
    masks = {FULL: MaskConfig(kind="full"), SLIDING: MaskConfig(kind="full", window=r.get("local_attention", 128) // 2)}
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 1152),
        activation=r.choose("hidden_activation", ACTIVATION_NAMES, "gelu"),
        bias=r.get("mlp_bias", False),
        dropout=r.get("mlp_dropout", 0.0),
    )

    def block(layer: int, kind: str) -> BlockConfig:
        attention = AttentionConfig(
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_model // n_heads,
            bias=BiasConfig(q=bias, k=bias, v=bias, o=bias),
            scores=ScoresConfig(dropout=dropout),
            mask=masks[kind],
            positions=rotary[kind],
        )
        # What the first layer reads comes from the embedding's norm.
        return BlockConfig(
            mixer=SublayerConfig(op=attention, pre=norm if layer > 0 else None, dropout=dropout),
            ffn=SublayerConfig(op=feed_forward, pre=norm),
        )

    every, n_layers = r.get("global_attn_every_n_layers", 3), r.get("num_hidden_layers", 22)
    kinds = read_layer_types(r, [SLIDING if layer % every else FULL for layer in range(n_layers)])
    return TransformerConfig(
        d_model=d_model,
        encoder=StackConfig(
            embed=EmbedConfig(
                front=TokensConfig(vocab_size=r.get("vocab_size", 50368)),
                norm=norm,
                dropout=r.get("embedding_dropout", 0.0),
            ),
            blocks=tuple(block(layer, kind) for layer, kind in enumerate(kinds)),
            norm=norm,
        ),
        heads=read_heads(r, d_model, norm),
        context=context,
        ids=read_ids(r, bos=50281, eos=50282, pad=50283),
    )


def read_bases(r: Reader, context: int) -> dict[str, RotaryConfig]:
    """Layers that see all turn slowly."""
    bases = {FULL: r.get("global_rope_theta", 160_000.0), SLIDING: r.get("local_rope_theta", 10_000.0)}
    new = r.inner("rope_parameters")
    rotary = {
        kind: rotary_from(new.inner(kind) if new is not None else None, base, 1.0, context)
        for kind, base in bases.items()
    }
    if new is not None:
        new.finish()
    return rotary


def read_heads(r: Reader, d_model: int, norm: NormConfig) -> HeadsConfig:
    """The same transform stands before words and before labels."""
    if r.architecture.endswith("Model"):
        return HeadsConfig()
    transform = TransformConfig(
        width=d_model,
        activation=r.choose("classifier_activation", ACTIVATION_NAMES, "gelu"),
        norm=norm,
        bias=r.get("classifier_bias", False),
    )
    if not r.architecture.endswith(LABELLED):
        tied = r.get("tie_word_embeddings", True)
        return HeadsConfig(tokens=TokenHeadConfig(tie=tied, bias=r.get("decoder_bias", True), transform=transform))
    pooling = r.choose("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    head = LabelHeadConfig(
        n_labels=2 if r.architecture.endswith(ANSWER) else n_labels(r),
        at=pooling if r.architecture.endswith(CLASSIFY) else "every",
        transform=transform,
        dropout=r.get("classifier_dropout", 0.0),
    )
    return HeadsConfig(labels=((SPAN if r.architecture.endswith(ANSWER) else CLASSES, head),))


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, block = config.stack, config.stack.blocks[0]
    ops = [a(AttentionConfig, b.mixer.op) for b in stack.blocks]
    ffn, norm, kinds = a(SublayerConfig, block.ffn), a(NormConfig, stack.norm), layer_types(config)
    feed_forward, window = a(FeedForwardConfig, ffn.op), window_of(config)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": feed_forward.d_ff,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": ops[0].n_heads,
        "hidden_activation": published_activation(a(str, feed_forward.activation), tanh="gelu_new"),
        "max_position_embeddings": config.context,
        "norm_eps": norm.eps,
        "norm_bias": norm.bias,
        "attention_bias": ops[0].bias.q,
        "attention_dropout": ops[0].scores.dropout,
        "embedding_dropout": stack.embed.dropout,
        "mlp_bias": feed_forward.bias,
        "mlp_dropout": feed_forward.dropout,
        "layer_types": kinds,
        **({"local_attention": 2 * window} if window is not None else {}),
        "rope_parameters": {
            kind: write_rotary(a(RotaryConfig, op.positions))
            for kind, op in sorted(dict(zip(kinds, ops, strict=True)).items())
        },
        **write_ids(config.ids),
        **write_task(config),
    }


def write_task(config: TransformerConfig) -> dict[str, Any]:
    heads = config.heads
    written = e.write_heads(config, "ModernBert")
    labelled = [head for _, head in heads.labels]
    if heads.tokens is not None:
        written["decoder_bias"] = heads.tokens.bias
    for head in labelled:
        written |= {"classifier_dropout": head.dropout, "classifier_pooling": "mean" if head.at == "mean" else "cls"}
    transform = heads.tokens.transform if heads.tokens is not None else labelled[0].transform if labelled else None
    if transform is not None:
        activation = published_activation(a(str, transform.activation), tanh="gelu_new")
        written |= {"classifier_activation": activation, "classifier_bias": transform.bias}
    return written


LAYER = {
    "attn_norm": "mixer_norm.pre",
    "attn.Wo": "mixer.o_proj",
    "mlp_norm": "ffn_norm.pre",
    "mlp.Wo": "ffn.down_proj",
}

WEIGHTS = (
    Row("model.embeddings.tok_embeddings.weight", "embed.tokens.weight"),
    *rows("model.", {"embeddings.norm": "embed.norm", "final_norm": "norm"}, ours=""),
    *rows("model.layers.{l}.", LAYER),
    *fused("model.layers.{l}.attn.Wqkv", tuple(f"mixer.{name}" for name in QKV)),
    *fused("model.layers.{l}.mlp.Wi", ("ffn.gate_proj", "ffn.up_proj")),
    *(
        row
        for head in ("head", f"labels.{CLASSES}", f"labels.{SPAN}")
        for row in rows("head.", {"dense": f"{head}.transform.dense", "norm": f"{head}.transform.norm"}, ours="")
    ),
    Row("decoder.weight", "head.weight", Tied("embed.tokens.weight")),
    Row("decoder.bias", "head.bias"),
    *rows("", {"classifier": f"labels.{CLASSES}"}, ours=""),
    *rows("", {"classifier": f"labels.{SPAN}"}, ours=""),
)

FAMILY = Family(
    model_type="modernbert",
    architectures=(
        "ModernBertModel",
        "ModernBertForMaskedLM",
        "ModernBertForSequenceClassification",
        "ModernBertForTokenClassification",
        "ModernBertForQuestionAnswering",
    ),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, prefix="model."),
    ignores=frozenset(
        "position_embedding_type gradient_checkpointing initializer_cutoff_factor layer_norm_eps reference_compile "
        "deterministic_flash_attn sparse_prediction sparse_pred_ignore_index repad_logits_with_grad decoder_bias "
        "classifier_activation classifier_bias classifier_dropout classifier_pooling tie_word_embeddings".split()
    ),
)
