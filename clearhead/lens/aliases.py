"""TransformerLens' names for the places that have an exact equal here: `blocks.3.attn.hook_pattern`.

A value asked for by such a name has the axes that TransformerLens gives it, (batch, position, head, width) where ours
are (batch, head, position, width), so that a function written for it does here what it does there. What has no exact
equal in a model is refused, with the nearest of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from clearhead.config import AttentionConfig, RotaryConfig
from clearhead.errors import ClearheadError
from clearhead.model.stack import Stack
from clearhead.taps import catalogue, resolve

MARK = "hook_"
"""Every name of theirs has it, and none of ours."""
WORDS = (("blocks.", "layers."), ("cross_attn.", "cross."), ("attn.", "mixer."), ("mlp.", "ffn."), (MARK, ""))


@dataclass(frozen=True)
class Alias:
    """What one of their names stands for."""

    address: str
    """Ours; where something `differs`, the nearest of ours."""
    heads_last: bool = False
    """Whether they have positions before heads."""
    differs: str = ""

    def turned(self, value: Tensor) -> Tensor:
        """A value of ours with their axes, or one of theirs with ours."""
        return value.transpose(1, 2) if self.heads_last and value.ndim > 2 else value

    def turned_function(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """A function of their axes as one of ours."""

        def ours(value: Tensor) -> Tensor:
            new = function(self.turned(value))
            return self.turned(new) if isinstance(new, Tensor) else new

        return ours if self.heads_last else function


_MADE: WeakKeyDictionary[nn.Module, tuple[dict[str, str], dict[str, Alias]]] = WeakKeyDictionary()
"""Made once a model, with the catalogue that they were made from: 350 names take longer than a small pass."""


def aliases(model: nn.Module) -> dict[str, Alias]:
    """Every name of theirs whose place, or one near to it, is in `model`."""
    known = catalogue(model)
    if model not in _MADE or _MADE[model][0] != known:
        _MADE[model] = (known, {name: alias for name, alias in _every(model) if alias.address in known})
    return _MADE[model][1]


def find(model: nn.Module, pattern: str) -> list[Alias]:
    """The places that a pattern names, in their spelling or in ours, in the order of the pass.

    Raises:
        ClearheadError: it names nothing here, or what has no exact equal here; the message has the nearest of ours.
    """
    if MARK not in pattern:
        return [Alias(address) for address in resolve(model, (pattern,))]
    named = {name: alias for name, alias in aliases(model).items() if fnmatchcase(name, pattern)}
    equal = {alias.address: alias for alias in named.values() if not alias.differs}
    differing = [(name, alias) for name, alias in named.items() if alias.differs]
    if differing and (not equal or "*" not in pattern.rpartition(MARK)[2]):
        name, alias = differing[0]
        raise ClearheadError(f"{name} has no exact equal here: {alias.differs}; the nearest is {alias.address}")
    if not equal:
        guess = pattern.replace("*", "0")
        for theirs, ours in WORDS:
            guess = guess.replace(theirs, ours)
        near = difflib.get_close_matches(guess, catalogue(model), n=3, cutoff=0.0)
        raise ClearheadError(f"this model has nothing called {pattern!r}; the nearest are {', '.join(near)}")
    return [equal[address] for address in resolve(model, equal)]


def addresses(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """The addresses that patterns name, in their spelling or in ours, in the order of the pass."""
    patterns = list(patterns)
    ours = [pattern for pattern in patterns if MARK not in pattern]
    theirs = [alias.address for pattern in patterns if MARK in pattern for alias in find(model, pattern)]
    return resolve(model, [*ours, *theirs])


Named = Iterator[tuple[str, Alias]]


def _every(model: nn.Module) -> Named:
    yield "hook_embed", Alias("embed.front")
    yield "hook_pos_embed", Alias("embed.positions")
    yield "embed.hook_token_type_embed", Alias("embed.types")
    yield "hook_full_embed", Alias("embed")
    paired = getattr(model, "encoder", None) is not None
    for path, stack in model.named_modules():
        if isinstance(stack, Stack) and (paired or not path):
            # The layers of an encoder and of the decoder beside it are called encoder.0 and decoder.0.
            yield from _of_stack(path, stack, (path or "decoder") if paired else "blocks")


def _of_stack(path: str, stack: Stack, theirs: str) -> Named:
    ours = f"{path}.layers" if path else "layers"
    for number, block in enumerate(stack.layers):
        for name, alias in _of_block(block):
            yield f"{theirs}.{number}.{name}", replace(alias, address=f"{ours}.{number}.{alias.address}")
    if not path and stack.norm is not None:
        weighted = "" if stack.norm.config.kind == "layer" else "there it is before the norm's weight"
        yield "ln_final.hook_normalized", Alias("final", differs=weighted)
        yield "ln_final.hook_scale", Alias("final", differs="what a norm divides by is no place here")


def _of_block(block: Any) -> Named:
    """Names and addresses within a block."""
    normed = block.mixer_norm.after is not None
    yield "hook_resid_pre", Alias("resid_pre")
    for place in ("resid_mid", "resid_post"):
        if normed:
            yield f"hook_normalized_{place}", Alias(place)
        yield f"hook_{place}", Alias(place, differs="there it is before the norm" if normed else "")
    yield "hook_resid_mid_cross", Alias("resid_cross")
    yield "hook_mlp_out", Alias("ffn.out")
    for part, ours, out in (("attn", "mixer", "hook_attn_out"), ("cross_attn", "cross", "hook_cross_attn_out")):
        op = getattr(block, ours)
        if op is not None and "pattern" in op.sites:
            yield out, Alias(f"{ours}.out")
            for name, alias in _of_attention(op.config):
                yield f"{part}.{name}", replace(alias, address=f"{ours}.{alias.address}")
    yield "mlp.hook_pre", Alias("ffn.pre")
    yield "mlp.hook_post", Alias("ffn.post")
    yield "mlp.hook_pre_linear", Alias("ffn.pre", differs="what a gate is multiplied with is no place here")
    yield "mlp.hook_expert_indices", Alias("ffn.chosen")
    yield "mlp.hook_expert_weights", Alias("ffn.router_logits", differs="ours are before they are made weights")
    for norm, place in (("ln1", "resid_pre"), ("ln2", "resid_mid")):
        for word in ("normalized", "scale"):
            yield f"{norm}.hook_{word}", Alias(place, differs="what a norm inside a block does is no place here")


def _of_attention(config: object) -> Named:
    yield "hook_attn_scores", Alias("scores")
    yield "hook_pattern", Alias("pattern")
    yield "hook_z", Alias("z", True)
    yield "hook_result", Alias("z", True, "ours is before the output matrix")
    if not isinstance(config, AttentionConfig):
        return
    normed = "there it is before the norm" if config.qk_norm is not None else ""
    yield "hook_q", Alias("q_raw", True, normed)
    yield "hook_k", Alias("k_raw", True, normed)
    rotary = config.positions if isinstance(config.positions, RotaryConfig) else None
    turned = rotary is not None and rotary.on_values
    yield "hook_v", Alias("v", True, "there it is before the rotation" if turned else "")
    if rotary is not None:
        yield "hook_rot_q", Alias("q", True)
        yield "hook_rot_k", Alias("k", True)
