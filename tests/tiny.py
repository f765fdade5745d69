"""Random tiny models of the `transformers` package, lively enough that a wrong option shows.

Weights are drawn with a standard deviation of 0.2 and norms around 1, so that logits are of order one and no norm,
bias or position is near to doing nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def lively(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter random values that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = (
                1.0 if parameter.ndim == 1 and "norm" in name.replace("ln_", "norm") and "bias" not in name else 0.0
            )
            spread = 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return model.eval()


GPT2: dict[str, dict[str, Any]] = {
    "plain": {},
    "by_layer": {"scale_attn_by_inverse_layer_idx": True, "n_inner": 88, "activation_function": "gelu"},
    "unscaled_untied": {"scale_attn_weights": False, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    "relu_odd_widths": {"n_embd": 60, "n_head": 3, "activation_function": "relu", "vocab_size": 101},
}

LLAMA_SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn_untruncated": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 16,
        "truncate": False,
        "beta_fast": 8.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.4,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 12,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    },
}

LLAMA: dict[str, dict[str, Any]] = {
    "grouped": {},
    "biased_tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "multi_query_wide_heads": {"num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-3, "rope_theta": 500.0},
    "gelu": {"hidden_act": "gelu", "num_key_value_heads": 4},
    **{
        name: {"rope_parameters": {"rope_theta": 10000.0, **scaling}, "max_position_embeddings": 16}
        for name, scaling in LLAMA_SCALINGS.items()
    },
}

GEMMA3: dict[str, dict[str, Any]] = {
    "five_to_one": {},
    "other_layers": {
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 10,
        "attention_bias": True,
    },
    "capped_untied": {"final_logit_softcapping": 2.0, "tie_word_embeddings": False, "num_key_value_heads": 4},
    "scaled": {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    },
    "both_ways": {"use_bidirectional_attention": True, "sliding_window": 6},
    "window_of_one": {"sliding_window": 1, "num_hidden_layers": 2},
}


def gpt2(**changes: Any) -> nn.Module:
    """A tiny GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = {"vocab_size": 99, "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 40, **changes}
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return lively(GPT2LMHeadModel(GPT2Config(**{**ids, **config})))


def llama(**changes: Any) -> nn.Module:
    """A tiny Llama with grouped heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(LlamaForCausalLM(LlamaConfig(**config)))


def gemma3(**changes: Any) -> nn.Module:
    """A tiny Gemma 3 with windows of five tokens."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "sliding_window": 5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(Gemma3ForCausalLM(Gemma3TextConfig(**config)))


MAKERS = {"gpt2": gpt2, "llama": llama, "gemma3": gemma3}
CASES = [
    *((family, name) for family, table in (("gpt2", GPT2), ("llama", LLAMA), ("gemma3", GEMMA3)) for name in table)
]
CAUSAL_CASES = [case for case in CASES if case[1] != "both_ways"]


def make(family: str, name: str) -> nn.Module:
    """The tiny model of a case."""
    return MAKERS[family](**{"gpt2": GPT2, "llama": LLAMA, "gemma3": GEMMA3}[family][name])
