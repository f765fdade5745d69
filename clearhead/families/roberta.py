"""RoBERTa (Liu 2019): BERT whose positions are counted from the padding id on, and whose classifier has a transform."""

from __future__ import annotations

from typing import Any

from clearhead.config import HeadsConfig, LearnedPositions, StackConfig, TransformConfig, TransformerConfig
from clearhead.families import encoders as e
from clearhead.families.bert import DEFAULTS
from clearhead.families.common import a
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.weights import Layout


def read(r: Reader) -> TransformerConfig:
    r.assume(**DEFAULTS | {"vocab_size": 50265})
    e.check_carried(r, "position_embedding_type", "absolute")
    pad, n = r.get("pad_token_id", 1), r.get("max_position_embeddings")
    stack = StackConfig(
        embed=e.read_embedding(r, LearnedPositions(n=n, pad_id=pad)),
        blocks=(e.read_post_norm(r),) * r.get("num_hidden_layers"),
    )
    # Rows up to that of the padding id are no token's.
    return e.whole_model(r, stack, read_heads(r), n - pad - 1, (0, 2, 1))


def read_heads(r: Reader) -> HeadsConfig:
    d_model, dropout = r.get("hidden_size"), e.read_label_dropout(r) if e.classifies(r) else 0.0
    classes = e.labels(r, "first", dropout, TransformConfig(width=d_model, activation="tanh"))
    return e.read_heads(
        r,
        e.read_token_head(r, d_model, "gelu"),
        classes,
        (e.TAGS, e.labels(r, "every", dropout)),
        pool=e.read_pool(r),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    return {
        **e.write_encoder(config),
        "max_position_embeddings": a(LearnedPositions, config.stack.embed.positions).n,
        **e.write_heads(config, "Roberta", pools=True),
        **e.write_label_dropout(config),
    }


WEIGHTS = (
    *e.embedding_rows("roberta."),
    *rows("roberta.encoder.layer.{l}.", e.LAYER),
    *rows("roberta.pooler.", {"dense": "pool.transform.dense"}, ours=""),
    *e.token_head_rows("lm_head.", "dense", "layer_norm"),
    *e.CLASSIFIER_OF_ROBERTA,
)

FAMILY = Family(
    model_type="roberta",
    architectures=(
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForCausalLM",
        "RobertaForSequenceClassification",
        "RobertaForTokenClassification",
        "RobertaForQuestionAnswering",
    ),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=e.old_buffers("roberta."), prefix="roberta.", legacy=e.OLD_NORMS),
    ignores=frozenset("position_embedding_type gradient_checkpointing classifier_dropout".split()),
    told=e.pool_or_not,
)
