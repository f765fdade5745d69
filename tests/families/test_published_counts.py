"""Published numbers of parameters, from the published configs alone: no weights are allocated."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
import torch

from clearhead.families import family_of
from clearhead.model.build import build

PUBLISHED = {
    "albert-base-v2": 11_683_584,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "distilbert-base": 66_362_880,
    "esm2-650m": 651_043_254,
    "modernbert-base": 149_655_232,
    "roberta-base": 124_645_632,
    "t5-small": 60_506_624,
    # As in the paper, and a number a word that is added to the scores, which came with Marian.
    "transformer-2017-base": 63_082_496 + 37_000,
    "transformer-2017-big": 214_245_376 + 37_000,
    "clip-vit-b-32": 151_277_313,
    "deepseek-v3": 671_026_404_352,
    "deit-b-16-distilled": 87_338_192,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma3-270m": 268_098_176,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "granite3.1-8b": 8_170_848_256,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "mamba-130m": 129_135_360,
    "mamba-370m": 371_516_416,
    "mamba-790m": 793_204_224,
    "mamba-1.4b": 1_372_178_432,
    "mamba-2.8b": 2_768_345_600,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "olmo2-7b": 7_298_617_344,
    "phi3-mini": 3_821_079_552,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-1.4b": 1_414_647_808,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "whisper-tiny": 37_760_640,
}
CONFIGS = resources.files("clearhead") / "assets" / "configs"


def published(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return raw


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_a_published_config(name: str) -> None:
    raw = published(name)
    config = family_of(raw, name).read(raw, name)
    with torch.device("meta"):
        model = build(config)
    # A router's correction is set by counting and not by gradients: published numbers leave it out.
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == PUBLISHED[name]


def test_every_config_is_counted() -> None:
    files = {entry.name.removesuffix(".json") for entry in CONFIGS.iterdir() if entry.name.endswith(".json")}
    assert files == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_written_in_todays_spelling_and_read_alike(name: str) -> None:
    raw = published(name)
    family = family_of(raw, name)
    config = family.read(raw, name)
    again = family.write(config, raw)
    assert family.read(again, "again") == config
    old = {"rope_scaling", "rotary_pct", "rotary_emb_base"} | ({"rope_theta"} if "rope_parameters" in again else set())
    assert not old & set(again)
