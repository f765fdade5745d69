"""What is particular to files of models with latent attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.errors import ClearheadError
from tests import tiny
from tests.oracles import TOLERANCE, close, error

TOKENS = torch.randint(3, 99, (2, 20), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.make("deepseek_v3", "yarn").save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def rewritten(folder: Path, **changes) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config = {k: v for k, v in {**config, **changes}.items() if v is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_spelling_of_the_hub(folder: Path) -> None:
    expected = clearhead.load(folder)
    scaling = json.loads((folder / "config.json").read_text())["rope_parameters"]
    theta, kind = scaling.pop("rope_theta"), scaling.pop("rope_type")
    old = {
        "rope_parameters": ...,
        "rope_scaling": {"type": kind, **scaling},
        "rope_theta": theta,
        "num_mtp_layers": ...,
        "num_nextn_predict_layers": 1,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
        "aux_loss_alpha": 0.001,
        "seq_aux": True,
        "ep_size": 1,
    }
    assert clearhead.load(rewritten(folder, **old)).config == expected.config
    with pytest.raises(ClearheadError, match="topk_method is 'greedy'"):
        clearhead.load(rewritten(folder, topk_method="greedy"))


def test_the_layer_that_guesses_the_token_after_the_next_is_left_out(folder: Path) -> None:
    """The released file's layer 61 is for training; a surplus layer of another number is not understood."""
    tensors = load_file(folder / "model.safetensors")
    extra = {name.replace("layers.2.", "layers.61."): t.clone() for name, t in tensors.items() if "layers.2." in name}
    extra |= {
        f"model.layers.61.{name}.weight": torch.zeros(4)
        for name in ("embed_tokens", "enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head")
    }
    with torch.no_grad():
        expected = clearhead.load(folder)(TOKENS)
        save_file(tensors | extra, folder / "model.safetensors")
        assert torch.equal(clearhead.load(folder)(TOKENS), expected)
    moved = {name.replace("layers.61.", "layers.7."): t for name, t in extra.items()}
    save_file(tensors | moved, folder / "model.safetensors")
    with pytest.raises(ClearheadError, match=r"layers\.7\..* has no place in this model"):
        clearhead.load(folder)


def test_the_router_stays_as_precise_as_it_is_stored(folder: Path) -> None:
    """Its scores decide who is asked: rounded to bfloat16, other experts would be."""
    from transformers import AutoModelForCausalLM

    half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    exact, ours = clearhead.load(folder), clearhead.load(folder, dtype="bfloat16")
    for name in ("weight", "correction"):
        assert torch.equal(getattr(ours.layers[1].ffn.router, name), getattr(exact.layers[1].ffn.router, name))
    assert ours.layers[1].ffn.up_proj.dtype == torch.bfloat16
    half.save_pretrained(folder / "half")
    clearhead.save(clearhead.load(folder / "half"), folder / "again")
    before, after = load_file(folder / "half" / "model.safetensors"), load_file(folder / "again" / "model.safetensors")
    assert {name: t.dtype for name, t in before.items()} == {name: t.dtype for name, t in after.items()}
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_state_holds_the_latent_and_one_rotated_key(folder: Path) -> None:
    model = clearhead.load(folder)
    state = model.new_state()
    with torch.no_grad():
        model(TOKENS, state=state)
    assert state.nbytes == 3 * 2 * 20 * (32 + 8) * 4


def test_patterns_equal(folder: Path) -> None:
    theirs = type(tiny.make("deepseek_v3", "yarn")).from_pretrained(folder, attn_implementation="eager").eval()
    ours = clearhead.load(folder)
    with torch.no_grad():
        expected = theirs(TOKENS, output_attentions=True).attentions
        seen = clearhead.look(ours, TOKENS, "layers.*.mixer.pattern")
    for layer, pattern in enumerate(expected):
        assert error(seen[f"layers.{layer}.mixer.pattern"], pattern) <= TOLERANCE[torch.float32]


def test_generation_uses_the_state(folder: Path) -> None:
    model = clearhead.load(folder)
    result = clearhead.generate(model, TOKENS[:1], max_new_tokens=8, temperature=0, stop_tokens=())[0]
    tokens = TOKENS[:1]
    with torch.no_grad():
        for token in result.tokens:
            logits = model(tokens)[0, -1]
            assert close(logits[token], logits.max())
            tokens = torch.cat([tokens, torch.tensor([[token]])], dim=1)
