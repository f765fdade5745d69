"""DeiT (Touvron 2020): ViT with a second learned token, which was taught by another model."""

from __future__ import annotations

from typing import Any

from clearhead.config import HeadsConfig, LabelHeadConfig, TransformerConfig
from clearhead.families.common import CLASSES, n_labels, write_labels
from clearhead.families.encoders import pool_or_not
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.pictures import encoder_rows, read_bare, read_encoder, write_bare, write_encoder
from clearhead.families.row_ops import Joined
from clearhead.families.weights import Layout, Row

WITH_TEACHER, CLASSIFIER, BARE = "DeiTForImageClassificationWithTeacher", "DeiTForImageClassification", "DeiTModel"
OWN, TAUGHT = "cls", "distillation"


def read(r: Reader) -> TransformerConfig:
    d_model, encoder = read_encoder(r, n_prefix=2)
    if r.architecture == BARE:
        heads = read_bare(r, d_model)
    elif r.architecture == CLASSIFIER:
        heads = HeadsConfig(labels=((CLASSES, LabelHeadConfig(n_labels=n_labels(r))),))
    else:
        own, taught = (LabelHeadConfig(n_labels=n_labels(r), at=at) for at in ("first", "second"))
        heads = HeadsConfig(labels=((OWN, own), (TAUGHT, taught)), average_labels=True)
    return TransformerConfig(d_model=d_model, encoder=encoder, heads=heads)


def write(config: TransformerConfig) -> dict[str, Any]:
    if not config.heads.labels:
        return {**write_encoder(config), **write_bare(config.heads), "architectures": [BARE]}
    heads = [head for _, head in config.heads.labels]
    named = {"architectures": [CLASSIFIER]} if len(heads) == 1 else {}
    return {**write_encoder(config), **write_labels(heads[0].n_labels), **named}


PREFIX = "deit."
LEARNED = Row(f"{PREFIX}embeddings.{{w}}_token", "embed.prefix", Joined(("cls", "distillation")))
HEADS = {
    "cls_classifier": f"labels.{OWN}",
    "distillation_classifier": f"labels.{TAUGHT}",
    "classifier": f"labels.{CLASSES}",
}

FAMILY = Family(
    model_type="deit",
    architectures=(WITH_TEACHER, CLASSIFIER, BARE),
    config=read,
    to_hf=write,
    weights=Layout((*encoder_rows(PREFIX, LEARNED), *rows("", HEADS, ours="")), prefix=PREFIX),
    ignores=frozenset(("encoder_stride", "pooler_output_size", "pooler_act", "add_pooling_layer")),
    told=pool_or_not,
)
