"""Decoders of attention alone, against a Llama of the `transformers` package whose feed-forwards have no width: they
add nothing, so it is the same model.
"""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(("tied", "biased"), [(False, True), (True, False)])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_it_is_a_llama_without_feed_forwards(tied: bool, biased: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="a test dependency")
    torch.manual_seed(0)
    raw = {**RAW, "tie_word_embeddings": tied, "attention_bias": biased}
    model = build(FAMILIES["attention_only"].read(raw, "here")).eval()
    initialise(model, InitConfig(std=0.3))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(p)
    assert all(block.ffn is None for block in model.config.stack.blocks)
    clearhead.save(model, tmp_path / "saved", family="attention_only")
    ours = clearhead.load(tmp_path / "saved")

    same = {name: value for name, value in raw.items() if name not in ("model_type", "architectures")}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**same, intermediate_size=0)).eval()
    from safetensors.torch import load_file

    found = theirs.load_state_dict(load_file(tmp_path / "saved" / "model.safetensors"), strict=False)
    assert not found.unexpected_keys
    assert {name.split(".")[-2] for name in found.missing_keys} <= {
        "gate_proj", "up_proj", "down_proj", "post_attention_layernorm", *(["lm_head"] if tied else []),
    }  # fmt: skip
    tokens_BT = torch.randint(61, (3, 20))
    with torch.no_grad():
        assert error(ours(tokens_BT), theirs(tokens_BT).logits) < 1e-5
