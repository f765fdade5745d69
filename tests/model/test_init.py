"""The spread of first weights, tensor by tensor, against those of the `transformers` package's own first weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.config import InitConfig
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.model.init import initialise

T5 = {"d_model": 96, "d_kv": 24, "num_heads": 4, "d_ff": 160, "num_layers": 2, "vocab_size": 200}
CASES: dict[str, tuple[str, str, dict[str, Any], InitConfig]] = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"n_embd": 96, "n_layer": 3, "n_head": 4, "vocab_size": 200}, InitConfig()),
    "bert": (
        "bert",
        "BertForMaskedLM",
        {
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 160,
            "vocab_size": 200,
        },
        InitConfig(deep=False),
    ),
    "t5": (
        "t5",
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu"},
        InitConfig(std=None, deep=False, tables=1.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_starts_with_the_published_spread(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="a test dependency")
    family, architecture, sizes, how = CASES[name]
    torch.manual_seed(0)
    cls = getattr(transformers, architecture)
    cls(cls.config_class(**sizes)).save_pretrained(tmp_path / "theirs")
    ours = build(FAMILIES[family].read({"model_type": family, "architectures": [architecture], **sizes}, "here"))
    initialise(ours, how)
    clearhead.save(ours, tmp_path / "ours", family=family)
    a, b = (load_file(tmp_path / who / "model.safetensors") for who in ("ours", "theirs"))
    assert a.keys() == b.keys()
    seen = 0
    for tensor in a:
        n, (mine, theirs) = a[tensor].numel(), (float(x[tensor].float().std()) for x in (a, b))
        if a[tensor].ndim < 2 or tensor.endswith("relative_attention_bias.weight"):
            # T5's biases of distance have the spread of a matrix that reads the stream, which they are not.
            continue
        seen += 1
        # The spread of a sample of n is off by a share of 1 / sqrt(2 n).
        assert mine == pytest.approx(theirs, rel=5 * math.sqrt(2 / (2 * n))), tensor
    assert seen >= 12


def test_matrices_that_write_are_smaller_with_depth() -> None:
    raw = {"model_type": "gpt2", "n_embd": 64, "n_layer": 8, "n_head": 4, "vocab_size": 50}
    model = build(FAMILIES["gpt2"].read(raw, "here"))
    writers = [p for name, p in model.named_parameters() if name.endswith(("o_proj.weight", "down_proj.weight"))]
    assert len(writers) == 16
    assert float(torch.cat([p.flatten() for p in writers]).detach().std()) == pytest.approx(0.02 / 4, rel=0.02)
    initialise(model, InitConfig(std=0.1, deep=False))
    assert float(torch.cat([p.flatten() for p in writers]).detach().std()) == pytest.approx(0.1, rel=0.02)
