"""ViT (Dosovitskiy 2020): an encoder of patches, pre-norm, read at its class token."""

from __future__ import annotations

from typing import Any

from clearhead.config import HeadsConfig, LabelHeadConfig, TransformerConfig
from clearhead.families.common import CLASSES, n_labels, write_labels
from clearhead.families.encoders import pool_or_not
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.pictures import encoder_rows, read_bare, read_encoder, write_bare, write_encoder
from clearhead.families.row_ops import Leading
from clearhead.families.weights import Layout, Row

CLASSIFIER, BARE = "ViTForImageClassification", "ViTModel"


def read(r: Reader) -> TransformerConfig:
    d_model, encoder = read_encoder(r, n_prefix=1)
    if r.architecture == BARE:
        heads = read_bare(r, d_model)
    else:
        heads = HeadsConfig(labels=((CLASSES, LabelHeadConfig(n_labels=n_labels(r))),))
    return TransformerConfig(d_model=d_model, encoder=encoder, heads=heads)


def write(config: TransformerConfig) -> dict[str, Any]:
    if not config.heads.labels:
        return {**write_encoder(config), **write_bare(config.heads), "architectures": [BARE]}
    ((_, head),) = config.heads.labels
    return {**write_encoder(config), **write_labels(head.n_labels)}


PREFIX = "vit."
WEIGHTS = (
    *encoder_rows(PREFIX, Row(f"{PREFIX}embeddings.cls_token", "embed.prefix", Leading(1))),
    *rows("", {"classifier": f"labels.{CLASSES}"}, ours=""),
)

FAMILY = Family(
    model_type="vit",
    architectures=(CLASSIFIER, BARE),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, prefix=PREFIX),
    ignores=frozenset(("encoder_stride", "pooler_output_size", "pooler_act", "add_pooling_layer")),
    told=pool_or_not,
)
