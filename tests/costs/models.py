"""Tiny models of every family, from their configs, with weights of our own; and what they are asked."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import TransformerConfig, TwoTowersConfig
from clearhead.families import family_of
from clearhead.model.build import build
from tests import tiny
from tests.families.pairs import Inputs, inputs_for

Config = TransformerConfig | TwoTowersConfig
CONFIGS = resources.files("clearhead") / "assets" / "configs"
ORDINARY = [(records[0].family, next(iter(records[0].configs))) for records in tiny.families().values()]
"""Each family's ordinary model; the others are tested when there is time."""
EVERY = [case if case in ORDINARY else pytest.param(case, marks=pytest.mark.slow) for case in tiny.cases()]
every_family = pytest.mark.parametrize("case", EVERY, ids=lambda case: "-".join(case))


@cache
def config_of(case: tuple[str, str]) -> Config:
    """Our config of a tiny model of the `transformers` package."""
    theirs = tiny.record_of(*case).make(**tiny.record_of(*case).configs[case[1]])
    raw: dict[str, Any] = json.loads(theirs.config.to_json_string())
    raw["architectures"] = [type(theirs).__name__]
    return read(raw)


def published(name: str, **changes: Any) -> Config:
    """A config that the package ships, with some keys changed."""
    raw = json.loads((CONFIGS / f"{name}.json").read_text())
    return read({**raw, **changes})


def read(raw: dict[str, Any]) -> Config:
    config: Config = family_of(raw, "config.json").read(raw, "config.json")
    return config


def model_of(case: tuple[str, str]) -> Any:
    """A model of random weights, ready to be asked."""
    torch.manual_seed(0)
    return build(config_of(case)).eval()


def asked(case: tuple[str, str]) -> Inputs:
    """What it is asked: 3 texts of 20 tokens, or as many as it was made for, and all else that it reads."""
    inputs, context = inputs_for(tiny.record_of(*case).kind, config_of(case)), getattr(config_of(case), "context", None)
    return inputs if inputs.tokens is None else inputs.slots(slice(context))


def outputs(model: Any, inputs: Inputs, **how: Any) -> list[Tensor]:
    """Everything that a pass gives."""
    given = inputs.given()
    found = model(given.pop("tokens"), **given, **how) if "tokens" in given else model(**given, **how)
    return [found] if isinstance(found, Tensor) else [value for value in found if value is not None]


def read_on(model: Any, inputs: Inputs, state: Any, start: int, stop: int, **how: Any) -> None:
    """Read some of the tokens into a state, and a source with the first."""
    given = inputs.slots(slice(start, stop)).given()
    given = {k: v for k, v in given.items() if start == 0 or k in ("tokens", "token_types")}
    model(given.pop("tokens"), **given, state=state, **how)


def sizes(inputs: Inputs) -> dict[str, Any]:
    """The same as sizes, as the counts take them."""
    tokens, source = inputs.tokens, inputs.source
    return {
        "batch": len(next(iter(inputs.given().values()))),
        "tokens": None if tokens is None else tokens.shape[1],
        **({} if source is None else {"source": source.shape[1]}),
    }
