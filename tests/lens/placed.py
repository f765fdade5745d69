"""Tiny models in float64 with their norms in every place, and the stream's parts pushed forward by plain arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.lens import look
from clearhead.model.transformer import Transformer
from clearhead.taps import catalogue

LAYER, RMS = NormConfig(kind="layer", eps=1e-5, bias=True), NormConfig(kind="rms", offset=1.0)
NORMS: dict[str, dict[str, NormConfig]] = {
    "pre": {"pre": LAYER},
    "parallel": {"pre": RMS},
    "sandwich": {"pre": RMS, "out": RMS},
    "out": {"out": LAYER},
    "post": {"after": LAYER},
}
"""By name: which norms a sub-layer has."""
V, D, H, K, F = 40, 16, 4, 4, 12
TOKENS = torch.randint(0, V, (2, 7), generator=torch.Generator().manual_seed(3))


def placed(placement: str = "pre", *, n_kv_heads: int = 2, final: bool = True, head: Any = None) -> Transformer:
    """Two layers with biases everywhere, a scale on every correction, embeddings that are normed, and learned places.

    placement: one of NORMS. final: with a norm after the last block (never in "post"). head: what reads the stream.
    """
    bias = BiasConfig(q=True, k=True, v=True, o=True)
    attention = AttentionConfig(n_heads=H, n_kv_heads=n_kv_heads, d_head=K, bias=bias)
    forward = FeedForwardConfig(d_ff=F, gated=placement != "pre", activation="gelu", bias=True)
    norms = NORMS[placement]
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, scale=0.7, **norms),
        ffn=SublayerConfig(op=forward, scale=1.3, **norms),
        parallel=placement == "parallel",
    )
    front = TokensConfig(vocab_size=V, n_types=2)
    embed = EmbedConfig(front=front, positions=LearnedPositions(n=20), scale=3.0, norm=LAYER)
    norm = next(iter(norms.values())) if final and placement != "post" else None
    stack = StackConfig(embed=embed, blocks=(block, block), norm=norm)
    tokens = head or TokenHeadConfig(tie=False, bias=True, scale=0.8)
    model = Transformer(TransformerConfig(d_model=D, decoder=stack, heads=HeadsConfig(tokens=tokens)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model.double().eval()


MASKED_HEAD = TokenHeadConfig(bias=True, transform=TransformConfig(width=D, activation="gelu", norm=LAYER))


def through(norm: Any, x: Tensor, part: Tensor) -> Tensor:
    """A part of `x` through a norm that divides by the size of `x`; without its bias."""
    layer = norm.config.kind == "layer"
    if layer:
        x, part = x - x.mean(-1, keepdim=True), part - part.mean(-1, keepdim=True)
    return part / (x.pow(2).mean(-1, keepdim=True) + norm.config.eps).sqrt() * (norm.weight + norm.config.offset)


@torch.no_grad()
def pushed(model: Transformer, pieces: dict[str, Tensor], tokens: Tensor = TOKENS) -> dict[str, Tensor]:
    """What reaches the final stream (B, T, D) of the embedding, of each sub-layer and of each of `pieces`, which are
    parts of what a sub-layer's operation gives, by "label: name"; biases of norms after an addition are "bias".
    """
    seen = look(model, tokens, *catalogue(model))
    parts, extra = {"embedding": seen["embed"], "bias": torch.zeros_like(seen["embed"])}, {}
    for i, block in enumerate(model.layers):
        for kind in ("mixer", "ffn"):
            label, norms = f"layer {i} {kind}", getattr(block, f"{kind}_norm")
            parts[label] = seen[f"layers.{i}.{kind}.out"]
            for name, piece in pieces.items():
                if name.startswith(f"{label}: "):
                    read = raw(seen, block, i, kind)
                    piece = piece if norms.out is None else through(norms.out, read, piece)
                    extra[name] = piece * getattr(block.config, kind).scale
            if norms.after is not None:
                x = sum(parts.values())
                parts = {name: through(norms.after, x, part) for name, part in parts.items()}
                extra = {name: through(norms.after, x, part) for name, part in extra.items()}
                parts["bias"] = parts["bias"] + norms.after.bias
    if model.norm is not None:
        x = sum(parts.values())
        parts = {name: through(model.norm, x, part) for name, part in parts.items()}
        extra = {name: through(model.norm, x, part) for name, part in extra.items()}
        parts["bias"] = parts["bias"] + (0 if model.norm.bias is None else model.norm.bias)
    assert torch.allclose(sum(parts.values()), seen["final"], atol=1e-12)
    return {**parts, **extra}


def raw(seen: Any, block: Any, layer: int, kind: str) -> Tensor:
    """What a sub-layer's operation gives, before any norm."""
    if kind == "mixer":
        return block.mixer.o_proj(seen[f"layers.{layer}.mixer.z"].transpose(1, 2).flatten(2))
    return block.ffn.down_proj(seen[f"layers.{layer}.ffn.post"])
