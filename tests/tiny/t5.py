"""Tiny T5s: buckets few enough that 20 tokens fall into the logarithmic ones and beyond."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively

CONFIG = {
    "vocab_size": 99,
    "d_model": 64,
    "d_kv": 12,
    "d_ff": 112,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}


def quiet(model: nn.Module) -> nn.Module:
    """Scores are not scaled, so queries are drawn smaller by the root of a head's width."""
    model = lively(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("Attention.q.weight"):
                parameter.mul_(CONFIG["d_kv"] ** -0.5)
            elif name.endswith("relative_attention_bias.weight"):
                parameter.mul_(2.0)
            elif name == "shared.weight":
                parameter.mul_(4.0)  # the scaled output would be small otherwise
    return model


def make(**changes: Any) -> nn.Module:
    """A tiny T5; `own_head` gives it a head of its own, as version 1.1 has one."""
    from transformers import T5Config, T5ForConditionalGeneration, T5Model

    config = {**CONFIG, **changes}
    own_head, bare = config.pop("own_head", False), config.pop("bare", False)
    model = (T5Model if bare else T5ForConditionalGeneration)(T5Config(**config))
    if own_head:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return quiet(model)


def make_encoder(**changes: Any) -> nn.Module:
    """A tiny T5's encoder alone."""
    from transformers import T5Config, T5EncoderModel

    return quiet(T5EncoderModel(T5Config(**{**CONFIG, **changes})))


TINY = (
    Tiny(
        family="t5",
        make=make,
        kind="seq2seq",
        configs={
            "plain": {},
            "version_1_1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "own_head": True},
            "gated_silu_eps": {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3},
            "bare": {"bare": True, "feed_forward_proj": "gelu"},
        },
    ),
    Tiny(
        family="t5",
        make=make_encoder,
        kind="encoder",
        configs={"encoder": {}, "gated_encoder": {"feed_forward_proj": "gated-gelu"}},
    ),
)
