"""Decoders in GGUF: tensors under the names that the `gguf` package gives them, metadata as its writer spells it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor, nn

import clearhead
from tests import tiny
from tests.families.test_gguf import permuted
from tests.oracles import close

Change = Callable[[str, Tensor, Any], Tensor]


def same(name: str, tensor: Tensor, config: Any) -> Tensor:
    return tensor


def norms_plus_one(name: str, tensor: Tensor, config: Any) -> Tensor:
    return tensor + 1 if name.endswith("norm.weight") else tensor


def turned(name: str, tensor: Tensor, config: Any) -> Tensor:
    if name.endswith("q_proj.weight"):
        return permuted(tensor, config.num_attention_heads)
    if name.endswith("k_proj.weight"):
        return permuted(tensor, config.num_key_value_heads)
    return tensor


def no_more(w: gguf.GGUFWriter, config: Any) -> None:
    return None


def head_width(w: gguf.GGUFWriter, config: Any) -> None:
    w.add_key_length(config.head_dim)
    w.add_value_length(config.head_dim)


def gemma2(w: gguf.GGUFWriter, config: Any) -> None:
    head_width(w, config)
    w.add_sliding_window(config.sliding_window)
    w.add_attn_logit_softcapping(config.attn_logit_softcapping)
    w.add_final_logit_softcapping(config.final_logit_softcapping)


def phi3(w: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    trained = config.original_max_position_embeddings
    w.add_rope_scaling_orig_ctx_len(trained)
    w.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        for name in ("long", "short"):
            w.add_tensor(f"rope_factors_{name}.weight", torch.tensor(rope[f"{name}_factor"]).numpy())
        stretch = config.max_position_embeddings / trained
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(trained)))


def granite(w: gguf.GGUFWriter, config: Any) -> None:
    w.add_attention_scale(config.attention_multiplier)
    w.add_embedding_scale(config.embedding_multiplier)
    w.add_residual_scale(config.residual_multiplier)
    w.add_logit_scale(config.logits_scaling)


def yarn(w: gguf.GGUFWriter, config: Any) -> None:
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(config.rope_parameters["factor"])
    w.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(config.rope_parameters["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(config.rope_parameters["beta_slow"])


@dataclass(frozen=True)
class Written:
    """How a family's converter writes one of its tiny models."""

    arch: gguf.MODEL_ARCH
    family: str
    name: str
    more: Callable[[gguf.GGUFWriter, Any], None] = no_more
    change: Change = same
    as_family: str | None = None


A = gguf.MODEL_ARCH
CASES = [
    Written(A.QWEN2, "qwen2", "full"),
    Written(A.QWEN2, "qwen2", "yarn", yarn),
    Written(A.QWEN3, "qwen3", "wide_heads", head_width),
    Written(A.GEMMA2, "gemma2", "query_of_its_head", gemma2, norms_plus_one),
    Written(A.PHI3, "phi3", "plain", phi3),
    Written(A.PHI3, "phi3", "longrope", phi3),
    Written(A.PHI3, "phi3", "short", phi3),
    Written(A.OLMO2, "olmo2", "grouped"),
    Written(A.GRANITE, "granite", "multiplied", granite, turned),
    Written(A.LLAMA, "mistral", "no_window", head_width, turned, as_family="llama"),
]


def write(case: Written, model: nn.Module, path: Path) -> None:
    c: Any = model.config
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[case.arch])
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_rope_dimension_count(int(width * c.rope_parameters.get("partial_rotary_factor", 1.0)))
    case.more(w, c)
    names = gguf.get_tensor_name_map(case.arch, c.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        w.add_tensor(theirs, case.change(name, tensor, c).contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family}-{case.name}")
def test_a_gguf_gives_the_numbers_of_its_model(case: Written, tmp_path: Path) -> None:
    theirs = tiny.make(case.family, case.name)
    write(case, theirs, tmp_path / "tiny.gguf")
    ours = clearhead.load(tmp_path / "tiny.gguf")
    assert ours.origin.family.model_type == (case.as_family or case.family)
    tokens = torch.randint(0, 99, (2, 20), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert close(ours(tokens), theirs(tokens).logits)
    clearhead.save(ours, tmp_path / "folder")
    with torch.no_grad():
        assert torch.equal(clearhead.load(tmp_path / "folder")(tokens), ours(tokens))
