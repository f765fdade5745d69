"""DistilBERT (Sanh 2019): half the layers of a BERT, one kind of token, no pool."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
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
    published_activation,
    read_ids,
    write_ids,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.row_ops import Tied
from clearhead.families.weights import Layout, Row

NORM = NormConfig(kind="layer", eps=1e-12, bias=True)


def read(r: Reader) -> TransformerConfig:
    d_model, n_heads, context = r.get("dim", 768), r.get("n_heads", 12), r.get("max_position_embeddings", 512)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=BiasConfig(q=True, k=True, v=True, o=True),
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.1)),
        mask=MaskConfig(kind="full"),
    )
    activation, dropout = r.choose("activation", ACTIVATION_NAMES, "gelu"), r.get("dropout", 0.1)
    feed_forward = FeedForwardConfig(d_ff=r.get("hidden_dim", 3072), activation=activation, gated=False, bias=True)
    return TransformerConfig(
        d_model=d_model,
        encoder=StackConfig(
            embed=EmbedConfig(
                front=TokensConfig(vocab_size=r.get("vocab_size", 30522)),
                positions=LearnedPositions(n=context),
                norm=NORM,
                dropout=dropout,
            ),
            blocks=(e.post_norm(attention, feed_forward, NORM, (0.0, dropout)),) * r.get("n_layers", 6),
        ),
        heads=read_heads(r, d_model, activation),
        context=context,
        ids=read_ids(r, bos=None, eos=None, pad=0),
    )


DROPOUTS = {CLASSIFY: ("seq_classif_dropout", 0.2), TAG: ("dropout", 0.1), ANSWER: ("qa_dropout", 0.1)}


def read_heads(r: Reader, d_model: int, activation: str) -> HeadsConfig:
    drops = {task: r.get(*DROPOUTS[task]) for task in DROPOUTS if r.architecture.endswith(task)}
    between = TransformConfig(width=d_model, activation="relu")
    text = TransformConfig(width=d_model, activation=activation, norm=NORM)
    return e.read_heads(
        r,
        TokenHeadConfig(tie=r.get("tie_word_embeddings", True), bias=True, transform=text),
        e.labels(r, "first", drops.get(CLASSIFY, 0.0), between),
        (CLASSES, e.labels(r, "every", drops.get(TAG, 0.0))),
        answers=drops.get(ANSWER, 0.0),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    stack, block = config.stack, config.stack.blocks[0]
    attention, ffn = a(AttentionConfig, block.mixer.op), a(SublayerConfig, block.ffn)
    feed_forward = a(FeedForwardConfig, ffn.op)
    of_heads = e.write_heads(config, "DistilBert")
    for _, head in config.heads.labels:
        task = next(task for task in DROPOUTS if of_heads["architectures"][0].endswith(task))
        of_heads |= {DROPOUTS[task][0]: head.dropout} if task != TAG else {}
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "n_layers": len(stack.blocks),
        "n_heads": attention.n_heads,
        "dim": config.d_model,
        "hidden_dim": feed_forward.d_ff,
        "dropout": ffn.dropout,
        "attention_dropout": attention.scores.dropout,
        "activation": published_activation(a(str, feed_forward.activation), tanh="gelu_new"),
        **write_ids(config.ids),
        **of_heads,
    }


LAYER = {
    **{f"attention.{name}_lin": f"mixer.{name}_proj" for name in "qkv"},
    "attention.out_lin": "mixer.o_proj",
    "sa_layer_norm": "mixer_norm.after",
    "ffn.lin1": "ffn.up_proj",
    "ffn.lin2": "ffn.down_proj",
    "output_layer_norm": "ffn_norm.after",
}

WEIGHTS = (
    *e.embedding_rows("distilbert."),
    *rows("distilbert.transformer.layer.{l}.", LAYER),
    *rows("vocab_", {"transform": "head.transform.dense", "layer_norm": "head.transform.norm"}, ours=""),
    Row("vocab_projector.weight", "head.weight", Tied("embed.tokens.weight")),
    Row("vocab_projector.bias", "head.bias"),
    *rows("", {"pre_classifier": f"labels.{CLASSES}.transform.dense", "classifier": f"labels.{CLASSES}"}, ours=""),
    *rows("", {"qa_outputs": f"labels.{SPAN}"}, ours=""),
)

FAMILY = Family(
    model_type="distilbert",
    architectures=(
        "DistilBertModel",
        "DistilBertForMaskedLM",
        "DistilBertForSequenceClassification",
        "DistilBertForTokenClassification",
        "DistilBertForQuestionAnswering",
    ),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=e.old_buffers("distilbert."), prefix="distilbert."),
    # Sinusoidal positions are in the file like learned ones.
    ignores=frozenset("sinusoidal_pos_embds seq_classif_dropout qa_dropout tie_weights_".split()),
)
