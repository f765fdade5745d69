"""Tiny models to look into, and random patterns to draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    MaskConfig,
    NormConfig,
    RotaryConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.lens.report import AttentionReport, Glance, NextToken, Token
from clearhead.lens.views.labels import visible
from clearhead.model.transformer import Transformer

VOCABULARY = 60
LABELS = ["<bos>", "The", " keys", " to", " the", " cabinet", " are", "\n", "中文", "\ud83d", "\x1b[31m", "<b>&[bold]"]


class Words:
    """A tokenizer of a character a token; 0 begins every text."""

    vocab_size = VOCABULARY - 5

    def encode(self, text: str) -> list[int]:
        return [0, *(1 + ord(char) % (self.vocab_size - 1) for char in text)]

    def pieces(self, ids: list[int]) -> list[str]:
        return [f"·{i}" if i else "<bos>" for i in ids]


def make_model(n_kv_heads: int = 2, kind: str = "causal", window: int | None = None) -> Transformer:
    """Two layers of four heads, output biases, weights large enough that heads have their own tastes."""
    norm = NormConfig()
    attention = AttentionConfig(
        n_heads=4,
        n_kv_heads=n_kv_heads,
        d_head=8,
        bias=BiasConfig(o=True),
        mask=MaskConfig(kind=kind, window=window),  # type: ignore[arg-type]
        positions=RotaryConfig(),
    )
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm), ffn=SublayerConfig(op=FeedForwardConfig(d_ff=48), pre=norm)
    )
    stack = StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=VOCABULARY)), blocks=(block, block), norm=norm)
    config = TransformerConfig(
        d_model=32,
        decoder=stack if kind == "causal" else None,
        encoder=None if kind == "causal" else stack,
        heads=HeadsConfig(tokens=TokenHeadConfig()),
    )
    torch.manual_seed(0)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    model.tokenizer = Words()
    return model


@pytest.fixture
def model() -> Transformer:
    return make_model()


@pytest.fixture
def make() -> Callable[..., Transformer]:
    return make_model


def random_pattern(n: int, causal: bool = True) -> torch.Tensor:
    """(n, n), rows summing to one."""
    scores = 2 * torch.randn(n, n, generator=torch.Generator().manual_seed(n))
    if causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


def make_report(n: int = len(LABELS), causal: bool = True) -> AttentionReport:
    """A report of a random pattern, its tokens as awkward as they come."""
    labels = [visible(LABELS[place % len(LABELS)]) for place in range(n)]
    return AttentionReport(
        tokens=tuple(Token(place, label) for place, label in enumerate(labels)),
        pattern_TS=random_pattern(n, causal),
        layer=5,
        head=0,
        n_heads=4,
        next_tokens=(NextToken(7, "·are", 0.31), NextToken(8, "·is", 0.02)),
        glances=tuple(Glance(layer, head, layer % n, 0.2 * head) for layer in range(3) for head in range(4)),
        why="because it was asked for",
    )


@pytest.fixture
def report() -> AttentionReport:
    return make_report()
