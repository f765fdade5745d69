"""RoFormer (Su 2021): BERT with rotary positions in neighbouring pairs, on values too where asked for."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clearhead.config import (
    AttentionConfig,
    HeadsConfig,
    RotaryConfig,
    StackConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.families import encoders as e
from clearhead.families.bert import DEFAULTS
from clearhead.families.common import ACTIVATION_NAMES, a
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.tables import sinusoid_table
from clearhead.families.weights import Layout


def read(r: Reader) -> TransformerConfig:
    r.assume(**DEFAULTS | {"vocab_size": 50000, "max_position_embeddings": 1536})
    d_model, context = r.get("hidden_size"), r.get("max_position_embeddings")
    width = r.get("embedding_size", d_model)
    rotary = RotaryConfig(interleaved=True, on_values=r.get("rotary_value", False))
    stack = StackConfig(
        embed=e.read_embedding(r, None, width=width if width != d_model else None),
        blocks=(e.read_post_norm(r, rotary),) * r.get("num_hidden_layers"),
    )
    return e.whole_model(r, stack, read_heads(r, width), context, (None, None, 0))


def read_heads(r: Reader, width: int) -> HeadsConfig:
    activation, dropout = r.choose("hidden_act", ACTIVATION_NAMES), r.get("hidden_dropout_prob")
    classes = e.labels(r, "first", dropout, TransformConfig(width=r.get("hidden_size"), activation=activation))
    tags = (e.TAGS, e.labels(r, "every", dropout))
    return e.read_heads(r, e.read_token_head(r, width, activation), classes, tags)


def write(config: TransformerConfig) -> dict[str, Any]:
    rotary = a(RotaryConfig, a(AttentionConfig, config.stack.blocks[0].mixer.op).positions)
    return {
        **e.write_encoder(config),
        "embedding_size": config.stack.embed.width or config.d_model,
        "max_position_embeddings": config.context,
        "rotary_value": rotary.on_values,
        **e.write_heads(config, "RoFormer"),
    }


def positions_of(config: TransformerConfig) -> Tensor:
    return sinusoid_table(a(int, config.context), a(AttentionConfig, config.stack.blocks[0].mixer.op).d_head)


WEIGHTS = (
    *e.embedding_rows("roformer."),
    *rows("roformer.", {"embeddings_project": "embed.project"}, ours=""),
    *rows("roformer.encoder.layer.{l}.", e.LAYER),
    *e.token_head_rows("cls.predictions.", "transform.dense", "transform.LayerNorm"),
    *e.CLASSIFIER_OF_ROBERTA,
)

FAMILY = Family(
    model_type="roformer",
    architectures=(
        "RoFormerModel",
        "RoFormerForMaskedLM",
        "RoFormerForCausalLM",
        "RoFormerForSequenceClassification",
        "RoFormerForTokenClassification",
        "RoFormerForQuestionAnswering",
    ),
    config=read,
    to_hf=write,
    weights=Layout(
        WEIGHTS,
        prefix="roformer.",
        constants={"roformer.encoder.embed_positions.weight": positions_of},
        legacy=e.OLD_NORMS,
    ),
    ignores=frozenset({"gradient_checkpointing"}),
)
