"""Wrong models, one option at a time: every field of a config tree, changed to something else that is plausible.

One rule a kind of value, none a family. Blocks that say the same are changed together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, get_args, get_type_hints

import torch
from torch import nn

from clearhead import config as records
from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    ClampedGate,
    LinearScaling,
    MaskDropout,
    NormConfig,
    QKNormConfig,
    RelativeBiasConfig,
    RotaryConfig,
    SinusoidalPositions,
    TransformConfig,
)
from clearhead.model.build import build
from clearhead.nn.norm import Norm

Path = tuple[str | int, ...]

EXEMPT = {
    "*.dropout": "acts in training alone, and is tested by its statistics",
    "*.balance": "acts in the loss alone: see test_router.py",
    "*.ids.*": "says which tokens are special, and no pass asks",
    "ids.*": "says which tokens are special, and no pass asks",
    "*context": "the length it was made for, which no pass asks",
    "*.round_first": "the order of rounding is the same in float32; test_bfloat16 has it",
    "*.embed.front.image": "the size it was trained on, which no pass asks",
    "*.zero_padding": "what padding holds is seen by no token",
    "*logit_scale": "where training starts; a checkpoint has its own",
    "*.cross.op.mask.*": "the source is seen whole",
    "*.cross.op.positions": "the source has positions of its own",
}
"""Fields that can't show in float32 outputs of unpadded texts, in any family."""

LOOKALIKES = {
    "gelu": "gelu_tanh",
    "gelu_tanh": "gelu",
    "quick_gelu": "gelu",
    "silu": "gelu",
    "relu": "gelu",
    "relu_squared": "relu",
    "tanh": "gelu",
}
"""For each activation, the one it is most easily mistaken for."""

SIZES = frozenset(
    "d_model n_heads n_kv_heads d_head d_ff d_inner d_state dt_rank n_experts n_groups n_chosen_groups q kv nope rope "
    "value width kernel n_mels patch channels n_prefix vocab_size n_types n_labels n n_buckets offset "
    "bos pad mask decoder_start context".split()
)
"""Whole numbers that are sizes of the weights, or that no pass asks for; groups and offsets where they say nothing."""

REMOVABLE = (
    NormConfig,
    QKNormConfig,
    RotaryConfig,
    AlibiConfig,
    RelativeBiasConfig,
    MaskDropout,
    TransformConfig,
    ClampedGate,
)
"""Parts whose absence is another model with the same weights, or fewer."""


@dataclass(frozen=True)
class Flip:
    """One wrong config: where it is wrong (`*` for all blocks, `0+2` for some), how, and the config itself."""

    address: str
    change: str
    config: Any
    option: str
    """The same for the same change in any blocks of any config."""
    why_not: str | None
    """Why it can't show, where that is so in any family."""


def flips(config: Any) -> Iterator[Flip]:
    """Every wrong variant of a config that its own records allow."""
    for group in _groups(_variants(config, ())):
        wrong, paths = config, [path for path, _, _ in group]
        field, now, then = ".".join(map(str, _without_block(paths[0]))), repr(group[0][1]), repr(group[0][2])
        try:
            for path, _, value in group:
                wrong = _with(wrong, path, value)
        except records.ClearheadError:
            continue  # no such model: the records refuse it
        address, reasons = _address(paths, config), {_no_difference(config, path, wrong) for path in paths}
        why_not = matching(address, EXEMPT) or (reasons.pop() if len(reasons) == 1 else None)
        yield Flip(address, f"{_short(now)} -> {_short(then)}", wrong, f"{field}: {now} -> {then}", why_not)


def matching(address: str, reasons: Mapping[str, str]) -> str | None:
    """The reason whose pattern an address matches, or None."""
    return next((why for pattern, why in reasons.items() if fnmatchcase(address, pattern)), None)


def _no_difference(config: Any, path: Path, wrong: Any) -> str | None:
    """Why two configs that differ at `path` are the same function, where that is so."""
    owner = _at(config, path[:-1])
    match owner, path[-1]:
        case records.BiasConfig(), "k":
            op = _at(config, path[:-2])
            plain = not isinstance(op.positions, RotaryConfig) and op.qk_norm is None and op.scores.softcap is None
            if plain and not op.scores.sinks:
                return "one vector added to every key adds one number to all scores of a query: softmax takes it out"
        case RotaryConfig(), "on_values" if isinstance(_at(config, path[:-2]), records.LatentAttentionConfig):
            return "latent values have no rotated part"
        case records.RouterConfig(score="topk_softmax"), "renormalise":
            return "a softmax over the chosen sums to one already"
        case records.RouterConfig(renormalise=True), "score":
            if {owner.score, _at(wrong, path)} == {"softmax", "topk_softmax"}:
                return "renormalised, a softmax over all is one over the chosen"
    return None


