"""Numbers of weights from the config, against what is built, against published numbers, and worked by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from clearhead.config import ExpertsConfig, FeedForwardConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.weights import weights
from clearhead.errors import ClearheadError
from clearhead.model.build import build
from tests.costs.models import CONFIGS, config_of, every_family, published
from tests.costs.small import small

PAPERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "Transformer, base": ("transformer-2017-base", {}, 63_082_496 + 37_000),
    "GPT-2": ("gpt2", {}, 124_439_808),
    "GPT-2 XL": ("gpt2-xl", {}, 1_557_611_200),
    "BERT base": ("bert-base", {}, 109_482_240),
    "BERT base, heads": ("bert-base", {"architectures": ["BertForPreTraining"]}, 110_106_428),
    "BERT large": ("bert-large", {}, 335_141_888),
    "BERT large, heads": ("bert-large", {"architectures": ["BertForPreTraining"]}, 336_226_108),
    "DistilBERT": ("distilbert-base", {"architectures": ["DistilBertForMaskedLM"]}, 66_985_530),
    "ModernBERT": ("modernbert-base", {}, 149_655_232),
    "ViT-B/16": ("vit-b-16", {}, 86_567_656),
    "ViT-L/16": ("vit-l-16", {}, 304_326_632),
    "ViT-H/14": ("vit-h-14", {}, 632_045_800),
    "t5-small": ("t5-small", {}, 60_506_624),
    "Whisper tiny": ("whisper-tiny", {}, 37_760_640),
    "Llama 3 8B": ("llama3-8b", {}, 8_030_261_248),
    "Llama 3 70B": ("llama3-70b", {}, 70_553_706_496),
    "Llama 3 405B": ("llama3-405b", {}, 405_853_388_800),
    "Mistral 7B": ("mistral-7b", {}, 7_241_732_096),
    "Mixtral 8x7B": ("mixtral-8x7b", {}, 46_702_792_704),
    "DeepSeek-V3": ("deepseek-v3", {}, 671_026_404_352),
    "gpt-oss 120b": ("gpt-oss-120b", {}, 116_829_156_672),
    "gpt-oss 20b": ("gpt-oss-20b", {}, 20_914_757_184),
    "Qwen3 30B": ("qwen3-30b-a3b", {}, 30_532_122_624),
    "Mamba 130M": ("mamba-130m", {}, 129_135_360),
    "Mamba 370M": ("mamba-370m", {}, 371_516_416),
    "Mamba 790M": ("mamba-790m", {}, 793_204_224),
    "Mamba 1.4B": ("mamba-1.4b", {}, 1_372_178_432),
    "Mamba 2.8B": ("mamba-2.8b", {}, 2_768_345_600),
}


@every_family
def test_every_tensor_that_is_built_is_counted_once(case: tuple[str, str]) -> None:
    _same(config_of(case))


@pytest.mark.parametrize("name", sorted(entry.name.removesuffix(".json") for entry in CONFIGS.iterdir()))
def test_every_tensor_of_a_published_config_is_counted_once(name: str) -> None:
    _same(published(name))


def _same(config: Any) -> None:
    with torch.device("meta"):
        model = build(config)
    built = list(model.parameters())
    told = counts(config)
    assert Counter((w.shape, w.trained) for w in told.weights) == Counter(
        (tuple(p.shape), p.requires_grad) for p in built
    )
    assert told.parameters.total == sum(p.numel() for p in built) == sum(told.parameters.parts.values())


@pytest.mark.parametrize("name", PAPERS)
def test_the_numbers_of_the_papers(name: str) -> None:
    source, changes, n = PAPERS[name]
    assert counts(published(source, **changes)).parameters.trained == n


def test_what_works_on_one_token_of_experts() -> None:
    """Mixtral 8x7B is said to have 46.7 and 12.9 billion (Jiang 2024)."""
    found = counts(published("mixtral-8x7b")).parameters
    assert (found.total, found.active) == (46_702_792_704, 12_879_925_248)
    # 32 layers of 8 experts, 2 of which are chosen, of three matrices of 4,096 x 14,336.
    assert found.experts == 32 * 8 * 3 * 4096 * 14336
    assert found.active_experts == found.experts // 4


def test_by_part_worked_by_hand() -> None:
    """10 x 8 words, which are the head too; twice 192, twice 384; norms 2 x 2 x 8 and a last one of 8: 1,272."""
    found = counts(small()).parameters
    assert found.parts == {"embedding": 80, "attention": 384, "feed-forward": 768, "norms": 40}
    assert found.total == found.active == found.trained == 1272


def test_experts_worked_by_hand() -> None:
    """A layer of 4 experts of 3 x 8 x 5 = 120, 2 of which work, one of 72 (3 x 8 x 3) for all, and a router of 4 x 8
    with a correction of 4 that takes no gradient.
    """
    from clearhead.config import RouterConfig

    op = ExpertsConfig(
        n_experts=4,
        n_chosen=2,
        expert=FeedForwardConfig(d_ff=5),
        router=RouterConfig(correction=True),
        shared=FeedForwardConfig(d_ff=3),
    )
    found = counts(small(ffn=op)).parameters
    assert {part: found.parts[part] for part in ("experts", "router", "feed-forward")} == {
        "experts": 2 * 480,
        "router": 2 * 36,
        "feed-forward": 2 * 72,
    }
    assert found.total - found.active == 2 * 240
    assert found.total - found.trained == 2 * 4


def test_vit_without_its_classes() -> None:
    """85.8 million (Dosovitskiy 2020, table 1: 86M): without 1,000 x 768 + 1,000."""
    found = counts(published("vit-b-16")).parameters
    assert found.total - found.parts["heads"] == 85_798_656


def test_two_thirds_of_a_block_are_in_the_feed_forward() -> None:
    """S46: 8 d^2 of 12 d^2, biases aside."""
    parts = counts(published("gpt2")).parameters.parts
    assert parts["feed-forward"] / (parts["feed-forward"] + parts["attention"]) == pytest.approx(2 / 3, abs=1e-3)


def test_a_model_is_taken_for_its_config() -> None:
    model = build(small())
    assert counts(model).parameters == counts(small()).parameters


@pytest.mark.parametrize("what", ["llama", None, 3])
def test_what_is_no_config_is_refused(what: Any) -> None:
    with pytest.raises(ClearheadError, match="nothing is known of what"):
        counts(what)


def test_a_part_without_a_formula_is_named() -> None:
    class Novel:
        pass

    with pytest.raises(ClearheadError, match="Novel"):
        next(iter(weights(Novel(), 8)))


def test_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr("torch.nn.Module.__init__", refuse)
    config = published("deepseek-v3")
    assert isinstance(config, TransformerConfig)
    assert counts(config).flops(1, 4096).total > 0
