"""Tiny Llamas, with every scaling of rotary positions."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    # Of eight frequencies, some lie beyond each end of YaRN's band and some within it.
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "rope_theta": 100.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 2.0,
        "beta_slow": 0.25,
    },
    "yarn_untruncated": {
        "rope_type": "yarn",
        "factor": 8.0,
        "rope_theta": 50.0,
        "original_max_position_embeddings": 32,
        "truncate": False,
        "beta_fast": 2.5,
        "beta_slow": 0.5,
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
    **{
        name: {
            "rope_type": "longrope",
            "factor": 4.0,
            "original_max_position_embeddings": trained,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        }
        for name, trained in (("longrope", 12), ("longrope_within", 24))
    },
}


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Llama with grouped heads."""
    import transformers

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
    return lively(getattr(transformers, "Llama" + task)(transformers.LlamaConfig(**config)))


DECODER = Tiny(
    family="llama",
    make=make,
    configs={
        "grouped": {},
        "biased_tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "multi_query_wide_heads": {
            "num_key_value_heads": 1,
            "head_dim": 24,
            "rms_norm_eps": 1e-3,
            "rope_theta": 500.0,
        },
        "gelu": {"hidden_act": "gelu", "num_key_value_heads": 4},
        **{
            name: {"rope_parameters": {"rope_theta": 10000.0, **scaling}, "max_position_embeddings": 16}
            for name, scaling in SCALINGS.items()
        },
    },
)

TASKS = Tiny(
    family="llama",
    make=make,
    kind="encoder",
    configs={
        "answers": {"task": "ForQuestionAnswering"},
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
        "tags": {"task": "ForTokenClassification"},
        "headless": {"task": "Model"},
    },
)

TINY = (DECODER, TASKS)
