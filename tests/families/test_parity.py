"""Every family against the `transformers` package, with the same random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from tests import tiny
from tests.oracles import TOLERANCE, close, error

# Cached passes sum in another order than whole ones; measured: at most 4e-6.
F32 = TOLERANCE[torch.float32]


@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_logits_of_a_whole_pass(pair):
    with torch.no_grad():
        theirs, ours = pair.theirs(pair.tokens).logits, pair.ours(pair.tokens)
    assert theirs.std() > 0.3  # lively: a wrong option would show
    assert error(ours, theirs) <= F32


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_padded_rows_give_what_each_gives_alone(pair, side):
    lengths = [20, 13, 1]
    present = torch.zeros(3, 20, dtype=torch.bool)
    for row, n in enumerate(lengths):
        present[row, 20 - n :] = True
    if side == "right":
        present = present.flip(1)
    with torch.no_grad():
        batch = pair.ours(pair.tokens, present=present)
        for row in range(3):
            alone = pair.theirs(pair.tokens[row : row + 1, present[row]]).logits
            assert error(batch[row : row + 1, present[row]], alone) <= F32
    assert batch.isfinite().all()


@pytest.mark.parametrize("pair", tiny.CAUSAL_CASES, indirect=True, ids="-".join)
def test_cached_equals_the_whole_pass_for_every_split(pair):
    with torch.no_grad():
        whole = [pair.ours(pair.tokens[:, :n]) for n in range(1, 21)]
        for cut in range(1, 20):
            state = pair.ours.new_state()
            first = pair.ours(pair.tokens[:, :cut], state=state)
            second = pair.ours(pair.tokens[:, cut:], state=state)
            assert error(first, whole[cut - 1]) <= F32
            assert error(second, whole[-1][:, cut:]) <= F32
        for chunk in (1, 2, 3, 7):
            state = pair.ours.new_state(capacity=4)
            for start in range(0, 20, chunk):
                out = pair.ours(pair.tokens[:, start : start + chunk], state=state)
                assert error(out, whole[min(start + chunk, 20) - 1][:, start:]) <= F32


@pytest.mark.parametrize("pair", tiny.CAUSAL_CASES, indirect=True, ids="-".join)
def test_cached_equals_the_whole_pass_with_padding_anywhere(pair):
    present = torch.tensor(
        [[1] * 20, [0] * 6 + [1] * 5 + [0] * 2 + [1] * 7, [1] * 4 + [0] * 5 + [1] * 9 + [0] * 2], dtype=torch.bool
    )
    with torch.no_grad():
        for cut in (1, 5, 8, 12, 19):
            state = pair.ours.new_state()
            pair.ours(pair.tokens[:, :cut], present=present[:, :cut], state=state)
            for at in range(cut, 20):
                step = slice(at, at + 1)
                out = pair.ours(pair.tokens[:, step], present=present[:, step], state=state)
                for row in range(3):
                    if present[row, at]:
                        seen = pair.tokens[row : row + 1, : at + 1][:, present[row, : at + 1]]
                        assert error(out[row, -1], pair.ours(seen)[0, -1]) <= F32


@pytest.mark.parametrize(
    "pair", [("llama", "dynamic"), ("llama", "longrope"), ("llama", "yarn")], indirect=True, ids="-".join
)
@pytest.mark.parametrize("cut", [3, 10, 14, 17])
def test_a_longer_text_cut_back_equals_the_whole_pass(pair, cut):
    """What is kept was computed of the longer text, whose frequencies were others."""
    with torch.no_grad():
        state = pair.ours.new_state()
        pair.ours(pair.tokens, state=state)
        state.truncate(cut)
        for at in range(cut, 20):
            out = pair.ours(pair.tokens[:, at : at + 1], state=state)
            assert error(out, pair.ours(pair.tokens[:, : at + 1])[:, -1:]) <= F32


@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_load_then_save_keeps_every_byte(pair, tmp_path):
    clearhead.save(pair.ours, tmp_path / "saved")
    before, after = load_file(pair.folder / "model.safetensors"), load_file(tmp_path / "saved" / "model.safetensors")
    assert sorted(before) == sorted(after)
    for name in before:
        assert before[name].dtype == after[name].dtype
        assert torch.equal(before[name], after[name]), name
    assert _config(tmp_path / "saved") == _config(pair.folder)


@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_the_saved_folder_loads_in_transformers(pair, tmp_path):
    clearhead.save(pair.ours, tmp_path / "saved")
    again = type(pair.theirs).from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert torch.equal(again(pair.tokens).logits, pair.theirs(pair.tokens).logits)


@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_a_config_written_from_nothing_is_read_alike(pair, tmp_path):
    """Without the original config to carry along, what is written alone gives the same model, there and here."""
    bare = clearhead.load(pair.folder)
    family = bare.origin.family
    assert family.read(family.write(bare.config, {}), "written") == bare.config
    bare.origin = None
    clearhead.save(bare, tmp_path / "bare", family=family.model_type)
    again = type(pair.theirs).from_pretrained(tmp_path / "bare").eval()
    with torch.no_grad():
        assert error(again(pair.tokens).logits, pair.theirs(pair.tokens).logits) <= F32


@pytest.mark.parametrize("pair", tiny.CASES, indirect=True, ids="-".join)
def test_bfloat16(pair):
    """Rounded weights on both sides: what differs is only where each rounds on the way."""
    theirs = pair.theirs.to(torch.bfloat16)
    ours = clearhead.load(pair.folder, dtype="bfloat16")
    with torch.no_grad():
        a, b = ours(pair.tokens), theirs(pair.tokens).logits
    pair.theirs.to(torch.float32)
    pair.theirs.load_state_dict(load_file(pair.folder / "model.safetensors"), strict=False)
    pair.theirs.tie_weights()
    assert a.dtype == torch.bfloat16
    # Rounding once is 2^-9; through three to seven layers the two drift apart by a few such steps on average.
    assert float((a - b).float().pow(2).mean().sqrt() / b.float().pow(2).mean().sqrt()) <= TOLERANCE[torch.bfloat16]


def _config(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


def test_old_spellings_are_read_and_the_current_ones_written(tmp_path):
    scaling = {"type": "dynamic", "factor": 4.0}
    theirs = tiny.llama(rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 700.0})
    theirs.save_pretrained(tmp_path / "new")
    config = _config(tmp_path / "new")
    del config["rope_parameters"], config["head_dim"]
    config |= {"rope_theta": 700.0, "rope_scaling": scaling, "torch_dtype": config.pop("dtype")}
    (tmp_path / "new" / "config.json").write_text(json.dumps(config))
    ours = clearhead.load(tmp_path / "new")
    tokens = torch.randint(0, 99, (2, 30))
    with torch.no_grad():
        assert close(ours(tokens), theirs(tokens).logits)
    clearhead.save(ours, tmp_path / "saved")
    written = _config(tmp_path / "saved")
    assert written["rope_parameters"] == {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 700.0}
    assert not {"rope_theta", "rope_scaling", "torch_dtype"} & set(written)


def test_gemma3_old_spellings(tmp_path):
    theirs = tiny.gemma3()
    theirs.save_pretrained(tmp_path)
    config = _config(tmp_path)
    for name in ("rope_parameters", "layer_types", "_sliding_window_pattern"):
        config.pop(name, None)
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = torch.randint(0, 99, (2, 20))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)


def test_gpt2_file_without_prefix_and_with_mask_buffers(tmp_path):
    """The file on the Hub: saved from the inner model, with the masks of its time."""
    from safetensors.torch import save_file

    theirs = tiny.gpt2()
    theirs.save_pretrained(tmp_path)
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(tmp_path / "model.safetensors").items()}
    for layer in range(3):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 40, 40)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, tmp_path / "model.safetensors")
    tokens = torch.randint(0, 99, (2, 20))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)
