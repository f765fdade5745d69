"""State-space families: what harness and tiny models can't show. Files of the first release, published sizes, bugs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from tests import tiny
from tests.oracles import error

# As published on the Hub, where it differs from what `transformers` writes today.
MAMBA_130M: dict[str, Any] = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "bos_token_id": 0,
    "conv_kernel": 4,
    "d_inner": 1536,
    "d_model": 768,
    "eos_token_id": 0,
    "expand": 2,
    "fused_add_norm": True,
    "hidden_act": "silu",
    "hidden_size": 768,
    "initializer_range": 0.1,
    "intermediate_size": 1536,
    "layer_norm_epsilon": 1e-05,
    "n_layer": 24,
    "num_hidden_layers": 24,
    "pad_token_id": 0,
    "pad_vocab_size_multiple": 8,
    "rescale_prenorm_residual": False,
    "residual_in_fp32": True,
    "rms_norm": True,
    "ssm_cfg": {},
    "state_size": 16,
    "time_step_floor": 0.0001,
    "time_step_init_scheme": "random",
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "time_step_rank": 48,
    "time_step_scale": 1.0,
    "torch_dtype": "float32",
    "transformers_version": "4.39.0.dev0",
    "use_bias": False,
    "use_cache": True,
    "use_conv_bias": True,
    "vocab_size": 50280,
}


def test_published_size() -> None:
    """Mamba 130M, from its config alone."""
    with torch.device("meta"):
        model = build(FAMILIES["mamba"].read(MAMBA_130M, "config.json"))
    assert sum(p.numel() for p in model.parameters()) == 129_135_360


def test_old_names_and_headless_files(tmp_path: Path) -> None:
    """The first files call the table of tokens backbone.embedding; the inner model leaves out the prefix."""
    theirs = tiny.make("mamba")
    theirs.save_pretrained(tmp_path)
    tokens = torch.randint(99, (2, 12))
    expected = clearhead.load(tmp_path)(tokens)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    old = {name.replace("embeddings.", "embedding."): x for name, x in tensors.items()}
    assert old.keys() != tensors.keys()
    for renamed in (old, {name.removeprefix("backbone."): x for name, x in old.items()}):
        save_file(renamed, file, metadata={"format": "pt"})
        assert error(clearhead.load(tmp_path)(tokens), expected) == 0.0


DIALECTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "granitemoehybrid": (
        {
            "layer_types": ["mamba", "attention", "mamba"],
            "position_embedding_type": "nope",
            "normalization_function": "rmsnorm",
            "init_method": "mup",
            "rope_theta": 10000,
            "rope_scaling": None,
        },
        {"rope_parameters", "time_step_limit"},
    ),
    "bamba": ({"rope_theta": 10000.0, "rope_scaling": None}, {"rope_parameters", "time_step_limit"}),
    "mamba2": ({"time_step_limit": [0.0, float("inf")], "norm_before_gate": True, "rms_norm": True}, set()),
    "jamba": (
        {"mamba_inner_layernorms": True, "calc_logits_for_entire_prompt": False, "n_ctx": 262144, "mamba_dt_rank": 4},
        {"use_mambapy", "use_associative_scan"},
    ),
}


@pytest.mark.parametrize("family", list(DIALECTS))
def test_configs_of_the_hub(family: str, tmp_path: Path) -> None:
    """The same model in the words of the first release."""
    tiny.make(family).save_pretrained(tmp_path)
    today = clearhead.load(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    changes, dropped = DIALECTS[family]
    old = {**{k: v for k, v in raw.items() if k not in dropped}, **changes}
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert clearhead.load(tmp_path).config == today.config


def test_wrong_values_are_refused() -> None:
    def refused(family: str, match: str, **changes: Any) -> None:
        raw = {"model_type": family, "architectures": [FAMILIES[family].architectures[0]], **changes}
        with pytest.raises(ClearheadError, match=match):
            FAMILIES[family].read(raw, "config.json")

    refused("mamba", "rms_norm", rms_norm=False)
    refused("mamba", "not understood", use_memba=True)
    refused("mamba2", "num_heads x head_dim", num_heads=96)
    refused("bamba", "mamba_n_heads", mamba_n_heads=100)
    refused("jamba", "mamba_inner_layernorms", mamba_inner_layernorms=False)
    refused("granitemoehybrid", "layer_types", layer_types=["conv"] * 32)


@pytest.mark.parametrize("family", ["mamba", "mamba2"])
def test_left_padding(family: str, tmp_path: Path) -> None:
    """Case H14, with their logits of the text alone as the oracle."""
    theirs = tiny.make(family)
    theirs.save_pretrained(tmp_path)
    ours = clearhead.load(tmp_path)
    with torch.no_grad():
        alone = theirs(torch.tensor([[5, 6, 7]])).logits[:, -1]
    padded, present = torch.tensor([[0, 0, 5, 6, 7]]), torch.tensor([[False, False, True, True, True]])
    assert error(ours(padded, present=present)[:, -1], alone) <= 1e-5
    beside = torch.cat([padded, torch.tensor([[1, 2, 3, 4, 5]])])
    both = torch.cat([present, torch.ones(1, 5, dtype=torch.bool)])
    assert error(ours(beside, present=both)[:1, -1], alone) <= 1e-5


def test_what_is_not_copied(tmp_path: Path) -> None:
    """`transformers` 5.24 gives other numbers step by step or in chunks than in one pass; ours are those of the pass.

    If this fails because theirs agree, they have mended it: shorten the list.
    """
    broken = {
        ("mamba", "plain"): (8, 4),  # a chunk of several tokens drops the scan's state
        ("jamba", "hybrid"): (8, 4),
        ("mamba2", "limited_one_group"): (8, 1),  # single steps are not limited
        ("bamba", "hybrid"): (8, 1),  # positions start again from 0
    }
    for i, ((family, name), (first, step)) in enumerate(broken.items()):
        theirs = tiny.make(family, name)
        theirs.save_pretrained(tmp_path / str(i))
        ours = clearhead.load(tmp_path / str(i))
        tokens = torch.randint(3, 99, (2, 16))
        with torch.no_grad():
            whole = theirs(tokens).logits
            cache = theirs(tokens[:, :first], use_cache=True).cache
            pieces = []
            for start in range(first, 16, step):
                out = theirs(tokens[:, start : start + step], cache=cache, use_cache=True)
                pieces.append(out.logits)
            state = ours.new_state()
            ours(tokens[:, :first], state=state)
            mine = [ours(tokens[:, start : start + step], state=state) for start in range(first, 16, step)]
        assert error(torch.cat(pieces, dim=1), whole[:, first:]) > 1e-3, family
        assert error(torch.cat(mine, dim=1), whole[:, first:]) <= 1e-5, family