def wrong_model(right: nn.Module, config: Any) -> nn.Module | None:
    """The model of a wrong config with the right one's weights; None where it needs weights of another shape."""
    try:
        with torch.device("meta"):
            model = build(config)
    except (records.ClearheadError, RuntimeError, ValueError):
        return None
    weights = dict(right.named_parameters())
    norms = {path: module for path, module in model.named_modules() if isinstance(module, Norm)}
    owners, parameters = _owners(model), dict(model.named_parameters())
    for name, parameter in parameters.items():
        path, _, leaf = name.rpartition(".")
        if name in weights and weights[name].shape == parameter.shape:
            value = weights[name].detach()
        elif path in norms and f"{path}.weight" not in weights:
            # A norm where there was none starts as one that only normalises.
            value = torch.full(parameter.shape, 1.0 - norms[path].config.offset if leaf == "weight" else 0.0)
        else:
            return None
        for module, own_name in owners[id(parameter)]:
            setattr(module, own_name, nn.Parameter(value, requires_grad=False))
    return model.eval()


def _owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every module that holds a parameter, by the parameter: shared ones have several."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((module, leaf))
    return owners


# ---- what is changed to what


def _variants(value: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """(path, right, wrong) for everything below a record."""
    if isinstance(value, tuple) and any(is_dataclass(x) or isinstance(x, tuple) for x in value):
        for i, entry in enumerate(value):
            yield from _variants(entry, (*path, i))
        return
    if not is_dataclass(value):
        return
    hints = get_type_hints(type(value), vars(records))
    for field in fields(value):
        here, now = (*path, field.name), getattr(value, field.name)
        for wrong in _wrong(value, field.name, now, hints[field.name]):
            yield here, now, wrong
        yield from _variants(now, here)


def _wrong(owner: Any, name: str, now: Any, hint: Any) -> Iterator[Any]:
    """Other values of a field, near to the right one where there is a choice."""
    kinds = get_args(hint)
    match now:
        case bool():
            yield from _toggled(owner, name, now)
        case float():
            yield _other_number(name, now)
            if name == "softcap":
                yield None
        case int():
            yield from _other_counts(owner, name, now)
        case str():
            choices = next((get_args(k) for k in (hint, *kinds) if get_args(k) and isinstance(get_args(k)[0], str)), ())
            if name == "activation":
                yield LOOKALIKES[now]
                if type(None) in kinds:
                    yield None
            else:
                yield from (choice for choice in choices or kinds if choice != now)
        case None:
            yield from _instead_of_nothing(owner, name)
        case tuple():
            yield from _other_order(owner, name, now)
        case SinusoidalPositions() | records.LearnedPositions():
            yield None
        case _ if isinstance(now, REMOVABLE):
            yield from _without(now, kinds)
        case _ if isinstance(now, get_args(records.Scaling)):
            yield None
        case records.FeedForwardConfig() | records.SublayerConfig() if type(None) in kinds:
            yield None


def _toggled(owner: Any, name: str, now: bool) -> Iterator[bool]:
    match owner, name:
        case records.HeadsConfig(labels=()), "average_labels":
            return
        case records.TransformerConfig(encoder=encoder, decoder=decoder), "share_tokens":
            if all(
                stack is not None and isinstance(stack.embed.front, records.TokensConfig)
                for stack in (encoder, decoder)
            ):
                yield not now
        case _:
            yield not now


def _other_number(name: str, now: float) -> float:
    if name == "eps":
        return min(max(1e3 * now, 3e-2), 0.1)
    if name == "fraction":
        return 0.5 if now == 1 else 1.0
    if name == "offset":
        return 1.0 - now
    if name in ("base", "factor", "beta_fast", "high"):
        return 2.0 * now
    if name == "limit":
        return 0.5 * now
    return 1.3 * now if now else 0.5


def _other_counts(owner: Any, name: str, now: int) -> Iterator[int | None]:
    match owner, name:
        case records.MaskConfig(), "window":
            yield now + 1
            yield None
        case records.ExpertsConfig(), "n_chosen":
            yield now - 1 if now > 1 else now + 1
        case records.RouterConfig(n_chosen_groups=chosen), "n_groups":
            if now > chosen:
                yield chosen  # then every group may be chosen
            elif now == 1:
                yield 2
        case records.RouterConfig(n_groups=groups), "n_chosen_groups" if groups > 1:
            yield now + 1 if now < groups else now - 1
        case records.LearnedPositions(pad_id=None, grid=None), "offset":
            yield now - 1 if now else 1
        case records.LearnedPositions(), "pad_id":
            yield None
        case _, "trained_length" | "max_distance":
            yield 2 * now
        case _, "mask_id" | "end_id":
            yield now - 1
        case _:
            assert name in SIZES, f"{type(owner).__name__}.{name} is new here: what would be a wrong value?"


def _instead_of_nothing(owner: Any, name: str) -> Iterator[Any]:
    """A part or a number where the right model has none."""
    match owner, name:
        case ((records.ScoresConfig() | records.TokenHeadConfig()), "softcap"):
            yield 1.0
        case records.ScoresConfig(), "scale":
            yield 0.4
        case records.MaskConfig(), "window":
            yield 5
        case records.RotaryConfig(), "scaling":
            yield LinearScaling(factor=2.0)
        case AttentionConfig(), "positions":
            yield RotaryConfig()
        case AttentionConfig(), "qk_norm":
            yield QKNormConfig(norm=NormConfig())
        case records.EmbedConfig(), "positions":
            yield SinusoidalPositions(n=4096)
        case ((records.YarnScaling() | records.LongRopeScaling()), "attention_factor"):
            yield 1.5
        case (records.SublayerConfig(), "pre" | "out" | "after") | (
            (records.StackConfig() | records.EmbedConfig() | TransformConfig()),
            "norm",
        ):
            yield NormConfig(kind="layer", bias=True)
        case records.MambaConfig(), "inner_norm":
            yield NormConfig()
        case records.StackConfig(), "share" if len(owner.blocks) > 1:
            yield (0,) * len(owner.blocks)


def _other_order(owner: Any, name: str, now: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    match owner, name:
        case records.StackConfig(), "share":
            others = [s for s in sorted(set(now)) if s != now[-1]]
            yield (*now[:-1], others[0]) if others else (*now[:-1], len(now) - 1)
        case records.Mamba2Config(), "dt_limit":
            low, high = now
            yield low + 0.5, max(high, low + 0.5)
            yield low, low + 0.3 if math.isinf(high) else low + 0.5 * (high - low)
        case records.LongRopeScaling(), "short" | "long":
            yield tuple(1.5 * x for x in now)
        case records.LearnedPositions(), "grid":
            yield now[::-1] if now[0] != now[1] else (now[0] * now[1], 1)
        case _ if all(isinstance(x, int | float) for x in now) and now[::-1] != now:
            yield now[::-1]


def _without(now: Any, kinds: tuple[Any, ...]) -> Iterator[Any]:
    """A removable part's absence, where the field allows that, or its nearest stand-in."""
    if type(None) in kinds:
        yield None
    elif isinstance(now, ClampedGate):
        yield "silu"


# ---- where


def _groups(variants: Iterator[tuple[Path, Any, Any]]) -> list[list[tuple[Path, Any, Any]]]:
    """Variants of the same field and the same change in several blocks of a stack, together."""
    groups: dict[tuple[Any, ...], list[tuple[Path, Any, Any]]] = {}
    counts: dict[Path, itertools.count[int]] = {}
    for path, now, wrong in variants:
        nth = next(counts.setdefault(path, itertools.count()))
        groups.setdefault((_without_block(path), repr(now), nth), []).append((path, now, wrong))
    return list(groups.values())


def _without_block(path: Path) -> Path:
    return tuple("*" if i and path[i - 1] == "blocks" else step for i, step in enumerate(path))


def _address(paths: list[Path], config: Any) -> str:
    """One address for all: `*` for every block, `0+2` for some."""
    first = paths[0]
    if "blocks" not in first:
        return ".".join(map(str, first))
    at = first.index("blocks")
    n_blocks = len(_at(config, first[: at + 1]))
    some = "*" if len(paths) == n_blocks else "+".join(str(path[at + 1]) for path in paths)
    return ".".join(map(str, (*first[: at + 1], some, *first[at + 2 :])))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return value


def _with(value: Any, path: Path, new: Any) -> Any:
    """`value` with `new` at `path`."""
    if not path:
        return new
    step, *rest = path
    if isinstance(step, int):
        return (*value[:step], _with(value[step], tuple(rest), new), *value[step + 1 :])
    return replace(value, **{step: _with(getattr(value, step), tuple(rest), new)})


def _short(text: str) -> str:
    return text if len(text) < 40 else text[:37] + "..."
