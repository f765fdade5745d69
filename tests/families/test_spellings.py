"""What older files of a family look like: other keys, other names, no prefix."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

import clearhead
from tests.oracles import close
from tests.tiny import gemma3, gpt2, llama


def _config(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


def test_old_spellings_are_read_and_the_current_ones_written(tmp_path):
    scaling = {"type": "dynamic", "factor": 4.0}
    theirs = llama.make(rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 700.0})
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
    theirs = gemma3.make()
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

    theirs = gpt2.make()
    theirs.save_pretrained(tmp_path)
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(tmp_path / "model.safetensors").items()}
    for layer in range(3):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 40, 40)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, tmp_path / "model.safetensors")
    tokens = torch.randint(0, 99, (2, 20))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)
