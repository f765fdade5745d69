"""Decoders whose configs use Llama's words: how their parts are read and written.

What absent keys mean is the family's own: it tells the reader first (`Reader.assume`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import (
    ACTIVATION_NAMES,
    a,
    published_activation,
    read_heads,
    read_ids,
    write_heads,
    write_ids,
)
from clearhead.families.family import Reader
from clearhead.families.rope import read_rotary, write_rotary

FULL, SLIDING = "full_attention", "sliding_attention"


def read_attention(r: Reader, rotary: RotaryConfig | None = None) -> AttentionConfig:
    """Grouped queries with rotary positions (None: as the config says), without biases."""
    d_model, n_heads = r.get("hidden_size"), r.get("num_attention_heads")
    return AttentionConfig(
        n_heads=n_heads,
        n_kv_heads=r.get("num_key_value_heads", n_heads),
        d_head=r.get("head_dim", d_model // n_heads),
        scores=ScoresConfig(dropout=r.get("attention_dropout", 0.0)),
        positions=rotary or read_rotary(r, r.get("max_position_embeddings")),
    )


def read_biases(r: Reader) -> BiasConfig:
    """One switch for all four projections."""
    bias = r.get("attention_bias", False)
    return BiasConfig(q=bias, k=bias, v=bias, o=bias)


def read_feed_forward(r: Reader, activation: str = "hidden_act") -> FeedForwardConfig:
    """Gated, without biases. `activation` is the key that names its function."""
    otherwise = "silu" if activation == "hidden_act" else "gelu_pytorch_tanh"
    return FeedForwardConfig(
        d_ff=r.get("intermediate_size"), activation=r.choose(activation, ACTIVATION_NAMES, otherwise)
    )


def pre_norm(
    attention: AttentionConfig, feed_forward: FeedForwardConfig | ExpertsConfig, norm: NormConfig, dropout: float = 0.0
) -> BlockConfig:
    """The block of Llama: a norm before each of the two."""
    return BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm, dropout=dropout),
        ffn=SublayerConfig(op=feed_forward, pre=norm, dropout=dropout),
    )


def sandwich(attention: AttentionConfig, feed_forward: FeedForwardConfig, norm: NormConfig) -> BlockConfig:
    """The block of Gemma: a norm before and behind each of the two."""
    return BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm, out=norm), ffn=SublayerConfig(op=feed_forward, pre=norm, out=norm)
    )


def read_decoder(
    r: Reader,
    blocks: Sequence[BlockConfig],
    norm: NormConfig,
    ids: tuple[int | None, int | None, int | None],
    *,
    embed_scale: float = 1.0,
    head: TokenHeadConfig | None = None,
) -> TransformerConfig:
    """Tokens, blocks, a norm and heads. `ids` are the family's bos, eos and pad, for keys that are absent."""
    bos, eos, pad = ids
    return TransformerConfig(
        d_model=r.get("hidden_size"),
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=r.get("vocab_size")), scale=embed_scale),
            blocks=tuple(blocks),
            norm=norm,
        ),
        heads=read_heads(r, head or TokenHeadConfig(tie=r.get("tie_word_embeddings", False))),
        context=r.get("max_position_embeddings"),
        ids=read_ids(r, bos=bos, eos=eos, pad=pad),
    )


def write_decoder(
    config: TransformerConfig, architectures: tuple[str, ...], activation: str = "hidden_act"
) -> dict[str, Any]:
    """What all of them write, from the first block."""
    stack, block = config.stack, config.stack.blocks[0]
    attention = a(AttentionConfig, block.mixer.op)
    feed_forward = None if block.ffn is None else block.ffn.op
    norm, positions = block.mixer.pre or block.mixer.out, attention.positions
    own_width = {"head_dim": attention.d_head} if attention.d_head * attention.n_heads != config.d_model else {}
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(stack.blocks),
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        **own_width,
        **(write_feed_forward(feed_forward, activation) if isinstance(feed_forward, FeedForwardConfig) else {}),
        "max_position_embeddings": config.context,
        "rms_norm_eps": a(NormConfig, norm).eps,
        **({"rope_parameters": write_rotary(positions)} if isinstance(positions, RotaryConfig) else {}),
        "attention_dropout": attention.scores.dropout,
        **write_heads(config.heads, architectures),
        **write_ids(config.ids),
    }


def architectures(name: str, *tasks: str) -> tuple[str, ...]:
    """The classes of a decoder: with its token head, without one, and those of `tasks`."""
    return (f"{name}ForCausalLM", f"{name}Model", *(name + task for task in tasks))


def write_feed_forward(feed_forward: FeedForwardConfig, activation: str = "hidden_act") -> dict[str, Any]:
    return {
        "intermediate_size": feed_forward.d_ff,
        activation: published_activation(a(str, feed_forward.activation)),
    }


def attention_of(config: TransformerConfig, layer: int = 0) -> AttentionConfig:
    """The attention of a layer."""
    return a(AttentionConfig, config.stack.blocks[layer].mixer.op)


# ---- windows on some of the layers


def read_layer_types(r: Reader, otherwise: Sequence[str]) -> list[str]:
    """Which layers see all and which a window; `otherwise` is what an absent key means."""
    kinds: list[str] = r.get("layer_types", list(otherwise))
    r.expect_list("layer_types", kinds, len(otherwise), (FULL, SLIDING))
    return kinds


def layer_types(config: TransformerConfig) -> list[str]:
    ops = [a(AttentionConfig, block.mixer.op) for block in config.stack.blocks]
    return [FULL if op.mask.window is None else SLIDING for op in ops]


def window_of(config: TransformerConfig) -> int | None:
    """The window of the layers that have one."""
    windows = [a(AttentionConfig, block.mixer.op).mask.window for block in config.stack.blocks]
    return next((window for window in windows if window is not None), None)


def read_late_windows(r: Reader) -> list[MaskConfig]:
    """Every layer's mask where windows start at a layer, if they are used at all (Qwen 2 and 3)."""
    n_layers, start, window = r.get("num_hidden_layers"), r.get("max_window_layers", 28), r.optional("sliding_window")
    if not r.get("use_sliding_window", False):
        window = None
    late = [SLIDING if window is not None and layer >= start else FULL for layer in range(n_layers)]
    masks = {FULL: MaskConfig(), SLIDING: MaskConfig(window=window)}
    return [masks[kind] for kind in read_layer_types(r, late)]


def write_late_windows(config: TransformerConfig) -> dict[str, Any]:
    kinds, window = layer_types(config), window_of(config)
    return {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": kinds.index(SLIDING) if SLIDING in kinds else len(kinds),
        "layer_types": kinds,
    }
