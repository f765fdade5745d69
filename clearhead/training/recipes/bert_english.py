"""A small BERT: it fills in English words that are masked, from what stands on both sides of them (Devlin 2018), in the
shape of ModernBERT (Warner 2024).
"""

from __future__ import annotations

from clearhead.config import (
    AttentionConfig,
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
    """4.2 million parameters. Norms stand before and queries are turned, as BERT is built today: with the norms after,
    as in 2018, 840 steps taught it little more than which words are frequent. Whole words are masked, which is harder
    and teaches more than pieces of them, and 30 % of them (Warner 2024, section 2.2.1).
    """
    d_model, context = 192, 128
    norm = NormConfig(kind="layer", eps=1e-5, bias=False)
    feed_forward = SublayerConfig(op=FeedForwardConfig(d_ff=512, activation="gelu"), pre=norm)

    def block(layer: int) -> BlockConfig:
        every_third = layer % 3 == 0
        attention = AttentionConfig(
            n_heads=6,
            n_kv_heads=6,
            d_head=32,
            mask=MaskConfig(kind="full", window=None if every_third else 32),
            positions=RotaryConfig(base=160_000.0 if every_third else 10_000.0),
        )
        # What the first layer reads comes from the embedding's norm.
        return BlockConfig(mixer=SublayerConfig(op=attention, pre=norm if layer else None), ffn=feed_forward)

    model = TransformerConfig(
        d_model=d_model,
        encoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=1), norm=norm),
            blocks=tuple(block(layer) for layer in range(6)),
            norm=norm,
        ),
        heads=HeadsConfig(
            tokens=TokenHeadConfig(
                bias=True, transform=TransformConfig(width=d_model, activation="gelu", norm=norm, bias=False)
            )
        ),
        context=context,
    )
    return TrainConfig(
        model=ModelConfig(family="modernbert", config=model),
        objective=ObjectiveConfig(name="masked_tokens", masking=MaskingConfig(share=0.3, whole_words=True)),
        data=DataConfig(corpus=Corpus(path="corpus:english"), tokenizer="wordpiece", vocab_size=8192),
        batch=BatchConfig(rows=32, length=context),
        optim=OptimConfig(name="muon", lr=6e-3, weight_decay=0.1),
        schedule=ScheduleConfig(kind="linear", warmup=20, floor=0.02),
        run=RunConfig(steps=1200),
        every=EveryConfig(log=20, evaluate=300, save=200),
    )
