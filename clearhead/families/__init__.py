"""Published architectures as data. A new one is a file with a `FAMILY`, and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.families import (
    albert,
    attention_only,
    bamba,
    bart,
    bert,
    clip,
    deepseek_v3,
    deit,
    distilbert,
    esm,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    gpt_oss,
    granite,
    granitemoehybrid,
    jamba,
    llama,
    mamba,
    mamba2,
    marian,
    mistral,
    mixtral,
    modernbert,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    recurrent,
    roberta,
    roformer,
    t5,
    vit,
    whisper,
)
from clearhead.families.family import GGUF, Family, GGUFFile, Reader

MODULES = (
    gpt2,
    llama,
    gemma3,
    gpt_neox,
    mistral,
    qwen2,
    qwen3,
    gemma2,
    phi3,
    olmo2,
    granite,
    mixtral,
    qwen3_moe,
    gpt_oss,
    deepseek_v3,
    attention_only,
    bert,
    roberta,
    distilbert,
    albert,
    roformer,
    modernbert,
    esm,
    mamba,
    mamba2,
    jamba,
    bamba,
    granitemoehybrid,
    vit,
    deit,
    clip,
    marian,
    bart,
    t5,
    whisper,
    recurrent,
)
FAMILIES: dict[str, Family] = {module.FAMILY.model_type: module.FAMILY for module in MODULES}


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family that a published config names.

    Raises:
        ClearheadError: it names none, or one that is not known here; the message has the nearest.
    """
    name = raw.get("model_type")
    if name is None:
        raise ClearheadError(f"{where}: the config has no model_type, so it can't be told what the model is")
    if name not in FAMILIES:
        near = difflib.get_close_matches(str(name), FAMILIES, n=3, cutoff=0.6)
        nearest = f"; the nearest are {', '.join(near)}" if near else ""
        raise ClearheadError(
            f"{where}: the model_type {name!r} is not known{nearest}; `clearhead families` lists those that are"
        )
    return FAMILIES[name]


def gguf_family_of(metadata: Mapping[str, Any], where: str) -> tuple[Family, GGUF]:
    """The family that a GGUF file's metadata names."""
    name = metadata.get("general.architecture")
    for family in FAMILIES.values():
        if family.gguf is not None and family.gguf.architecture == name:
            return family, family.gguf
    known = ", ".join(f.gguf.architecture for f in FAMILIES.values() if f.gguf is not None)
    raise ClearheadError(f"{where}: the architecture {name!r} can't be read from GGUF; understood are {known}")


def gguf_config(family: Family, gguf: GGUF, metadata: Mapping[str, Any], file: GGUFFile, where: str) -> dict[str, Any]:
    """The published config of a GGUF file, from its metadata."""
    prefix = gguf.architecture + "."
    reader = Reader({k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}, where)
    config = gguf.config(reader, file)
    reader.finish()
    tokenizer = "tokenizer.ggml."
    ids = {
        "bos_token_id": metadata.get(tokenizer + "bos_token_id"),
        "eos_token_id": metadata.get(tokenizer + "eos_token_id"),
        "pad_token_id": metadata.get(tokenizer + "padding_token_id"),
    }
    named = {"architectures": [family.architectures[0]], "model_type": family.model_type}
    return {**named, **config, **{k: v for k, v in ids.items() if v is not None}}


__all__ = ["FAMILIES", "Family", "Reader", "family_of", "gguf_config", "gguf_family_of"]
