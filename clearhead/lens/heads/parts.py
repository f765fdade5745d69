"""The stacks of a model whose heads can be told apart, and how to run each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import (
    AttentionConfig,
    FramesConfig,
    LatentAttentionConfig,
    LearnedPositions,
    MaskConfig,
    PatchesConfig,
    StackConfig,
    TokensConfig,
)
from clearhead.errors import ClearheadError
from clearhead.taps import Taps, address

if TYPE_CHECKING:
    from clearhead.model.stack import Stack
    from clearhead.model.transformer import Transformer

Kind = Literal["tokens", "pixels", "frames"]
Batch = Mapping[str, Tensor]
"""What a part reads, rows first: "tokens" and perhaps "present", "pixels", or "frames"; with a decoder's, "source"."""


@dataclass(frozen=True)
class Part:
    """One stack. `run(batch, taps)` is one pass of it, and of what it can't do without."""

    whole: Transformer
    """What the caller has, which knows the tokenizer and how inputs are prepared."""
    model: Transformer
    """`whole`, or one of its two towers."""
    stack: Stack
    config: StackConfig
    context: int | None
    run: Callable[[Batch, Taps], None]

    @property
    def kind(self) -> Kind:
        front = self.config.embed.front
        return (
            "tokens" if isinstance(front, TokensConfig) else "pixels" if isinstance(front, PatchesConfig) else "frames"
        )

    @property
    def layers(self) -> dict[int, MaskConfig]:
        """The layers that have attention, with their masks."""
        ops = {layer: block.mixer.op for layer, block in enumerate(self.config.blocks)}
        return {n: op.mask for n, op in ops.items() if isinstance(op, AttentionConfig | LatentAttentionConfig)}

    def n_heads(self, layer: int) -> int:
        op = self.config.blocks[layer].mixer.op
        assert isinstance(op, AttentionConfig | LatentAttentionConfig)
        return op.n_heads

    def mixer(self, layer: int) -> str:
        """The address of a layer's attention."""
        return address(self.stack.path, f"layers.{layer}.mixer")

    @property
    def both_ways(self) -> bool:
        return any(mask.kind == "full" for mask in self.layers.values())

    @property
    def is_output(self) -> bool:
        """Whether this stack's stream is the one that the model's heads read."""
        return self.stack is self.model


def parts(model: Transformer) -> list[Part]:
    """Every stack of `model` with self-attention: one, an encoder and a decoder, or two towers.

    Raises:
        ClearheadError: there is no attention in it.
    """
    towers = [tower for name in ("text", "image") if (tower := getattr(model, name, None)) is not None]
    found = [part for one in towers or [model] for part in _of_one(model, one) if part.layers]
    if not found:
        raise ClearheadError(
            "this model has no attention layers, so it has no heads to tell apart; clearhead.look shows what its "
            "layers keep instead (`delta`, `state`)"
        )
    return found


def _of_one(whole: Transformer, model: Transformer) -> list[Part]:
    config, context = model.config, model.config.context
    if model.encoder is None:
        return [
            Part(
                whole,
                model,
                model,
                config.stack,
                _longest(config.stack, context),
                lambda batch, taps: _run(model, batch, taps),
            )
        ]
    assert config.encoder is not None
    encoder = Part(
        whole,
        model,
        model.encoder,
        config.encoder,
        _longest(config.encoder, context),
        lambda batch, taps: _encode(model, batch, taps),
    )
    decoder = Part(
        whole,
        model,
        model,
        config.stack,
        _longest(config.stack, context),
        lambda batch, taps: _run(model, {**batch, **_source(encoder, batch)}, taps),
    )
    return [encoder, decoder]


def _run(model: Transformer, batch: Batch, taps: Taps) -> None:
    model(
        batch.get("tokens"), **{name: value for name, value in batch.items() if name != "tokens"}, taps=taps, read=False
    )


def _encode(model: Transformer, batch: Batch, taps: Taps) -> None:
    names = {"tokens": "source", "present": "source_present"}
    inputs: dict[str, Any] = {names.get(name, name): value for name, value in batch.items()}
    model.encode(**inputs, taps=taps)


def _source(encoder: Part, batch: Batch) -> dict[str, Tensor]:
    """Something for a decoder to look at while its own tokens are what is asked about: the same text, or a sound."""
    if ("source" if encoder.kind == "tokens" else encoder.kind) in batch:
        return {}
    if encoder.kind == "tokens":
        return {"source": batch["tokens"], **({"source_present": batch["present"]} if "present" in batch else {})}
    n_rows = len(batch["tokens"])
    return {encoder.kind: made(encoder, 1).expand(n_rows, *[-1] * (3 if encoder.kind == "pixels" else 2))}


def made(part: Part, n: int, seed: int = 0) -> Tensor:
    """n pictures or sounds of our own, their mean 0 and spread 1, as what models read is prepared."""
    front = part.config.embed.front
    generator = torch.Generator().manual_seed(seed)
    if isinstance(front, PatchesConfig):
        x = shapes((n, front.channels, *front.image), generator)
    else:
        assert isinstance(front, FramesConfig)
        places = part.config.embed.positions
        n_frames = places.n * prod(front.strides) if isinstance(places, LearnedPositions) else 256
        x = tones((n, front.n_mels, n_frames), generator)
    x = (x - x.mean()) / x.std()
    return x.to(part.model.device, part.model.dtype)


def shapes(size: tuple[int, int, int, int], generator: torch.Generator) -> Tensor:
    """Pictures (B, C, height, width) of a bright thing on a dark ground: |x|^p + |y|^p < 1, from a diamond to a box."""
    n, channels, height, width = size
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator)

    sharp, (at_y, at_x), (tall, wide) = draw(1, 6), (draw(-0.3, 0.3), draw(-0.3, 0.3)), (draw(0.3, 0.9), draw(0.3, 0.9))
    inside_Bhw = ((x - at_x) / wide).abs() ** sharp + ((y - at_y) / tall).abs() ** sharp < 1
    colour_BC11 = 0.4 + 0.6 * torch.rand(n, channels, 1, 1, generator=generator)
    grain = 0.1 * torch.randn(size, generator=generator)
    return inside_Bhw[:, None] * (colour_BC11 + grain)


def tones(size: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Spectrograms (B, bands, frames) of smooth noise in several sizes."""
    x_B1MF = torch.zeros(size[0], 1, *size[1:])
    for cells in (2, 4, 8, 16):
        coarse = torch.randn(size[0], 1, cells, cells, generator=generator)
        x_B1MF += F.interpolate(coarse, size[1:], mode="bilinear")
    return x_B1MF[:, 0]


def _longest(config: StackConfig, context: int | None) -> int | None:
    """The longest text a stack can read."""
    places = config.embed.positions
    return context if context is not None else getattr(places, "n", None)
