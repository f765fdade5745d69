"""The parts of a model in the order of the pass, each with its formula, its shapes and how many numbers it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ClampedGate,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    LatentAttentionConfig,
    LearnedPositions,
    NormConfig,
    PatchesConfig,
    SinusoidalPositions,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.model.describe import Description, describe
from clearhead.model.transformer import Transformer

SUBLAYERS = ("mixer", "cross", "ffn")
NAMES = {"mixer": "Attention", "cross": "Cross-attention", "ffn": "MLP"}
PLACES = {"pre": "before", "out": "on the correction", "after": "after the addition"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One box of the diagram."""

    id: str
    """embed, mixer.pre, mixer, mixer.out, mixer.add, mixer.after, the same of cross and ffn, final, head."""
    kind: str
    """attention, mlp, norm, add, embed or head."""
    name: str
    formula: str
    """TeX."""
    told: str
    """What it does, in a sentence."""
    reads: str
    gives: str
    """Shapes, in letters and numbers."""
    shapes: dict[str, list[int]]
    """Its weights."""

    @property
    def n_parameters(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def told_as_json(self) -> dict[str, Any]:
        return {**asdict(self), "n_parameters": self.n_parameters}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack as boxes."""

    embed: Part
    layers: list[list[Part]]
    words: list[str]
    """Each layer in a line."""
    end: list[Part]
    total: int


def plan(model: Transformer, tokens: int) -> Plan:
    """The boxes of a model's own stack, for a text of so many tokens."""
    config, found = model.config, describe(model)
    weights = _Weights(found)
    d, t = config.d_model, tokens
    stream = f"{t} × {d}"
    end = []
    if config.stack.norm is not None:
        end.append(
            _norm("final", "Final norm", config.stack.norm, weights.of("norm"), stream, "once, after all blocks")
        )
    if config.heads.tokens is not None or config.heads.labels:
        end.append(_head(config, weights, stream, t))
    return Plan(
        embed=_embed(config.stack.embed, weights.of("embed"), t, stream),
        layers=[list(_block(block, layer, weights, stream, t, d)) for layer, block in enumerate(config.stack.blocks)],
        words=found.layers["layers"],
        end=end,
        total=found.n_parameters,
    )


class _Weights:
    """Shapes by path, from the model's own description."""

    def __init__(self, found: Description) -> None:
        self.parts = {part.path: part for part in found.parts}

    def of(self, path: str, only: str = "") -> dict[str, list[int]]:
        """The weights of a part; those alone whose name begins with `only`."""
        part = self.parts.get(path)
        shapes = {} if part is None else part.shapes
        return {name: list(shape) for name, shape in shapes.items() if name.startswith(only)}


def _embed(config: EmbedConfig, shapes: dict[str, list[int]], t: int, stream: str) -> Part:
    formula, told, reads = _front(config, t)
    match config.positions:
        case LearnedPositions():
            formula, told = rf"{formula} + P_t", f"{told}; a learned vector of the place is added"
        case SinusoidalPositions():
            formula, told = rf"{formula} + \mathrm{{PE}}(t)", f"{told}; the sinusoids of the place are added"
    return Part(
        id="embed",
        kind="embed",
        name="Embedding",
        formula=formula,
        told=f"{told}.",
        reads=reads,
        gives=stream,
        shapes=shapes,
    )


def _front(config: EmbedConfig, t: int) -> tuple[str, str, str]:
    match config.front:
        case PatchesConfig(patch=patch, channels=channels):
            told = f"Each square of {patch} × {patch} pixels becomes a vector by one matrix"
            return r"x_t = E\,p_t + b", told, f"{t} squares of {patch * patch * channels} numbers"
        case FramesConfig(n_mels=n_mels):
            told = "Two convolutions make vectors of frames of the spectrogram"
            return r"x = \mathrm{conv}(\mathrm{conv}(m))", told, f"{n_mels} bands"
    return r"x_t = E_{\mathrm{token}_t}", "Each token is looked up in a table", f"{t} tokens"


def _block(block: BlockConfig, layer: int, weights: _Weights, stream: str, t: int, d: int) -> Iterator[Part]:
    for kind in SUBLAYERS:
        config: SublayerConfig | None = getattr(block, kind)
        if config is None:
            continue
        for place in ("pre", "", "out", "add", "after"):
            if place == "":
                yield _op(kind, config, weights.of(f"layers.{layer}.{kind}"), stream, t, d)
            elif place == "add":
                yield _addition(kind, config, block.parallel, stream)
            elif (norm := getattr(config, place)) is not None:
                shapes = weights.of(f"layers.{layer}.{kind}_norm", only=place)
                yield _norm(f"{kind}.{place}", "Norm", norm, shapes, stream, PLACES[place])


def _norm(id: str, name: str, norm: NormConfig, shapes: dict[str, list[int]], stream: str, place: str) -> Part:
    scale = "w" if not norm.offset else f"({norm.offset:g} + w)"
    if norm.kind == "layer":
        formula = rf"\frac{{x - \overline{{x}}}}{{\sqrt{{\mathrm{{var}}(x) + \epsilon}}}} \odot {scale}"
        told = f"LayerNorm, {place}: each token's vector is brought to mean 0 and spread 1, number by number scaled."
    else:
        formula = rf"\frac{{x}}{{\sqrt{{\overline{{x^2}} + \epsilon}}}} \odot {scale}"
        told = f"RMSNorm, {place}: each token's vector is brought to a root mean square of 1 and scaled."
    formula = f"{formula} + b" if norm.bias else formula
    return Part(
        id=id,
        kind="norm",
        name=name,
        formula=formula,
        told=told,
        reads=stream,
        gives=stream,
        shapes=shapes,
    )


def _addition(kind: str, config: SublayerConfig, parallel: bool, stream: str) -> Part:
    add = r"x \leftarrow x + \Delta" if config.scale == 1.0 else rf"x \leftarrow x + {config.scale:g}\,\Delta"
    told = f"The correction of the {NAMES[kind] if kind == 'ffn' else NAMES[kind].lower()} is added to the stream."
    if not config.residual:
        add, told = r"x \leftarrow \Delta", "What comes out takes the place of the stream."
    if parallel and kind == "ffn":
        told += " In this model it was read from the stream at the start of the block, beside attention."
    return Part(
        id=f"{kind}.add",
        kind="add",
        name="Addition",
        formula=add,
        told=told,
        reads=f"2 × ({stream})",
        gives=stream,
        shapes={},
    )


def _op(kind: str, config: SublayerConfig, shapes: dict[str, list[int]], stream: str, t: int, d: int) -> Part:
    name, family, formula, told, gives = _words(kind, config, t, stream)
    return Part(
        id=kind,
        kind=family,
        name=name,
        formula=formula,
        told=told,
        reads=stream,
        gives=gives,
        shapes=shapes,
    )


def _words(kind: str, config: SublayerConfig, t: int, stream: str) -> tuple[str, str, str, str, str]:
    """Name, kind, formula, what it does, and the shapes on its way."""
    match config.op:
        case AttentionConfig() as op:
            formula = r"\mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right) V\,W_O"
            grouped = "" if op.n_kv_heads == op.n_heads else f" sharing {op.n_kv_heads} keys and values"
            told = (
                f"{op.n_heads} heads of {op.d_head}{grouped} let each token read from others: the only part that does."
            )
            gives = f"{op.n_heads} maps of {t} × {t}, then {stream}"
            return NAMES[kind], "attention", formula, told, gives
        case LatentAttentionConfig(n_heads=n_heads, widths=widths):
            told = f"{n_heads} heads whose keys and values are made from {widths.kv} numbers a token."
            formula = r"\mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right) V\,W_O"
            return "Latent attention", "attention", formula, told, stream
        case FeedForwardConfig() as op:
            formula, told = _feed_forward(op)
            return "MLP", "mlp", formula, told, f"{t} × {op.d_ff}, then {stream}"
        case ExpertsConfig() as op:
            formula = r"\sum_{e \in \mathrm{top}} g_e(x)\,\mathrm{MLP}_e(x)"
            told = f"Each token goes to {op.n_chosen} of {op.n_experts} MLPs, which a router chooses."
            return "Experts", "mlp", formula, told, stream
    told = "It reads token after token and carries a state along."
    return "Scan", "attention", r"h_t = A_t h_{t-1} + B_t x_t", told, stream


def _feed_forward(op: FeedForwardConfig) -> tuple[str, str]:
    act = "clamped" if isinstance(op.activation, ClampedGate) else op.activation.replace("_", r"\_")
    bias = "" if not op.bias else " + b"
    if op.gated:
        formula = (
            rf"\left(\mathrm{{{act}}}(x W_{{\mathrm{{gate}}}}) \odot x W_{{\mathrm{{up}}}}\right) W_{{\mathrm{{down}}}}"
        )
        told = f"{op.d_ff} hidden numbers, one side of which gates the other. It works on each token alone."
    else:
        formula = rf"\mathrm{{{act}}}(x W_{{\mathrm{{up}}}}{bias})\, W_{{\mathrm{{down}}}}{bias}"
        told = f"{op.d_ff} hidden numbers with {op.activation} between two matrices. It works on each token alone."
    return formula, told


def _head(config: TransformerConfig, weights: _Weights, stream: str, t: int) -> Part:
    head = config.heads.tokens
    shapes = {
        f"{path}.{name}": shape for path in ("head", "labels", "pool") for name, shape in weights.of(path).items()
    }
    if head is None:
        labels = sum(labels.n_labels for _, labels in config.heads.labels)
        return Part(
            id="head",
            kind="head",
            name="Head",
            formula=r"\mathrm{softmax}(x W)",
            told="A linear layer scores the labels.",
            reads=stream,
            gives=f"{labels} scores",
            shapes=shapes,
        )
    vocabulary = getattr(config.stack.embed.front, "vocab_size", 0)
    tied = " The matrix is the embedding's own table, so it costs nothing more." if head.tie else ""
    return Part(
        id="head",
        kind="head",
        name="Head",
        formula=r"\mathrm{softmax}(x E^\top)" if head.tie else r"\mathrm{softmax}(x W^\top)",
        told=f"A linear layer scores each of {vocabulary:,} tokens.{tied}",
        reads=stream,
        gives=f"{t} × {vocabulary:,}",
        shapes=shapes,
    )
