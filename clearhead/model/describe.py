"""A model as a table: what it is made of, and how large each part is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import nn

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    BlockConfig,
    ClampedGate,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    PatchesConfig,
    RecurrentConfig,
    RelativeBiasConfig,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokensConfig,
    TransformerConfig,
    TwoTowersConfig,
)

CELLS = {"simple": "simple recurrent network", "lstm": "LSTM", "lstm_1997": "LSTM of 1997", "gru": "GRU"}


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
    layers: dict[str, list[str]]
    """By stack ("layers", "encoder.layers"), one line a layer: its mixer, positions and mask, and its feed-forward."""
    n_parameters: int
    n_bytes: int

    def __str__(self) -> str:
        width = max(len(name) for name in self.facts)
        lines = [f"{name:<{width}}  {value}" for name, value in self.facts.items()]
        for stack, layers in self.layers.items():
            lines += ["", *_grouped(stack, layers)]
        lines.append("")
        alike = self.alike()
        names = [path if not layers else f"{path} {ranges(layers)}" for path, layers, _ in alike]
        wide = max(map(len, names))
        for name, (_, _, part) in zip(names, alike, strict=True):
            shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in part.shapes.items())
            lines.append(f"{name:<{wide}}  {part.n_parameters:>13,}  {part.dtype:<8}  {shapes}")
        lines.append(f"{'total':<{wide}}  {self.n_parameters:>13,}  {self.n_bytes / 1e6:,.0f} MB")
        return "\n".join(lines)

    def alike(self) -> list[tuple[str, list[int], Part]]:
        """The parts, those that are alike in several layers as one: its path below a layer, the layers, one of them."""
        found: dict[str, tuple[str, list[int], Part]] = {}
        for part in self.parts:
            words = part.path.split(".")
            at = words.index("layers") if "layers" in words else -1
            in_layer = at >= 0 and len(words) > at + 2
            path = ".".join(words[:at] + words[at + 2 :]) if in_layer else part.path
            row = found.setdefault(f"{in_layer} {path} {part.shapes} {part.dtype}", (path, [], part))
            if in_layer:
                row[1].append(int(words[at + 1]))
        return list(found.values())


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 4] as "0-2, 4"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def describe(model: nn.Module) -> Description:
    """Describe a Transformer; one on the meta device will do."""
    config: TransformerConfig | TwoTowersConfig = model.config  # type: ignore[assignment]
    parameters = dict(model.named_parameters())
    return Description(
        facts=dict(_facts(config)),
        parts=list(_parts(model)),
        layers={name: [_layer(block) for block in stack.blocks] for name, stack in _stacks(config).items()},
        n_parameters=sum(p.numel() for p in parameters.values()),
        n_bytes=sum(p.nbytes for p in parameters.values()),
    )


def _stacks(config: TransformerConfig | TwoTowersConfig) -> dict[str, StackConfig]:
    """The stacks of a model by where their layers are found in it."""
    if isinstance(config, TwoTowersConfig):
        return {"text.layers": config.text.stack, "image.layers": config.image.stack}
    stacks = {"layers": config.stack}
    if config.encoder is not None and config.decoder is not None:
        stacks["encoder.layers"] = config.encoder
    return stacks


def _facts(config: TransformerConfig | TwoTowersConfig) -> Iterator[tuple[str, str]]:
    if isinstance(config, TwoTowersConfig):
        yield "kind", "two towers"
        for name, tower in (("text", config.text), ("image", config.image)):
            yield from ((f"{name}: {fact}", value) for fact, value in _facts(tower))
        return
    stack = config.stack
    kinds = [name for name in ("encoder", "decoder") if getattr(config, name) is not None]
    yield "kind", "-".join(kinds)
    yield "width of the stream", str(config.d_model)
    if len(kinds) == 2:
        assert config.encoder is not None
        yield "layers", f"{len(config.encoder.blocks)} + {len(stack.blocks)}"
        yield "the encoder reads", _front(config.encoder)
    else:
        yield "layers", str(len(stack.blocks))
    if isinstance(stack.embed.front, TokensConfig):
        yield "vocabulary", f"{stack.embed.front.vocab_size:,}"
    else:
        yield "reads", _front(stack)
    if config.context is not None:
        yield "context", f"{config.context:,} tokens"
    if stack.embed.positions is not None:
        kind = type(stack.embed.positions).__name__.removesuffix("Positions").lower()
        yield "positions", f"{kind}, {stack.embed.positions.n:,}"
    if stack.embed.scale != 1.0:
        yield "embedding scale", f"{stack.embed.scale:g}"
    yield from _heads(config)


def _front(stack: StackConfig) -> str:
    match stack.embed.front:
        case PatchesConfig(image=(height, width), patch=patch):
            return f"pictures of {height} x {width} in squares of {patch}"
        case FramesConfig(n_mels=n_mels):
            return f"spectrograms of {n_mels} bands"
        case TokensConfig(vocab_size=vocab_size):
            return f"tokens of a vocabulary of {vocab_size:,}"
    raise AssertionError(stack.embed.front)


def _heads(config: TransformerConfig) -> Iterator[tuple[str, str]]:
    head, pool = config.heads.tokens, config.heads.pool
    if head is not None:
        cap = "" if head.softcap is None else f", capped at {head.softcap:g}"
        yield "head", ("tied to the embedding" if head.tie else "its own matrix") + cap
    if pool is not None:
        yield "pool", f"at {pool.at}" + ("" if pool.transform is None else f", to {pool.transform.width}")
    for name, labels in config.heads.labels:
        yield name, f"{labels.n_labels} labels, at {labels.at}"


def _layer(block: BlockConfig) -> str:
    """One block in words."""
    words = [_op(block.mixer)]
    if block.looks_at_source:
        words.append("looks at the source")
    if block.ffn is not None:
        words.append(_op(block.ffn))
    names = [n for n in ("pre", "out", "after") if getattr(block.mixer, n) is not None]
    norm = next((getattr(block.mixer, n) for n in names), None)
    if norm is not None:
        words.append(f"{norm.kind} norm ({'+'.join(names)}{', parallel' if block.parallel else ''})")
    return "; ".join(words)


def _op(sublayer: SublayerConfig) -> str:
    match sublayer.op:
        case AttentionConfig() as op:
            return _attention(op)
        case LatentAttentionConfig(n_heads=n_heads, widths=w):
            return f"{n_heads} heads on a latent of {w.kv} + {w.rope}"
        case MambaConfig(d_inner=d_inner, d_state=d_state):
            return f"selective scan, {d_inner} channels, state {d_state}"
        case Mamba2Config() as op:
            return f"selective scan, {op.n_heads} heads of {op.d_head}, state {op.d_state}"
        case RecurrentConfig() as op:
            return f"{CELLS[op.cell]}, {op.d_hidden} hidden units{' each way' if op.both_ways else ''}"
        case FeedForwardConfig() as op:
            return _feed_forward(op)
        case ExpertsConfig() as op:
            shared = "" if op.shared is None else f", and one of {op.shared.d_ff} always"
            return f"{op.n_chosen} of {op.n_experts} experts, {_feed_forward(op.expert)}{shared}"
    raise AssertionError(sublayer.op)


def _feed_forward(op: FeedForwardConfig) -> str:
    kind = "clamped" if isinstance(op.activation, ClampedGate) else op.activation
    return f"{'gated ' if op.gated else ''}{kind} {op.d_ff}"


def _attention(op: AttentionConfig) -> str:
    heads = f"{op.n_heads} heads of {op.d_head}"
    if op.n_kv_heads != op.n_heads:
        heads += f" on {op.n_kv_heads} kv"
    words = [heads, op.mask.kind if op.mask.window is None else f"{op.mask.kind} window {op.mask.window}"]
    match op.positions:
        case RotaryConfig(base=base, scaling=scaling):
            kind = "" if scaling is None else " " + type(scaling).__name__.removesuffix("Scaling")
            words.append(f"rotary {base:g}{kind}")
        case AlibiConfig():
            words.append("ALiBi")
        case RelativeBiasConfig(n_buckets=n_buckets):
            words.append(f"relative bias, {n_buckets} buckets")
    if op.qk_norm is not None:
        words.append("q/k norm")
    return ", ".join(words)


def _parts(model: nn.Module) -> Iterator[Part]:
    """Modules that own parameters, grouped by the child of a layer, or of the model, that they belong to."""
    owned: dict[str, dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        words = name.split(".")
        # Below a layer one word more, and the name of the tower or encoder that it stands in.
        depth = words.index("layers") + 3 if "layers" in words else 1 + (words[0] in ("encoder", "text", "image"))
        depth = min(depth, len(words) - 1) or 1
        owned.setdefault(".".join(words[:depth]), {})[".".join(words[depth:])] = parameter
    for path, parameters in owned.items():
        yield Part(
            path=path,
            kind=_kind(model, path),
            shapes={name: tuple(p.shape) for name, p in parameters.items()},
            n_parameters=sum(p.numel() for p in parameters.values()),
            dtype="/".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters.values()})),
        )


def _kind(model: nn.Module, path: str) -> str:
    found = model
    for word in path.split("."):
        found = getattr(found, word)
    return type(found).__name__


def _grouped(name: str, layers: list[str]) -> Iterator[str]:
    """Neighbouring layers that read alike, as one line."""
    start = 0
    for i in range(1, len(layers) + 1):
        if i == len(layers) or layers[i] != layers[start]:
            yield f"{name} {start if i - start == 1 else f'{start}-{i - 1}'}: {layers[start]}"
            start = i
