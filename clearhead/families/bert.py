"""BERT (Devlin 2018): both ways, post-norm, two kinds of token. With `is_decoder` it writes text."""

from __future__ import annotations

from typing import Any

from clearhead.config import HeadsConfig, LabelHeadConfig, LearnedPositions, StackConfig, TransformerConfig
from clearhead.families import encoders as e
from clearhead.families.common import ACTIVATION_NAMES, CLASSES, SPAN
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.weights import Layout

ANTIBODIES = "AntiBERTy"
ANTIBODY_LABELS = (("species", 6), ("chain", 2), ("graft", 2))
"""The class and the heads of a model of antibodies (Ruffolo 2021), which is a BERT in all else."""

DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def read(r: Reader) -> TransformerConfig:
    r.assume(**DEFAULTS)
    e.check_carried(r, "position_embedding_type", "absolute")
    context = r.get("max_position_embeddings")
    stack = StackConfig(
        embed=e.read_embedding(r, LearnedPositions(n=context)),
        blocks=(e.read_post_norm(r),) * r.get("num_hidden_layers"),
    )
    return e.whole_model(r, stack, read_heads(r), context, (None, None, 0))


def read_heads(r: Reader) -> HeadsConfig:
    tokens = e.read_token_head(r, r.get("hidden_size"), r.choose("hidden_act", ACTIVATION_NAMES))
    pool = e.read_pool(r)
    if r.architecture == ANTIBODIES:
        heads = tuple((name, LabelHeadConfig(n_labels=n, at="pool")) for name, n in ANTIBODY_LABELS)
        return HeadsConfig(tokens=tokens, pool=pool, labels=heads)
    dropout = e.read_label_dropout(r) if e.classifies(r) else 0.0
    return e.read_heads(r, tokens, e.labels(r, "pool", dropout), (CLASSES, e.labels(r, "every", dropout)), pool=pool)


def write(config: TransformerConfig) -> dict[str, Any]:
    names = tuple((name, head.n_labels) for name, head in config.heads.labels)
    if names == ANTIBODY_LABELS:
        tied = config.heads.tokens is not None and config.heads.tokens.tie
        of_heads: dict[str, Any] = {"architectures": [ANTIBODIES], "tie_word_embeddings": tied}
    else:
        of_heads = e.write_heads(config, "Bert", pools=True, causal="LMHeadModel") | e.write_label_dropout(config)
    return {**e.write_encoder(config), "max_position_embeddings": config.context, **of_heads}


WEIGHTS = (
    *e.embedding_rows("bert."),
    *rows("bert.encoder.layer.{l}.", e.LAYER),
    *rows("bert.pooler.", {"dense": "pool.transform.dense"}, ours=""),
    *e.token_head_rows("cls.predictions.", "transform.dense", "transform.LayerNorm"),
    *rows("cls.", {"seq_relationship": f"labels.{e.NEXT}"}, ours=""),
    *rows("cls.", {name: f"labels.{name}" for name, _ in ANTIBODY_LABELS}, ours=""),
    *rows("", {"classifier": f"labels.{CLASSES}", "qa_outputs": f"labels.{SPAN}"}, ours=""),
)

FAMILY = Family(
    model_type="bert",
    architectures=(
        "BertModel",
        "BertForMaskedLM",
        "BertForPreTraining",
        "BertForNextSentencePrediction",
        "BertLMHeadModel",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertForQuestionAnswering",
        ANTIBODIES,
    ),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=e.old_buffers("bert."), prefix="bert.", legacy=e.OLD_NORMS),
    # The older ones of Google's speak of another library's pooler and reading direction.
    ignores=frozenset(
        "position_embedding_type gradient_checkpointing classifier_dropout directionality pooler_fc_size "
        "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type".split()
    ),
    told=e.pool_or_not,
)
