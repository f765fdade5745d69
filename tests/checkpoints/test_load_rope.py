"""`clearhead.load(..., rope=...)` against `transformers` loading the same folder with that scaling in its config."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import clearhead
from clearhead.config import YarnScaling
from clearhead.errors import ClearheadError
from tests import tiny
from tests.oracles import TOLERANCE, close, error

TRAINED, LENGTH = 12, 40
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED},
    "yarn_without_length": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": TRAINED,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [1.0 + i for i in range(8)],
    },
}
TOKENS = torch.randint(3, 99, (2, LENGTH), generator=torch.Generator().manual_seed(2))


def saved(folder: Path, family: str = "llama", **changes) -> Path:
    tiny.families()[family][0].make(max_position_embeddings=TRAINED, **changes).save_pretrained(folder)
    return folder


def theirs_with(folder: Path, scaling: dict, copy: Path, nested: str | None = None) -> nn.Module:
    """The folder with another scaling in its config, loaded by `transformers`."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    parameters = config["rope_parameters"] if nested is None else config["rope_parameters"][nested]
    base = parameters["rope_theta"]
    parameters.clear()
    parameters.update({"rope_theta": base, **scaling})
    (copy / "config.json").write_text(json.dumps(config))
    return AutoModelForCausalLM.from_pretrained(copy).eval()


def compare(ours: nn.Module, theirs: nn.Module) -> None:
    with torch.no_grad():
        for n in (TRAINED - 2, LENGTH):  # within the trained length, and past it
            assert error(ours(TOKENS[:, :n]), theirs(TOKENS[:, :n]).logits) <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", SCALINGS)
def test_equal_to_a_changed_config(name, tmp_path):
    folder, scaling = saved(tmp_path / "m"), SCALINGS[name]
    ours, theirs = clearhead.load(folder, rope=scaling), theirs_with(folder, scaling, tmp_path / "changed")
    compare(ours, theirs)
    with torch.no_grad():
        plain = clearhead.load(folder)(TOKENS)
        assert error(plain, ours(TOKENS)) > 1e-3
        state = ours.new_state()
        steps = torch.cat([ours(TOKENS[:, i : i + 1], state=state) for i in range(LENGTH)], dim=1)
        assert close(steps[:, -1], ours(TOKENS)[:, -1])


@pytest.mark.parametrize("name", SCALINGS)
def test_saving_writes_the_new_scaling(name, tmp_path):
    from transformers import AutoModelForCausalLM

    ours = clearhead.load(saved(tmp_path / "m"), rope=SCALINGS[name])
    clearhead.save(ours, tmp_path / "saved")
    compare(ours, AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval())
    again = clearhead.load(tmp_path / "saved")
    assert again.config == ours.config
    with torch.no_grad():
        assert torch.equal(again(TOKENS), ours(TOKENS))


def test_one_scaling_replaces_another(tmp_path):
    before = {"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0}
    folder, scaling = saved(tmp_path / "m", rope_parameters=before), SCALINGS["yarn"]
    compare(clearhead.load(folder, rope=scaling), theirs_with(folder, scaling, tmp_path / "changed"))


def test_a_record_says_the_same_as_a_mapping(tmp_path):
    folder = saved(tmp_path / "m")
    record = YarnScaling(factor=4.0, trained_length=TRAINED)
    assert clearhead.load(folder, rope=record).config == clearhead.load(folder, rope=SCALINGS["yarn"]).config


def test_only_layers_that_see_the_whole_text(tmp_path):
    """Gemma 3's windows have a base of their own."""
    folder, scaling = saved(tmp_path / "m", "gemma3_text"), SCALINGS["linear"]
    ours = clearhead.load(folder, rope=scaling)
    compare(ours, theirs_with(folder, scaling, tmp_path / "changed", nested="full_attention"))
    clearhead.save(ours, tmp_path / "saved")
    assert clearhead.load(tmp_path / "saved").config == ours.config


def test_latent_attention_scales_its_scores_too(tmp_path):
    scaling = SCALINGS["yarn"] | {"mscale": 1.0, "mscale_all_dim": 0.7}
    folder = saved(tmp_path / "m", "deepseek_v3")
    compare(clearhead.load(folder, rope=scaling), theirs_with(folder, scaling, tmp_path / "changed"))


def test_what_is_refused(tmp_path):
    folder = saved(tmp_path / "m")
    for rope, words in (
        ({"rope_type": "yarm", "factor": 2.0}, "yarm"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": "much"}, "not a scaling"),
        ({"rope_type": "linear", "factor": 2.0, "facter": 3.0}, "facter"),
        ({"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0]}, "one divisor"),
    ):
        with pytest.raises(ClearheadError, match=words):
            clearhead.load(folder, rope=rope)
    tiny.families()["gpt2"][0].make().save_pretrained(tmp_path / "learned")
    with pytest.raises(ClearheadError, match="LearnedPositions"):
        clearhead.load(tmp_path / "learned", rope=SCALINGS["linear"])
