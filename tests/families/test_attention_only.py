"""Decoders of attention alone, against a Llama or a Granite of the `transformers` package whose feed-forwards have no
width: they add nothing, so it is the same model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.config import InitConfig
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.model.init import initialise
from tests.oracles import error

RAW = {
    "model_type": "attention_only",
    "architectures": ["AttentionOnlyForCausalLM"],
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
    "rms_norm_eps": 1e-5,
}


CASES: list[tuple[str, dict[str, Any]]] = [
    ("Llama", {"tie_word_embeddings": False, "attention_bias": True}),
    ("Llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}),
    ("Granite", {"tie_word_embeddings": False, "attention_multiplier": 0.4}),
]


@pytest.mark.parametrize(("like", "changes"), CASES)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_it_is_a_known_model_without_feed_forwards(like: str, changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="a test dependency")
    torch.manual_seed(0)
    raw = {**RAW, **changes}
    model = build(FAMILIES["attention_only"].read(raw, "here")).eval()
    initialise(model, InitConfig(std=0.3))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(p)
    assert all(block.ffn is None for block in model.config.stack.blocks)
    clearhead.save(model, tmp_path / "saved", family="attention_only")
    ours = clearhead.load(tmp_path / "saved")

    same = {name: value for name, value in raw.items() if name not in ("model_type", "architectures")}
    theirs = getattr(transformers, f"{like}ForCausalLM")(
        getattr(transformers, f"{like}Config")(**same, intermediate_size=0)
    ).eval()
    from safetensors.torch import load_file

    found = theirs.load_state_dict(load_file(tmp_path / "saved" / "model.safetensors"), strict=False)
    assert not found.unexpected_keys
    without = {"gate_proj", "up_proj", "down_proj", "post_attention_layernorm"}
    tied = {"lm_head"} if raw["tie_word_embeddings"] else set()
    assert {name.split(".")[-2] for name in found.missing_keys} == without | tied
    tokens_BT = torch.randint(61, (3, 20))
    with torch.no_grad():
        assert error(ours(tokens_BT), theirs(tokens_BT).logits) < 1e-5
