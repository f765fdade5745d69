"""Random tiny models of the `transformers` package, lively enough that a wrong option shows.

Weights are drawn so that activations stay of order one, and norms around 1, so that no norm, bias or position is near
to doing nothing. One module a family, with `TINY`: a record, or a tuple of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch import nn

Kind = Literal["decoder", "encoder", "seq2seq", "vision", "audio", "towers"]


def lively(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter random values that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = (
                1.0
                if parameter.ndim == 1 and "norm" in name.lower().replace("ln_", "norm") and "bias" not in name
                else 0.0
            )
            # Of convolutions, each output sums over all channels of a window.
            by_window = parameter.ndim == 4 or (parameter.ndim == 3 and "conv" in name)
            n_summed = parameter[0].numel() if by_window else parameter.shape[-1] if parameter.ndim else 1
            spread = 0.3 if parameter.ndim < 2 else n_summed**-0.5
            parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """The tiny models of one family, and what the harness has to know of them."""

    family: str
    """The model_type in our registry."""
    make: Callable[..., nn.Module]
    """make(**changes of the config): a lively random model of `transformers`, in eval()."""
    configs: Mapping[str, Mapping[str, Any]]
    """Changes by name: the first is the ordinary model, the others have the odd features on."""
    kind: Kind = "decoder"
    exempt: Mapping[str, str] = field(default_factory=dict)
    """By pattern of a config address, such as `decoder.blocks.*.mixer.op.bias.q`: why a flip can't show here."""
    normed_last: bool = True
    """Whether their last hidden state is after the final norm."""
    embed_first: bool = True
    """Whether their first hidden state is the embedding, and not what the first layer made of it."""


@cache
def families() -> dict[str, tuple[Tiny, ...]]:
    """The records of every module here, by family."""
    found: dict[str, tuple[Tiny, ...]] = {}
    for module in pkgutil.iter_modules(__path__):
        tiny = importlib.import_module(f"{__name__}.{module.name}").TINY
        for record in tiny if isinstance(tiny, tuple) else (tiny,):
            found[record.family] = (*found.get(record.family, ()), record)
    return found


def cases(*kinds: Kind) -> list[tuple[str, str]]:
    """Every (family, config) of these kinds, or of all."""
    records = [record for records in families().values() for record in records]
    return [(r.family, name) for r in records if not kinds or r.kind in kinds for name in r.configs]


def record_of(family: str, name: str) -> Tiny:
    """The record that a case belongs to."""
    (record,) = [record for record in families()[family] if name in record.configs]
    return record


def make(family: str, name: str | None = None) -> nn.Module:
    """The tiny model of a case; without a name, the family's ordinary one."""
    name = name if name is not None else next(iter(families()[family][0].configs))
    record = record_of(family, name)
    return record.make(**record.configs[name])
