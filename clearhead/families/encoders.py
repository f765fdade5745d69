"""Encoders whose configs use BERT's words: how their parts and their tasks' heads are read and written.

What absent keys mean is the family's own: it tells the reader first (`Reader.assume`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LabelHeadConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    PoolConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
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
    write_labels,
)
from clearhead.families.family import Reader
from clearhead.families.layouts import rows
from clearhead.families.row_ops import Tied
from clearhead.families.weights import Row

TAGS, NEXT = "tags", "next"
"""Our names for scores of a label for every token, and of whether a second text follows the first."""

PRETRAIN, JUDGE_NEXT, FILL = "ForPreTraining", "ForNextSentencePrediction", "ForMaskedLM"
TEXT = (FILL, "ForCausalLM", "LMHeadModel")
"""Ends of the names of the classes that score the vocabulary."""


# ---- the stack


def read_attention(r: Reader, positions: RotaryConfig | None = None) -> AttentionConfig:
    """Plain attention with all biases, both ways unless the config says that it writes text."""
    d_model, n_heads = r.get("hidden_size"), r.get("num_attention_heads")
    return AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=BiasConfig(q=True, k=True, v=True, o=True),
        scores=ScoresConfig(dropout=r.get("attention_probs_dropout_prob")),
        mask=MaskConfig(kind="causal" if r.get("is_decoder", False) else "full"),
        positions=positions,
    )


def read_feed_forward(r: Reader) -> FeedForwardConfig:
    return FeedForwardConfig(
        d_ff=r.get("intermediate_size"),
        activation=r.choose("hidden_act", ACTIVATION_NAMES),
        gated=False,
        bias=True,
    )


def read_norm(r: Reader) -> NormConfig:
    return NormConfig(kind="layer", eps=r.get("layer_norm_eps"), bias=True)


def post_norm(
    attention: AttentionConfig, feed_forward: FeedForwardConfig, norm: NormConfig, drops: tuple[float, float]
) -> BlockConfig:
    """The block of 2017: a norm after each addition. `drops` are the dropouts of the two corrections."""
    return BlockConfig(
        mixer=SublayerConfig(op=attention, after=norm, dropout=drops[0]),
        ffn=SublayerConfig(op=feed_forward, after=norm, dropout=drops[1]),
    )


def read_post_norm(r: Reader, positions: RotaryConfig | None = None) -> BlockConfig:
    """BERT's block."""
    drop = r.get("hidden_dropout_prob")
    return post_norm(read_attention(r, positions), read_feed_forward(r), read_norm(r), (drop, drop))


def read_embedding(r: Reader, positions: LearnedPositions | None, width: int | None = None) -> EmbedConfig:
    """BERT's embedding: tokens, their types and their positions, and a norm."""
    return EmbedConfig(
        front=TokensConfig(vocab_size=r.get("vocab_size"), n_types=r.get("type_vocab_size")),
        positions=positions,
        norm=read_norm(r),
        dropout=r.get("hidden_dropout_prob"),
        width=width,
    )


def whole_model(
    r: Reader, stack: StackConfig, heads: HeadsConfig, context: int, ids: tuple[int | None, int | None, int | None]
) -> TransformerConfig:
    """An encoder, or a decoder where its layers look back only. `ids` are the family's bos, eos and pad."""
    causal = a(AttentionConfig, stack.blocks[0].mixer.op).mask.kind == "causal"
    bos, eos, pad = ids
    return TransformerConfig(
        d_model=r.get("hidden_size"),
        encoder=None if causal else stack,
        decoder=stack if causal else None,
        heads=heads,
        context=context,
        ids=read_ids(r, bos=bos, eos=eos, pad=pad),
    )


def write_encoder(config: TransformerConfig) -> dict[str, Any]:
    """What BERT and its kin write of the stack."""
    stack, block = config.stack, config.stack.blocks[0]
    attention, front = a(AttentionConfig, block.mixer.op), a(TokensConfig, stack.embed.front)
    ffn = a(SublayerConfig, block.ffn)
    feed_forward = a(FeedForwardConfig, ffn.op)
    return {
        "vocab_size": front.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": attention.n_heads,
        "intermediate_size": feed_forward.d_ff,
        "hidden_act": published_activation(a(str, feed_forward.activation), tanh="gelu_new"),
        "hidden_dropout_prob": block.mixer.dropout,
        "attention_probs_dropout_prob": attention.scores.dropout,
        "type_vocab_size": front.n_types,
        "layer_norm_eps": a(NormConfig, block.mixer.after or block.mixer.pre).eps,
        "is_decoder": attention.mask.kind == "causal",
        **write_ids(config.ids),
    }


def check_carried(r: Reader, name: str, *understood: Any) -> None:
    """Refuse a value other than those `understood` of a key that is carried along: older files have it, and newer ones
    leave it out. The family has it among what it ignores.
    """
    value = r.raw.get(name)
    if value is not None and value not in understood:
        allowed = " or ".join(map(repr, understood))
        raise ClearheadError(f"{r.where}: {name} is {value!r}; only {allowed} is understood")


# ---- heads: each task has a class, named after the family and the task


def read_token_head(r: Reader, width: int, activation: str) -> TokenHeadConfig:
    """A transform, and the embedding's own vectors."""
    transform = TransformConfig(width=width, activation=activation, norm=read_norm(r))
    return TokenHeadConfig(tie=r.get("tie_word_embeddings", True), bias=True, transform=transform)


def read_pool(r: Reader) -> PoolConfig:
    """The first token's vector through a matrix and a tanh."""
    return PoolConfig(at="first", transform=TransformConfig(width=r.get("hidden_size"), activation="tanh"))


