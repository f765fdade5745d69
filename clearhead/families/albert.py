"""ALBERT (Lan 2019): BERT whose layers share their weights in groups, and whose embedding is narrower."""

from __future__ import annotations

from typing import Any

from clearhead.config import HeadsConfig, LearnedPositions, StackConfig, TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.families import encoders as e
from clearhead.families.bert import DEFAULTS
from clearhead.families.common import ACTIVATION_NAMES, CLASSES, CLASSIFY, SPAN, TAG, a
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.row_ops import Config
from clearhead.families.weights import Layout, Numbers

OWN = {
    "vocab_size": 30000,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def read(r: Reader) -> TransformerConfig:
    r.assume(**DEFAULTS | OWN)
    e.check_carried(r, "position_embedding_type", "absolute")
    context, width = r.get("max_position_embeddings"), r.get("embedding_size", 128)
    # Of the two corrections, only attention's is dropped.
    drops = (r.get("hidden_dropout_prob"), 0.0)
    block = e.post_norm(e.read_attention(r), e.read_feed_forward(r), e.read_norm(r), drops)
    share = read_share(r)
    stack = StackConfig(
        embed=e.read_embedding(r, LearnedPositions(n=context), width=width),
        blocks=(block,) * len(share),
        share=share,
    )
    return e.whole_model(r, stack, read_heads(r, width), context, (2, 3, 0))


def read_share(r: Reader) -> tuple[int, ...]:
    """Which layer's weights each runs with: those of its place in the first turn of its group."""
    n_layers, n_groups, inner = r.get("num_hidden_layers"), r.get("num_hidden_groups", 1), r.get("inner_group_num", 1)
    if not 0 < n_groups <= n_layers or (inner > 1 and n_groups == n_layers):
        raise ClearheadError(
            f"{r.where}: num_hidden_groups is {n_groups} for {n_layers} turns of {inner} layers, and a group must have "
            "more turns than one to share anything; write the layers as groups of one"
        )
    group = [layer * n_groups // n_layers for layer in range(n_layers)]
    return tuple(group.index(g) * inner + i for g in group for i in range(inner))


def read_heads(r: Reader, width: int) -> HeadsConfig:
    tokens = e.read_token_head(r, width, r.choose("hidden_act", ACTIVATION_NAMES))
    dropout = r.get("classifier_dropout_prob", 0.1) if r.architecture.endswith(DROPS) else 0.0
    classes, tags = e.labels(r, "pool", dropout), (CLASSES, e.labels(r, "every", dropout))
    return e.read_heads(r, tokens, classes, tags, pool=e.read_pool(r), follows=dropout)


DROPS = (CLASSIFY, TAG, e.PRETRAIN)


def write(config: TransformerConfig) -> dict[str, Any]:
    n_turns, n_groups, inner = turns(config)
    dropouts = [head.dropout for name, head in config.heads.labels if name != SPAN]
    words = e.write_encoder(config)
    words.pop("is_decoder")
    return {
        **words,
        "num_hidden_layers": n_turns,
        "num_hidden_groups": n_groups,
        "inner_group_num": inner,
        "embedding_size": config.stack.embed.width,
        "max_position_embeddings": config.context,
        **e.write_heads(config, "Albert", pools=True),
        **({"classifier_dropout_prob": dropouts[0]} if dropouts else {}),
    }


def turns(config: TransformerConfig) -> tuple[int, int, int]:
    """How many turns of groups a pass takes, how many groups there are, and how many layers a group has."""
    share = a(tuple, config.stack.share)
    inner = next((i for i, owner in enumerate(share) if i > 0 and owner == 0), 1)
    return len(share) // inner, len(set(share)) // inner, inner


def in_groups(config: Config, numbers: Numbers) -> Numbers:
    """The group, and the place in it, of a layer that owns its weights."""
    transformer = a(TransformerConfig, config)
    owners = sorted(set(a(tuple, transformer.stack.share)))
    group, place = divmod(owners.index(numbers["l"]), turns(transformer)[2])
    return {"g": group, "i": place}


LAYER = {
    "attention.query": "mixer.q_proj",
    "attention.key": "mixer.k_proj",
    "attention.value": "mixer.v_proj",
    "attention.dense": "mixer.o_proj",
    "attention.LayerNorm": "mixer_norm.after",
    "ffn": "ffn.up_proj",
    "ffn_output": "ffn.down_proj",
    "full_layer_layer_norm": "ffn_norm.after",
}

WEIGHTS = (
    *e.embedding_rows("albert."),
    *rows("albert.encoder.", {"embedding_hidden_mapping_in": "embed.project"}, ours=""),
    *rows("albert.encoder.albert_layer_groups.{g}.albert_layers.{i}.", LAYER),
    *rows("albert.", {"pooler": "pool.transform.dense"}, ours=""),
    *e.token_head_rows("predictions.", "dense", "LayerNorm"),
    *rows("sop_classifier.", {"classifier": f"labels.{e.NEXT}"}, ours=""),
    *rows("", {"classifier": f"labels.{CLASSES}", "qa_outputs": f"labels.{SPAN}"}, ours=""),
)

FAMILY = Family(
    model_type="albert",
    architectures=(
        "AlbertModel",
        "AlbertForMaskedLM",
        "AlbertForPreTraining",
        "AlbertForSequenceClassification",
        "AlbertForTokenClassification",
        "AlbertForQuestionAnswering",
    ),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=e.old_buffers("albert."), prefix="albert.", legacy=e.OLD_NORMS, numbers=in_groups),
    ignores=frozenset(
        "position_embedding_type gradient_checkpointing classifier_dropout_prob down_scale_factor gap_size "
        "net_structure_type num_memory_blocks".split()
    ),
    told=e.pool_or_not,
)
