"""The page of costs: what it shows is what `clearhead.cost` says."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio import cost as page  # noqa: F401 (it registers operations)
from clearhead.studio.context import Studio
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from clearhead.studio.presets import counted, groupings, published, regrouped, writers
from tests.studio.snippets import assert_prints

torch.set_num_threads(1)


@cache
def studio() -> Studio:
    return Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: Any) -> Answer:
    answer = ask(studio(), name, args)
    assert isinstance(answer, Answer)
    return answer


def test_the_check_value() -> None:
    data = asked("cost.model").data
    assert data["state"]["per_token"] == 327_680 and data["state"]["total"] == 2.5 * 2**30
    assert data["kv_heads"] == 8 and data["groupings"] == [64, 32, 16, 8, 4, 2, 1]
    many = asked("cost.model", kv_heads=64).data
    assert many["state"]["per_token"] == 2560 * 2**10


def test_every_published_config_and_model_of_this_machine_has_a_cost() -> None:
    choices = asked("cost.choices").data
    for name in [*choices["published"], *choices["machine"]]:
        answer = asked("cost.model", preset=name, context=0)
        json.dumps(answer.data)
        assert answer.data["parameters"]["total"] == answer.printed[answer.data["printed"]["parameters"]] > 0


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"kv_heads": 1, "batch": 3, "dtype": "float16"},
        {"kv_heads": 8},
        {"preset": "bert-base", "context": 512},
        {"preset": "vit-b-16", "context": 0},
        {"preset": "clear-gpt", "context": 0, "dtype": "float32", "optimiser": "muon"},
        {"preset": "mamba-130m", "context": 50_000, "device": "l4", "price": 0.5},
        {"device": "h100-sxm", "n_devices": 4, "price": 12.0, "kept": 1000, "optimiser": "adafactor"},
        {"preset": "whisper-tiny", "context": 0},
        {"preset": "clip-vit-b-32", "context": 0},
    ],
)
def test_code_of_a_cost_prints_its_numbers(args: dict[str, Any]) -> None:
    answer = asked("cost.model", **args)
    assert_prints(answer, least=5)
    assert set(answer.data["printed"].values()) == set(range(len(answer.printed)))


def test_sums_and_shares_are_the_librarys() -> None:
    data = asked("cost.model", shard=8, tensor=2).data
    found = clearhead.cost("llama3-70b", context=8192, shard=8, tensor=2)
    assert found.per_rank is not None
    assert (data["all_bytes"], data["all_bytes_per_rank"]) == (found.training.total, found.per_rank.total)
    assert data["processes"] == 16
    assert sum(data["shares"].values()) == pytest.approx(1)
    assert data["quadratic"] == {name: flops.quadratic / flops.total for name, flops in found.flops.items()}
    assert asked("cost.model").data["all_bytes_per_rank"] is None


def test_measuring_this_machine_is_long_work_which_is_not_begun_before_it_is_waited_for() -> None:
    for name, args in (("cost.model", {}), ("cost.compare", {"presets": ["gpt2"]})):
        assert not isinstance(ask(studio(), name, {**args, "device": "here"}), Answer)


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    from clearhead.cli import main

    data = asked("cost.model", batch=2, device="h100-sxm", price=12.0, context=4096).data
    words = shlex.split(data["command"])
    assert words[:2] == ["clearhead", "cost"]
    main([*words[1:], "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["state"]["total"] == data["state"]["total"]
    assert told["device"]["reading"]["seconds"] == data["device"]["reading"]["seconds"]


def test_other_groupings_have_no_command() -> None:
    assert asked("cost.model", kv_heads=16).data["command"] is None
    assert asked("cost.model", kv_heads=8).data["command"] is not None


def test_curves_are_the_librarys() -> None:
    data = asked("cost.model").data
    state, weights = data["curves"]["memory"]
    found = clearhead.cost("llama3-70b", context=8192)
    assert 8192 in state["x"], "the length asked about is a point of its own"
    assert state["y"] == [found.state_at(round(n)) for n in state["x"]]
    assert set(weights["y"]) == {found.weight_bytes}


@pytest.mark.parametrize(
    "args",
    [
        {"preset": "no-such-model"},
        {"preset": "/etc/passwd"},
        {"preset": "../clear-gpt"},
        {"preset": "gpt2", "context": 2**20},
        {"kv_heads": 3},
        {"device": "no-such-device"},
        {"dtype": "float16", "device": "tpu-v4"},
        {"batch": 0},
        {"preset": "vit-b-16", "context": 100},
    ],
)
def test_what_is_not_there_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises((UsageError, ClearheadError)):
        asked("cost.model", **args)


def test_regrouping_changes_the_key_value_heads_and_nothing_else() -> None:
    config = counted("llama3-8b").config
    assert regrouped(config, 8) == config
    fewer = counted("llama3-8b", 4)
    assert fewer.state(1, 1).per_token * 2 == counted("llama3-8b").state(1, 1).per_token
    assert groupings(counted("mamba-130m").config) == []


def test_several_are_asked_alike() -> None:
    answer = asked("cost.compare", presets=["gpt2", "llama3-8b", "bert-base", "gpt2"], context=4096)
    rows = answer.data["rows"]
    assert [row["name"] for row in rows] == ["gpt2", "llama3-8b", "bert-base"]
    assert [row["context"] for row in rows] == [1024, 4096, 512], "one made for less reads what it was made for"
    assert_prints(answer, least=15)


def test_a_comparison_on_a_device() -> None:
    answer = asked("cost.compare", presets=["llama3-8b", "mamba-2.8b"], context=8192, device="h200", price=4.0)
    assert all(row["price_written"] > 0 for row in answer.data["rows"])
    assert answer.data["command"].endswith("--compare mamba-2.8b")
    assert_prints(answer, least=10)


def test_names() -> None:
    assert "llama3-70b" in writers() and "bert-base" not in writers()
    assert set(writers()) < set(published())