def read_heads(
    r: Reader,
    tokens: TokenHeadConfig,
    classes: LabelHeadConfig,
    tags: tuple[str, LabelHeadConfig],
    pool: PoolConfig | None = None,
    follows: float = 0.0,
    answers: float = 0.0,
) -> HeadsConfig:
    """The heads of the class that the config names.

    `classes` is of a whole text and `tags` (with its name) of every token; `pool` is what the bare model ends in.
    `follows` and `answers` are the dropouts before the judgement whether one text follows another, and before spans.
    """
    named = r.architecture
    if named.endswith(TEXT):
        return HeadsConfig(tokens=tokens)
    if named.endswith(CLASSIFY):
        return HeadsConfig(pool=pool if classes.at == "pool" else None, labels=((CLASSES, classes),))
    if named.endswith(TAG):
        return HeadsConfig(labels=(tags,))
    if named.endswith(ANSWER):
        return HeadsConfig(labels=((SPAN, LabelHeadConfig(n_labels=2, at="every", dropout=answers)),))
    if named.endswith((PRETRAIN, JUDGE_NEXT)):
        following = LabelHeadConfig(n_labels=2, at="pool", dropout=follows)
        return HeadsConfig(tokens=tokens if named.endswith(PRETRAIN) else None, pool=pool, labels=((NEXT, following),))
    return HeadsConfig(pool=pool if pool is not None and r.get("add_pooling_layer", True) else None)


def read_label_dropout(r: Reader, name: str = "classifier_dropout") -> float:
    """The dropout before a label head: its own, or the layers'."""
    dropout: float = r.get(name, r.get("hidden_dropout_prob"))
    return dropout


def labels(r: Reader, at: Any, dropout: float, transform: TransformConfig | None = None) -> LabelHeadConfig:
    """A label head with as many labels as the config names."""
    return LabelHeadConfig(n_labels=n_labels(r), at=at, dropout=dropout, transform=transform)


def classifies(r: Reader) -> bool:
    """Whether the class is one whose dropout and labels the config sets."""
    return r.architecture.endswith((CLASSIFY, TAG))


def write_heads(
    config: TransformerConfig, stem: str, *, pools: bool = False, causal: str = "ForCausalLM"
) -> dict[str, Any]:
    """The class that has these heads, and what its config says of them. `pools`: the bare model ends in a pool."""
    heads = config.heads
    tied = {"tie_word_embeddings": heads.tokens is None or heads.tokens.tie}
    if not heads.labels:
        if heads.tokens is not None:
            return {"architectures": [stem + (causal if config.decoder is not None else FILL)], **tied}
        unpooled = {"add_pooling_layer": False} if pools and heads.pool is None else {}
        return {"architectures": [f"{stem}Model"], **tied, **unpooled}
    name, head = heads.labels[0]
    if name == NEXT:
        return {"architectures": [stem + (JUDGE_NEXT if heads.tokens is None else PRETRAIN)], **tied}
    if name == SPAN:
        return {"architectures": [stem + ANSWER], **tied}
    task = TAG if head.at == "every" else CLASSIFY
    return {"architectures": [stem + task], **tied, **write_labels(head.n_labels)}


def write_label_dropout(config: TransformerConfig, name: str = "classifier_dropout") -> dict[str, Any]:
    """The dropout before a label head; null where it is that of the layers."""
    own = [head.dropout for label, head in config.heads.labels if label in (CLASSES, TAGS)]
    return {name: None if own[0] == config.stack.blocks[0].mixer.dropout else own[0]} if own else {}


# ---- weights

LAYER = {
    "attention.self.query": "mixer.q_proj",
    "attention.self.key": "mixer.k_proj",
    "attention.self.value": "mixer.v_proj",
    "attention.output.dense": "mixer.o_proj",
    "attention.output.LayerNorm": "mixer_norm.after",
    "intermediate.dense": "ffn.up_proj",
    "output.dense": "ffn.down_proj",
    "output.LayerNorm": "ffn_norm.after",
}
OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""How files made from the first BERT's spell a norm."""


def embedding_rows(prefix: str) -> tuple[Row, ...]:
    return (
        Row(f"{prefix}embeddings.word_embeddings.weight", "embed.tokens.weight"),
        Row(f"{prefix}embeddings.token_type_embeddings.weight", "embed.types.weight"),
        Row(f"{prefix}embeddings.position_embeddings.weight", "embed.positions.weight"),
        *rows(f"{prefix}embeddings.", {"LayerNorm": "embed.norm"}, ours=""),
    )


def token_head_rows(prefix: str, dense: str, norm: str) -> tuple[Row, ...]:
    """A head tied to the embedding; older files repeat its bias under the decoder's name."""
    return (
        *rows(prefix, {dense: "head.transform.dense", norm: "head.transform.norm"}, ours=""),
        Row(f"{prefix}bias", "head.bias"),
        Row(f"{prefix}decoder.weight", "head.weight", Tied("embed.tokens.weight")),
        Row(f"{prefix}decoder.bias", "head.decoder.bias", Tied("head.bias")),
    )


def pool_or_not(raw: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A bare model may have been saved without its pool, which the config does not say."""
    named = (raw.get("architectures") or ["Model"])[0]
    pooled = any("pooler." in name for name in names) or not named.endswith("Model") or named.endswith(TEXT)
    return {} if pooled else {"add_pooling_layer": False}


def old_buffers(prefix: str) -> tuple[str, ...]:
    return (f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids")


CLASSIFIER_OF_ROBERTA = (
    *rows("classifier.", {"dense": f"labels.{CLASSES}.transform.dense", "out_proj": f"labels.{CLASSES}"}, ours=""),
    *rows("", {"classifier": f"labels.{TAGS}", "qa_outputs": f"labels.{SPAN}"}, ours=""),
)
"""A classifier with a transform of its own, and one of every token that has none."""
