"""ESM-2 (Lin 2023) and ESM-1b (Rives 2021): BERT for proteins, pre-norm, with masked residues as zeros."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    LearnedPositions,
    MaskDropout,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.families import encoders as e
from clearhead.families.bert import DEFAULTS
from clearhead.families.common import a
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.row_ops import Tied
from clearhead.families.tables import inverse_frequencies
from clearhead.families.weights import Layout, Row

ROTARY, ABSOLUTE = "rotary", "absolute"


def read(r: Reader) -> TransformerConfig:
    r.assume(**{name: value for name, value in DEFAULTS.items() if name != "vocab_size"})
    r.assume(max_position_embeddings=1026)
    r.expect("is_folding_model", False)
    e.check_carried(r, "hidden_act", "gelu")
    kind = r.choose("position_embedding_type", {ROTARY: ROTARY, ABSOLUTE: ABSOLUTE}, ABSOLUTE)
    rotary = RotaryConfig(base=r.get("rope_theta", 10000.0)) if kind == ROTARY else None
    norm, n, drop = e.read_norm(r), r.get("max_position_embeddings"), r.get("hidden_dropout_prob")
    block = BlockConfig(
        mixer=SublayerConfig(op=e.read_attention(r, rotary), pre=norm, dropout=drop),
        ffn=SublayerConfig(op=e.read_feed_forward(r), pre=norm, dropout=drop),
    )
    dropped = MaskDropout(mask_id=r.need("mask_token_id")) if r.get("token_dropout", False) else None
    pad = r.get("pad_token_id", 1)
    stack = StackConfig(
        embed=EmbedConfig(
            front=TokensConfig(vocab_size=r.get("vocab_size", 33), mask_dropout=dropped, zero_padding=True),
            positions=LearnedPositions(n=n, pad_id=pad) if rotary is None else None,
            norm=norm if r.get("emb_layer_norm_before", False) else None,
        ),
        blocks=(block,) * r.get("num_hidden_layers"),
        norm=norm,
    )
    return e.whole_model(r, stack, read_heads(r), n - pad - 1 if rotary is None else n, (None, 2, 1))


def read_heads(r: Reader) -> HeadsConfig:
    d_model, drop = r.get("hidden_size"), r.get("hidden_dropout_prob")
    heads = e.read_heads(
        r,
        e.read_token_head(r, d_model, "gelu"),
        e.labels(r, "first", drop, TransformConfig(width=d_model, activation="tanh")),
        (e.TAGS, e.labels(r, "every", drop)),
        pool=e.read_pool(r),
    )
    return replace(heads, contacts=True)


def write(config: TransformerConfig) -> dict[str, Any]:
    embed = config.stack.embed
    positions, dropped = embed.positions, a(TokensConfig, embed.front).mask_dropout
    rotary = a(AttentionConfig, config.stack.blocks[0].mixer.op).positions
    words = e.write_encoder(config)
    for absent in ("hidden_act", "type_vocab_size"):
        del words[absent]
    return {
        **words,
        "position_embedding_type": ROTARY if positions is None else ABSOLUTE,
        **({"rope_theta": rotary.base} if isinstance(rotary, RotaryConfig) else {}),
        "max_position_embeddings": positions.n if isinstance(positions, LearnedPositions) else config.context,
        "emb_layer_norm_before": embed.norm is not None,
        "token_dropout": dropped is not None,
        **({"mask_token_id": dropped.mask_id} if dropped is not None else {}),
        "is_folding_model": False,
        **e.write_heads(config, "Esm", pools=True),
    }


def frequencies_of(config: TransformerConfig) -> Tensor | None:
    """What `transformers` writes into the file of a model with rotary positions."""
    attention = a(AttentionConfig, config.stack.blocks[0].mixer.op)
    rotary = attention.positions
    return inverse_frequencies(rotary.base, attention.d_head) if isinstance(rotary, RotaryConfig) else None


BEFORE, AFTER = "esm.encoder.layer.{l}.attention.LayerNorm.", "esm.encoder.layer.{l}.LayerNorm."
OF_LAYER = {file: ours for file, ours in e.LAYER.items() if not file.endswith("LayerNorm")}

WEIGHTS = (
    *(row for row in e.embedding_rows("esm.") if "LayerNorm" not in row.file and "types" not in row.names[0]),
    *rows("esm.", {"embeddings.layer_norm": "embed.norm", "encoder.emb_layer_norm_after": "norm"}, ours=""),
    *rows("esm.encoder.layer.{l}.", OF_LAYER),
    Row(f"{BEFORE}gamma", "layers.{l}.mixer_norm.pre.weight"),
    Row(f"{BEFORE}beta", "layers.{l}.mixer_norm.pre.bias"),
    Row(f"{AFTER}gamma", "layers.{l}.ffn_norm.pre.weight"),
    Row(f"{AFTER}beta", "layers.{l}.ffn_norm.pre.bias"),
    *rows("esm.", {"pooler.dense": "pool.transform.dense", "contact_head.regression": "contacts"}, ours=""),
    *rows("lm_head.", {"dense": "head.transform.dense", "layer_norm": "head.transform.norm"}, ours=""),
    Row("lm_head.decoder.weight", "head.weight", Tied("embed.tokens.weight")),
    Row("lm_head.bias", "head.bias"),
    *(row for row in e.CLASSIFIER_OF_ROBERTA if "qa_outputs" not in row.file),
)

FAMILY = Family(
    model_type="esm",
    architectures=("EsmModel", "EsmForMaskedLM", "EsmForSequenceClassification", "EsmForTokenClassification"),
    config=read,
    to_hf=write,
    weights=Layout(
        WEIGHTS,
        skips=(*e.old_buffers("esm."), "esm.encoder.layer.{l}.attention.self.rotary_embeddings.inv_freq"),
        prefix="esm.",
        # The star is in the name.
        constants={"esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq": frequencies_of},
        legacy={"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
    ),
    ignores=frozenset("hidden_act rope_theta esmfold_config vocab_list gradient_checkpointing".split()),
    told=e.pool_or_not,
)
