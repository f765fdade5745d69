"""What the configs of models that read pictures spell alike, and the tensors of ViT and what was made from it."""

from __future__ import annotations

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
    TransformConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.families.common import ACTIVATION_NAMES, a, published_activation
from clearhead.families.family import Reader
from clearhead.families.layouts import rows
from clearhead.families.row_ops import Leading
from clearhead.families.weights import Row


def _two(r: Reader, name: str, default: int) -> tuple[int, int]:
    """Height and width, from one number or two."""
    value = r.get(name)
    pair = (default, default) if value is None else (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) for n in pair):
        raise ClearheadError(f"{r.where}: {name} is {value!r}; a whole number or two are expected")
    return pair[0], pair[1]


def read_patches(r: Reader, patch: int, n_prefix: int, bias: bool = True) -> tuple[PatchesConfig, LearnedPositions]:
    """The front and its positions; `patch` is the family's own size."""
    image, (high, wide) = _two(r, "image_size", 224), _two(r, "patch_size", patch)
    if high != wide:
        raise ClearheadError(f"{r.where}: patch_size is {high} x {wide}; only squares are understood")
    front = PatchesConfig(patch=high, image=image, channels=r.get("num_channels", 3), n_prefix=n_prefix, bias=bias)
    down, across = front.grid
    return front, LearnedPositions(n=n_prefix + down * across, grid=front.grid)


def write_patches(front: PatchesConfig) -> dict[str, Any]:
    high, wide = front.image
    image = high if high == wide else [high, wide]
    return {"image_size": image, "patch_size": front.patch, "num_channels": front.channels}


def read_encoder(r: Reader, n_prefix: int) -> tuple[int, StackConfig]:
    """The width and the stack, behind `n_prefix` learned tokens."""
    d_model, n_heads = r.get("hidden_size", 768), r.get("num_attention_heads", 12)
    dropout, qkv = r.get("hidden_dropout_prob", 0.0), r.get("qkv_bias", True)
    norm = NormConfig(kind="layer", eps=r.get("layer_norm_eps", 1e-12), bias=True)
    attention = AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        bias=BiasConfig(q=qkv, k=qkv, v=qkv, o=True),
        scores=ScoresConfig(dropout=r.get("attention_probs_dropout_prob", 0.0)),
        mask=MaskConfig(kind="full"),
    )
    feed_forward = FeedForwardConfig(
        d_ff=r.get("intermediate_size", 3072),
        activation=r.choose("hidden_act", ACTIVATION_NAMES, "gelu"),
        gated=False,
        bias=True,
    )
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm, dropout=dropout),
        ffn=SublayerConfig(op=feed_forward, pre=norm, dropout=dropout),
    )
    front, positions = read_patches(r, patch=16, n_prefix=n_prefix)
    embed = EmbedConfig(front=front, positions=positions, dropout=dropout)
    return d_model, StackConfig(embed=embed, blocks=(block,) * r.get("num_hidden_layers", 12), norm=norm)


def write_encoder(config: TransformerConfig) -> dict[str, Any]:
    stack = a(StackConfig, config.encoder)
    mixer, ffn = stack.blocks[0].mixer, a(SublayerConfig, stack.blocks[0].ffn)
    attention, feed_forward = a(AttentionConfig, mixer.op), a(FeedForwardConfig, ffn.op)
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": attention.n_heads,
        "intermediate_size": feed_forward.d_ff,
        "hidden_act": published_activation(a(str, feed_forward.activation)),
        "hidden_dropout_prob": mixer.dropout,
        "attention_probs_dropout_prob": attention.scores.dropout,
        "layer_norm_eps": a(NormConfig, stack.norm).eps,
        "qkv_bias": attention.bias.q,
        **write_patches(a(PatchesConfig, stack.embed.front)),
    }


def read_bare(r: Reader, d_model: int) -> HeadsConfig:
    """What the bare model ends in: a pool, where the file has one."""
    if not r.get("add_pooling_layer", True):
        return HeadsConfig()
    act = r.choose("pooler_act", ACTIVATION_NAMES, "tanh")
    transform = TransformConfig(width=r.get("pooler_output_size", d_model), activation=act)
    return HeadsConfig(pool=PoolConfig(transform=transform))


def write_bare(heads: HeadsConfig) -> dict[str, Any]:
    if heads.pool is None:
        return {"add_pooling_layer": False}
    transform = a(TransformConfig, heads.pool.transform)
    return {"pooler_output_size": transform.width, "pooler_act": published_activation(a(str, transform.activation))}


LAYER = {
    "layernorm_before": "mixer_norm.pre",
    "layernorm_after": "ffn_norm.pre",
    **{f"attention.attention.{name}": f"mixer.{name[0]}_proj" for name in ("query", "key", "value")},
    "attention.output.dense": "mixer.o_proj",
    "intermediate.dense": "ffn.up_proj",
    "output.dense": "ffn.down_proj",
}
AROUND = {
    "embeddings.patch_embeddings.projection": "embed.patches",
    "layernorm": "norm",
    "pooler.dense": "pool.transform.dense",
}


def encoder_rows(prefix: str, learned: Row) -> tuple[Row, ...]:
    """Rows of all but the label heads; `learned` is that of the tokens before the patches."""
    return (
        learned,
        Row(f"{prefix}embeddings.position_embeddings", "embed.positions.weight", Leading(1)),
        *rows(f"{prefix}encoder.layer.{{l}}.", LAYER),
        *rows(prefix, AROUND, ours=""),
    )
