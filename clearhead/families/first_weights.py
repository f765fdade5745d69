"""How each family's weights are drawn before training, as one table."""

from __future__ import annotations

from clearhead.config import InitConfig

_AS_GPT2 = InitConfig()
"""Matrices that write to the stream are smaller the deeper the model is (Radford 2019, section 2.3)."""
_AS_BERT = InitConfig(deep=False)
"""One spread for all of them (Devlin 2018: `initializer_range`)."""

FIRST_WEIGHTS = {
    "albert": _AS_BERT,
    "attention_only": _AS_GPT2,
    "bamba": _AS_GPT2,
    "bart": _AS_BERT,
    "bert": _AS_BERT,
    # Only its tables: a cell starts with values of its own, and tables as torch has them.
    "clearhead_recurrent": InitConfig(std=None, deep=False, tables=1.0),
    # Radford 2021, as its code has it: by the number of inputs, and writers by the depth.
    "clip": InitConfig(std=None, tables=0.02),
    # DeepSeek-AI 2024, section 4.2.
    "deepseek_v3": InitConfig(std=0.006, deep=False),
    "deit": _AS_BERT,
    "distilbert": _AS_BERT,
    "esm": _AS_BERT,
    "gemma2": _AS_GPT2,
    "gemma3_text": _AS_GPT2,
    "gpt2": _AS_GPT2,
    "gpt_neox": _AS_GPT2,
    "gpt_oss": _AS_GPT2,
    "granite": _AS_GPT2,
    "granitemoehybrid": _AS_GPT2,
    "jamba": _AS_GPT2,
    "llama": _AS_GPT2,
    # Gu 2023, as its code has it: what writes to the stream, by the depth.
    "mamba": _AS_GPT2,
    "mamba2": _AS_GPT2,
    "marian": _AS_BERT,
    "mistral": _AS_GPT2,
    "mixtral": _AS_GPT2,
    "modernbert": _AS_GPT2,
    # OLMo Team 2024, section 3.2: every one of 0.02, which they found to last longer without spikes.
    "olmo2": _AS_BERT,
    "phi3": _AS_GPT2,
    "qwen2": _AS_GPT2,
    "qwen3": _AS_GPT2,
    "qwen3_moe": _AS_GPT2,
    "roberta": _AS_BERT,
    "roformer": _AS_BERT,
    # Raffel 2020, as its code has it.
    "t5": InitConfig(std=None, deep=False, tables=1.0),
    "vit": _AS_BERT,
    "whisper": _AS_BERT,
}
"""By `model_type`. Decoders of which nothing was published start as GPT-2 does."""
