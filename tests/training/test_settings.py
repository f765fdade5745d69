"""Configs by path: every field is shown, each can be set, and a slip is met with the nearest names."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from clearhead.config import LinearScaling, RotaryConfig
from clearhead.errors import UsageError
from clearhead.training.config import ModelConfig, TrainConfig
from clearhead.training.models import decoder
from clearhead.training.recipes import RECIPES, recipe
from clearhead.training.settings import change, differences, from_plain, leaves, plain, show
from tests.training.samples import VOCAB, tiny


def names_in(value: Any) -> set[str]:
    """Names of all fields of a record and its parts."""
    if isinstance(value, tuple):
        return set().union(*map(names_in, value)) if value else set()
    if not is_dataclass(value):
        return set()
    return {f.name for f in fields(value)}.union(*(names_in(getattr(value, f.name)) for f in fields(value)))


def whole() -> TrainConfig:
    config = tiny()
    return tiny(model=ModelConfig(family=config.model.family, config=decoder(config.model, VOCAB, 12)))


@pytest.mark.parametrize("config", [tiny(), whole()], ids=["sizes", "whole"])
def test_show_prints_every_field_as_set_takes_it(config: TrainConfig) -> None:
    lines = show(config).splitlines()
    words = {word for line in lines for word in line.partition("=")[0].split(".")}
    assert names_in(config) <= words
    for line in lines:
        value = line.partition("=")[2]
        if value not in ("AlibiConfig",):
            assert change(config, (line,)) == config, line


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_can_be_shown_and_set_back(name: str) -> None:
    config = recipe(name)
    assert change(config, tuple(show(config).splitlines())) == config
    json.dumps(plain(config))


def test_values_are_set() -> None:
    config = change(tiny(), ("optim.lr=3", "batch.micro_rows=null", "optim.betas=[0.8, 0.9]", "run.dtype=bfloat16"))
    assert config.optim.lr == 3.0 and isinstance(config.optim.lr, float)
    assert config.batch.micro_rows is None
    assert config.optim.betas == (0.8, 0.9)
    assert config.run.dtype == "bfloat16"
    assert change(config, ("data.corpus.path=12",)).data.corpus.path == "12"


def test_a_star_sets_all_layers_and_a_number_one() -> None:
    path = "model.config.decoder.blocks.{}.ffn.op.d_ff"
    config = change(whole(), (path.format("*") + "=40", path.format(1) + "=48"))
    assert isinstance(config.model, ModelConfig)
    assert [block.ffn.op.d_ff for block in config.model.config.stack.blocks] == [40, 48]
    assert {name for name, _ in leaves(config)} >= {path.format(0), path.format(1)}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("lr=1", "optim.lr"),
        ("optim.lrr=1", "optim.lr"),
        ("batch.row=1", "batch.rows"),
        ("optim.lr.x=1", "optim.lr"),
        ("optim=1", "set one of them, such as optim.name"),
        ("optim.lr", "give PATH=VALUE"),
        ("optim.lr=fast", "optim.lr can't be 'fast'; a number is expected"),
        ("run.steps=1.5", "a whole number is expected"),
        ("run.steps=true", "a whole number is expected"),
        ("optim.decay_embeddings=1", "true or false is expected"),
        ("optim.name=sgd", "adamw or muon or adafactor"),
        ("optim.betas=[1]", "a list such as"),
        ("run.steps=0", "run.steps is 0"),
    ],
)
def test_a_slip_is_met_with_what_would_do(setting: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        change(tiny(), (setting,))
    assert said in str(error.value)


def test_differences_are_told_by_path() -> None:
    mine, other = plain(tiny()), plain(change(tiny(), ("optim.lr=1", "model.n_layers=3")))
    assert differences(mine, other) == ["model.n_layers is 2, and was 3", "optim.lr is 0.01, and was 1.0"]
    assert differences(mine, json.loads(json.dumps(mine))) == []
    assert plain(RotaryConfig(scaling=LinearScaling(factor=2.0)))["scaling"] == {
        "record": "LinearScaling",
        "factor": 2.0,
    }


@pytest.mark.parametrize("name", ["gpt_stdlib", "transformer_2017", "vit_digits"])
def test_a_config_comes_back_from_json(name: str) -> None:
    config = recipe(name)
    assert from_plain(type(config), json.loads(json.dumps(plain(config)))) == config


def test_what_another_version_wrote_is_refused() -> None:
    said = plain(recipe("gpt_stdlib"))
    with pytest.raises(ValueError, match="RunConfig has no field 'warp'"):
        from_plain(TrainConfig, {**said, "run": {**said["run"], "warp": 9}})
    with pytest.raises(ValueError, match="there is no record 'Mystery'"):
        from_plain(TrainConfig, {**said, "model": {**said["model"], "record": "Mystery"}})
