"""CLIP (Radford 2021): a causal text model and a ViT that put what they read into one space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    PatchesConfig,
    PoolConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation, read_ids, write_ids
from clearhead.families.family import CARRIED, Family, Reader
from clearhead.families.layouts import rows
from clearhead.families.pictures import read_patches, write_patches
from clearhead.families.row_ops import Stack
from clearhead.families.weights import Layout, Row

OLD_EOS = 2  # What older configs say whatever the tokenizer does; then the end is the highest id of a text.
# Each tower says its own width of the common space too, which nobody reads.
IGNORED_INSIDE = CARRIED | frozenset("projection_dim initializer_factor dropout tie_word_embeddings".split())


def inner(r: Reader, name: str) -> Reader:
    """The config of one tower. Where an old file has it twice, `_dict` is the one that counts."""
    said = r.inner(name)
    return Reader(r.raw.get(f"{name}_dict") or (said.raw if said is not None else {}), f"{r.where}: {name}")


def read_tower(r: Reader, embed: EmbedConfig, pool: PoolConfig, kind: Any, like: Mapping[str, int]) -> dict[str, Any]:
    """What the towers have in common; `like` are the sizes that absent keys mean."""
    d_model, n_heads = r.get("hidden_size", like["width"]), r.get("num_attention_heads", like["heads"])
    norm = NormConfig(kind="layer", eps=r.get("layer_norm_eps", 1e-5), bias=True)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=BiasConfig(q=True, k=True, v=True, o=True),
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        mask=MaskConfig(kind=kind),
    )
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 4 * like["width"]),
        activation=r.choose("hidden_act", ACTIVATION_NAMES, "quick_gelu"),
        gated=False,
        bias=True,
    )
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm), ffn=SublayerConfig(op=feed_forward, pre=norm))
    stack = StackConfig(embed=embed, blocks=(block,) * r.get("num_hidden_layers", 12), norm=norm)
    return {"d_model": d_model, "encoder" if kind == "full" else "decoder": stack, "heads": HeadsConfig(pool=pool)}


def read(r: Reader) -> TwoTowersConfig:
    text, image = inner(r, "text_config"), inner(r, "vision_config")
    project = TransformConfig(width=r.get("projection_dim", 512), activation=None, bias=False)

    context = text.get("max_position_embeddings", 77)
    ids = read_ids(text, bos=49406, eos=49407, pad=1)
    end = ids.eos[0] if ids.eos and ids.eos[0] != OLD_EOS else None
    tokens = EmbedConfig(
        front=TokensConfig(vocab_size=text.get("vocab_size", 49408)), positions=LearnedPositions(n=context)
    )
    reading_end = PoolConfig(at="end_id", end_id=end, transform=project)
    words = read_tower(text, tokens, reading_end, "causal", {"width": 512, "heads": 8})

    front, positions = read_patches(image, patch=32, n_prefix=1, bias=False)
    norm = NormConfig(kind="layer", eps=image.get("layer_norm_eps", 1e-5), bias=True)
    patches = EmbedConfig(front=front, positions=positions, norm=norm)
    seen = read_tower(image, patches, PoolConfig(transform=project), "full", {"width": 768, "heads": 12})

    text.finish(IGNORED_INSIDE)
    image.finish(IGNORED_INSIDE | {"bos_token_id", "eos_token_id", "pad_token_id"})
    return TwoTowersConfig(
        text=TransformerConfig(**words, context=context, ids=ids),
        image=TransformerConfig(**seen),
        logit_scale=r.get("logit_scale_init_value", 2.6592),
    )


def write_tower(config: TransformerConfig) -> dict[str, Any]:
    mixer, ffn = config.stack.blocks[0].mixer, a(SublayerConfig, config.stack.blocks[0].ffn)
    attention, feed_forward = a(AttentionConfig, mixer.op), a(FeedForwardConfig, ffn.op)
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": len(config.stack.blocks),
        "num_attention_heads": attention.n_heads,
        "intermediate_size": feed_forward.d_ff,
        "hidden_act": published_activation(a(str, feed_forward.activation)),
        "attention_dropout": attention.scores.dropout,
        "layer_norm_eps": a(NormConfig, config.stack.norm).eps,
    }


def write(config: TwoTowersConfig) -> dict[str, Any]:
    text, image = config.text, config.image
    width = a(TransformConfig, a(PoolConfig, text.heads.pool).transform).width
    words = {"vocab_size": text.vocab_size, "max_position_embeddings": text.context, **write_ids(text.ids)}
    patches = write_patches(a(PatchesConfig, image.stack.embed.front))
    return {
        "text_config": {"model_type": "clip_text_model", **write_tower(text), **words, "projection_dim": width},
        "vision_config": {"model_type": "clip_vision_model", **write_tower(image), **patches, "projection_dim": width},
        "projection_dim": width,
        "logit_scale_init_value": config.logit_scale,
    }


LAYER = {
    **{f"self_attn.{name}_proj": f"mixer.{name}_proj" for name in "qkv"},
    "self_attn.out_proj": "mixer.o_proj",
    "layer_norm1": "mixer_norm.pre",
    "layer_norm2": "ffn_norm.pre",
    "mlp.fc1": "ffn.up_proj",
    "mlp.fc2": "ffn.down_proj",
}
POOL = "pool.transform.dense.weight"
WEIGHTS = (
    Row("logit_scale", "logit_scale"),
    Row("text_model.embeddings.token_embedding.weight", "text.embed.tokens.weight"),
    Row("text_model.embeddings.position_embedding.weight", "text.embed.positions.weight"),
    *rows("text_model.encoder.layers.{l}.", LAYER, ours="text.layers.{l}."),
    *rows("text_model.", {"final_layer_norm": "norm"}, ours="text."),
    Row("text_projection.weight", f"text.{POOL}"),
    Row("vision_model.embeddings.class_embedding", "image.embed.prefix", Stack()),
    Row("vision_model.embeddings.patch_embedding.weight", "image.embed.patches.weight"),
    Row("vision_model.embeddings.position_embedding.weight", "image.embed.positions.weight"),
    *rows("vision_model.encoder.layers.{l}.", LAYER, ours="image.layers.{l}."),
    *rows("vision_model.", {"pre_layrnorm": "embed.norm", "post_layernorm": "norm"}, ours="image."),
    Row("visual_projection.weight", f"image.{POOL}"),
)

FAMILY = Family(
    model_type="clip",
    architectures=("CLIPModel",),
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=tuple(f"{tower}_model.embeddings.position_ids" for tower in ("text", "vision"))),
    ignores=frozenset(("initializer_factor", "text_config_dict", "vision_config_dict")),
)
