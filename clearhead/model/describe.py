"""A model as a table: what it is made of, and how large each part is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    FeedForwardConfig,
    RotaryConfig,
    TokensConfig,
    TransformerConfig,
)


@dataclass(frozen=True)
class Part:
    """One row: where it is, what it is, its parameters by name and shape, how many numbers, which dtype."""

    path: str
    kind: str
    shapes: dict[str, tuple[int, ...]]
    n_parameters: int
    dtype: str


@dataclass(frozen=True)
class Description:
    """A model in words and numbers. `str()` of it is a plain table."""

    facts: dict[str, str]
    parts: list[Part]
    layers: list[str]
    """One line a layer: its mixer's heads, positions and mask, and its feed-forward."""
    n_parameters: int
    n_bytes: int

    def __str__(self) -> str:
        width = max(len(name) for name in self.facts)
        lines = [f"{name:<{width}}  {value}" for name, value in self.facts.items()]
        lines += ["", *_grouped(self.layers), ""]
        wide = max(len(part.path) for part in self.parts)
        for part in self.parts:
            shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in part.shapes.items())
            lines.append(f"{part.path:<{wide}}  {part.n_parameters:>13,}  {part.dtype:<8}  {shapes}")
        lines.append(f"{'total':<{wide}}  {self.n_parameters:>13,}  {self.n_bytes / 1e6:,.0f} MB")
        return "\n".join(lines)


def describe(model: nn.Module) -> Description:
    """Describe a Transformer; one on the meta device will do."""
    config: TransformerConfig = model.config  # type: ignore[assignment]
    parameters = dict(model.named_parameters())
    return Description(
        facts=dict(_facts(config)),
        parts=list(_parts(model)),
        layers=[f"layer {i}: {_layer(block)}" for i, block in enumerate(config.stack.blocks)],
        n_parameters=sum(p.numel() for p in parameters.values()),
        n_bytes=sum(p.nbytes for p in parameters.values()),
    )


def _facts(config: TransformerConfig) -> Iterator[tuple[str, str]]:
    stack = config.stack
    yield "kind", "decoder" if config.decoder is not None else "encoder"
    yield "width of the stream", str(config.d_model)
    yield "layers", str(len(stack.blocks))
    if isinstance(stack.embed.front, TokensConfig):
        yield "vocabulary", f"{stack.embed.front.vocab_size:,}"
    if config.context is not None:
        yield "context", f"{config.context:,} tokens"
    if stack.embed.positions is not None:
        kind = type(stack.embed.positions).__name__.removesuffix("Positions").lower()
        yield "positions", f"{kind}, {stack.embed.positions.n:,}"
    if stack.embed.scale != 1.0:
        yield "embedding scale", f"{stack.embed.scale:g}"
    head = config.heads.tokens
    if head is not None:
        cap = "" if head.softcap is None else f", capped at {head.softcap:g}"
        yield "head", ("tied to the embedding" if head.tie else "its own matrix") + cap


def _layer(block: object) -> str:
    """One block in words."""
    mixer, ffn = block.mixer, block.ffn  # type: ignore[attr-defined]
    words = [_attention(mixer.op) if isinstance(mixer.op, AttentionConfig) else type(mixer.op).__name__]
    if ffn is not None and isinstance(ffn.op, FeedForwardConfig):
        words.append(f"{'gated ' if ffn.op.gated else ''}{ffn.op.activation} {ffn.op.d_ff}")
    names = [n for n in ("pre", "out", "after") if getattr(mixer, n) is not None]
    norm = next((getattr(mixer, n) for n in names), None)
    if norm is not None:
        words.append(f"{norm.kind} norm ({'+'.join(names)}{', parallel' if block.parallel else ''})")  # type: ignore[attr-defined]
    return "; ".join(words)


def _attention(op: AttentionConfig) -> str:
    heads = f"{op.n_heads} heads of {op.d_head}"
    if op.n_kv_heads != op.n_heads:
        heads += f" on {op.n_kv_heads} kv"
    mask = op.mask.kind if op.mask.window is None else f"{op.mask.kind} window {op.mask.window}"
    words = [heads, mask]
    if isinstance(op.positions, RotaryConfig):
        scaling = type(op.positions.scaling).__name__.removesuffix("Scaling") if op.positions.scaling else ""
        words.append(f"rotary {op.positions.base:g}{' ' + scaling if scaling else ''}")
    elif isinstance(op.positions, AlibiConfig):
        words.append("ALiBi")
    if op.qk_norm is not None:
        words.append("q/k norm")
    return ", ".join(words)


def _parts(model: nn.Module) -> Iterator[Part]:
    """Modules that own parameters, grouped by the child of a layer, or of the model, that they belong to."""
    owned: dict[str, dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        words = name.split(".")
        depth = 3 if words[0] == "layers" else 1
        owned.setdefault(".".join(words[:depth]), {})[".".join(words[depth:])] = parameter
    for path, parameters in owned.items():
        yield Part(
            path=path,
            kind=type(model.get_submodule(path)).__name__,
            shapes={name: tuple(p.shape) for name, p in parameters.items()},
            n_parameters=sum(p.numel() for p in parameters.values()),
            dtype="/".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters.values()})),
        )


def _grouped(lines: list[str]) -> Iterator[str]:
    """Neighbouring layers that read alike, as one line."""
    words = [line.split(": ", 1)[1] for line in lines]
    start = 0
    for i in range(1, len(words) + 1):
        if i == len(words) or words[i] != words[start]:
            name = f"layer {start}" if i - start == 1 else f"layers {start}-{i - 1}"
            yield f"{name}: {words[start]}"
            start = i
