"""Another scaling of the rotary positions of a model, so that it can read longer texts than it was trained on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    DynamicScaling,
    LatentAttentionConfig,
    LinearScaling,
    RotaryConfig,
    Scaling,
    StackConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.errors import ClearheadError


def with_rope(config: TransformerConfig | TwoTowersConfig, scaling: Scaling | None) -> TransformerConfig:
    """`config` with `scaling` in place of the scaling its rotary positions had; None is none.

    It concerns the layers that see the whole text, and those behind a window that share their frequencies; a window
    with a base of its own (Gemma 3) reaches no farther in a longer text. The context becomes the stretched length
    where that is longer than it was; dynamic scaling counts from the trained length, and leaves it.

    Raises:
        ClearheadError: the model has no rotary positions, or the scaling does not fit them.
    """
    if isinstance(config, TwoTowersConfig):
        raise ClearheadError("rope scales rotary positions, and a model of two towers has none")
    stacks = {name: s for name, s in (("encoder", config.encoder), ("decoder", config.decoder)) if s is not None}
    changed = _concerned(block for stack in stacks.values() for block in stack.blocks)
    if not changed:
        raise ClearheadError(f"rope scales rotary positions, and this model has none: {_positions(config.stack)}")
    if scaling is not None and scaling.factor <= 0:
        raise ClearheadError(f"the factor of a rope scaling is {scaling.factor}; it must be more than 0")
    new: dict[str, Any] = {
        name: replace(stack, blocks=tuple(_scaled(block, changed, scaling) for block in stack.blocks))
        for name, stack in stacks.items()
    }
    return replace(config, **new, context=_context(config.context, scaling, changed))


def _rotary(block: BlockConfig) -> RotaryConfig | None:
    op = block.mixer.op
    rotary = op.positions if isinstance(op, AttentionConfig | LatentAttentionConfig) else None
    return rotary if isinstance(rotary, RotaryConfig) else None


def _concerned(blocks: Iterable[BlockConfig]) -> set[RotaryConfig]:
    """The rotary configs of layers that see the whole text; where every layer has a window, all."""
    found: dict[bool, set[RotaryConfig]] = {True: set(), False: set()}
    for block in blocks:
        rotary, op = _rotary(block), block.mixer.op
        if rotary is not None and isinstance(op, AttentionConfig | LatentAttentionConfig):
            found[op.mask.window is None].add(rotary)
    return found[True] or found[False]


def _scaled(block: BlockConfig, changed: set[RotaryConfig], scaling: Scaling | None) -> BlockConfig:
    rotary, op = _rotary(block), block.mixer.op
    if rotary not in changed or not isinstance(op, AttentionConfig | LatentAttentionConfig):
        return block
    return replace(block, mixer=replace(block.mixer, op=replace(op, positions=replace(rotary, scaling=scaling))))


def _context(context: int | None, scaling: Scaling | None, before: set[RotaryConfig]) -> int | None:
    """The longest text the model is then made for."""
    match scaling:
        case None:
            return context
        case DynamicScaling(trained_length=trained):
            return trained
        case LinearScaling(factor=factor):
            already = max((r.scaling.factor for r in before if isinstance(r.scaling, LinearScaling)), default=1.0)
            return None if context is None else max(context, round(context / already * factor))
    return max(context or 0, round(scaling.trained_length * scaling.factor))


def _positions(stack: StackConfig) -> str:
    """What tells places apart in a model without rotary positions."""
    op = stack.blocks[0].mixer.op
    kind = getattr(op, "positions", None) or stack.embed.positions
    return f"its positions are {type(kind).__name__}" if kind is not None else "it has no positions at all"
