"""A small BERT: it fills in English words that are masked, from what stands on both sides of them (Devlin 2018)."""

from __future__ import annotations

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    MaskingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus


def bert_english() -> TrainConfig:
    """3.9 million parameters; whole words are masked, as is harder and teaches more than pieces of them."""
    d_model, context = 192, 128
    norm = NormConfig(kind="layer", eps=1e-12, bias=True)
    attention = AttentionConfig(
        n_heads=6,
        n_kv_heads=6,
        d_head=32,
        bias=BiasConfig(q=True, k=True, v=True, o=True),
        mask=MaskConfig(kind="full"),
    )
    feed_forward = FeedForwardConfig(d_ff=4 * d_model, activation="gelu", gated=False, bias=True)
    block = BlockConfig(mixer=SublayerConfig(op=attention, after=norm), ffn=SublayerConfig(op=feed_forward, after=norm))
    model = TransformerConfig(
        d_model=d_model,
        encoder=StackConfig(
            embed=EmbedConfig(
                front=TokensConfig(vocab_size=1, n_types=2), positions=LearnedPositions(n=context), norm=norm
            ),
            blocks=(block,) * 5,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig(bias=True, transform=TransformConfig(width=d_model, norm=norm))),
        context=context,
    )
    return TrainConfig(
        model=ModelConfig(family="bert", config=model),
        objective=ObjectiveConfig(name="masked_tokens", masking=MaskingConfig(whole_words=True)),
        data=DataConfig(corpus=Corpus(path="corpus:english"), tokenizer="wordpiece", vocab_size=8192),
        batch=BatchConfig(rows=32, length=context),
        optim=OptimConfig(name="muon", lr=4e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="linear", warmup=100, floor=0.02),
        run=RunConfig(steps=1400),
        every=EveryConfig(log=20, evaluate=500, save=200),
    )
