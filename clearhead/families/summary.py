"""A family in a line: what its published defaults are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    LatentAttentionConfig,
    LearnedPositions,
    Mamba2Config,
    MambaConfig,
    PatchesConfig,
    RecurrentConfig,
    RelativeBiasConfig,
    RotaryConfig,
    SinusoidalPositions,
    StackConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.families.family import Family

Config = TransformerConfig | TwoTowersConfig


@dataclass(frozen=True)
class Summary:
    """What a family is made of, a word or a few for each."""

    family: str
    kind: str
    reads: str
    positions: str
    norm: str
    mixer: str
    feed_forward: str
    formats: str


def summarise(family: Family) -> Summary:
    """Describe a family by the config it has when its file says nothing."""
    config = family.read({"model_type": family.model_type}, family.model_type)
    stacks = _stacks(config)
    blocks = [block for stack in stacks for block in stack.blocks]
    return Summary(
        family=family.model_type,
        kind=_kind(config),
        reads=_joined(_reads(stack) for stack in stacks),
        positions=_joined(_positions(stack) for stack in stacks),
        norm=_joined(_norm(block) for block in blocks),
        mixer=_joined(_mixer(block) for block in blocks),
        feed_forward=_joined(_feed_forward(block) for block in blocks),
        formats="safetensors, .bin" + (", GGUF" if family.gguf is not None else ""),
    )


def counts(summaries: Iterable[Summary]) -> dict[str, int]:
    """How many families have the choices that most models of today share."""
    shares: Counter[str] = Counter()
    for s in summaries:
        shares["families"] += 1
        shares["rotary"] += "rotary" in s.positions
        shares["pre-norm"] += "pre" in s.norm
        shares["RMSNorm"] += "RMS" in s.norm
        shares["gated"] += "gated" in s.feed_forward
        shares["grouped queries"] += "grouped" in s.mixer
        shares["experts"] += "experts" in s.feed_forward
        shares["state space"] += "scan" in s.mixer
    return dict(shares)


def _stacks(config: Config) -> list[StackConfig]:
    if isinstance(config, TwoTowersConfig):
        return [config.text.stack, config.image.stack]
    return [stack for stack in (config.encoder, config.decoder) if stack is not None]


def _kind(config: Config) -> str:
    if isinstance(config, TwoTowersConfig):
        return "two towers"
    return "-".join(name for name in ("encoder", "decoder") if getattr(config, name) is not None)


def _reads(stack: StackConfig) -> str:
    kinds: dict[type, str] = {PatchesConfig: "pictures", FramesConfig: "sound"}
    return kinds.get(type(stack.embed.front), "text")


def _positions(stack: StackConfig) -> str:
    words = []
    match stack.embed.positions:
        case LearnedPositions():
            words.append("learned")
        case SinusoidalPositions():
            words.append("sinusoidal")
    ops = [block.mixer.op for block in stack.blocks]
    kinds: dict[type, str] = {RotaryConfig: "rotary", RelativeBiasConfig: "relative", AlibiConfig: "ALiBi"}
    for op in ops:
        word = kinds.get(type(op.positions)) if isinstance(op, AttentionConfig | LatentAttentionConfig) else None
        if word is not None and word not in words:
            words.append(word)
    return " + ".join(words) or "none"


def _norm(block: BlockConfig) -> str:
    part = block.mixer if any((block.mixer.pre, block.mixer.out, block.mixer.after)) else block.ffn
    if part is None:
        return "none"
    first = part.pre or part.out or part.after
    assert first is not None
    kind = "RMS" if first.kind == "rms" else "Layer"
    if part.after is not None:
        return f"{kind} post"
    place = "sandwich" if part.pre and part.out else "out" if part.out else "pre"
    return f"{kind} {place}{', parallel' if block.parallel else ''}"


def _mixer(block: BlockConfig) -> str:
    match block.mixer.op:
        case AttentionConfig() as op:
            words = ["grouped" if op.n_kv_heads < op.n_heads else "multi-head"]
            if op.mask.window is not None:
                words.append("window")
            if op.scores.sinks:
                words.append("sinks")
            return " ".join(words)
        case LatentAttentionConfig():
            return "latent"
        case MambaConfig():
            return "scan"
        case Mamba2Config():
            return "scan by heads"
        case RecurrentConfig(cell=cell):
            return f"recurrent ({cell})"
    raise AssertionError(block.mixer.op)


def _feed_forward(block: BlockConfig) -> str:
    match block.ffn.op if block.ffn is not None else None:
        case None:
            return "none"
        case FeedForwardConfig() as op:
            return _activated(op)
        case ExpertsConfig() as op:
            shared = "" if op.shared is None else " + shared"
            return f"{op.n_chosen} of {op.n_experts}{shared} experts {_activated(op.expert)}"
    raise AssertionError(block.ffn)


def _activated(op: FeedForwardConfig) -> str:
    name = op.activation if isinstance(op.activation, str) else "clamped silu"
    return f"gated {name}" if op.gated else name


def _joined(words: Iterable[str]) -> str:
    """Each once, in the order in which they come."""
    return " / ".join(dict.fromkeys(words))
