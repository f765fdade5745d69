"""The Transformer of 2017, small: numbers in words from English to German and French (Vaswani 2017)."""

from __future__ import annotations

from typing import Literal

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    InitConfig,
    MaskConfig,
    NormConfig,
    SinusoidalPositions,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.corpora.number_words import PIECES
from clearhead.training.data.documents import Corpus

D_MODEL, N_LAYERS, N_HEADS, D_FF = 128, 2, 4, 256
CONTEXT = 128


def transformer_2017() -> TrainConfig:
    """0.7 million parameters, 2,300 steps of 128 pairs; optimiser, schedule and smoothing are the paper's (5)."""
    return TrainConfig(
        model=ModelConfig(family="marian", config=encoder_decoder(), init=InitConfig()),
        objective=ObjectiveConfig(name="source_to_target", label_smoothing=0.1),
        data=DataConfig(
            corpus=Corpus(path="corpus:number_words", columns=("source", "target")),
            tokenizer="pieces",
            pieces=PIECES,
            held_out="held_out_*.tsv",
        ),
        batch=BatchConfig(rows=128, length=CONTEXT, pack="rows"),
        optim=OptimConfig(lr=3e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, clip=1.0),
        schedule=ScheduleConfig(kind="inverse_sqrt", warmup=200),
        run=RunConfig(steps=2300, average=0.99),
        every=EveryConfig(log=20, evaluate=400, save=400),
    )


def encoder_decoder() -> TransformerConfig:
    """Norms after the additions, sinusoids, ReLU, one table of token vectors for source, target and output."""

    def sublayer(op: AttentionConfig | FeedForwardConfig) -> SublayerConfig:
        return SublayerConfig(op=op, after=NormConfig(kind="layer", eps=1e-5, bias=True))

    def attention(kind: Literal["causal", "full"]) -> SublayerConfig:
        return sublayer(
            AttentionConfig(
                n_heads=N_HEADS,
                n_kv_heads=N_HEADS,
                d_head=D_MODEL // N_HEADS,
                bias=BiasConfig(q=True, k=True, v=True, o=True),
                mask=MaskConfig(kind=kind),
            )
        )

    ffn = sublayer(FeedForwardConfig(d_ff=D_FF, activation="relu", gated=False, bias=True))
    embed = EmbedConfig(
        front=TokensConfig(vocab_size=len(PIECES)),
        positions=SinusoidalPositions(n=CONTEXT, layout="halves"),
        scale=D_MODEL**0.5,
    )
    return TransformerConfig(
        d_model=D_MODEL,
        encoder=StackConfig(embed=embed, blocks=(BlockConfig(mixer=attention("full"), ffn=ffn),) * N_LAYERS),
        decoder=StackConfig(
            embed=embed,
            blocks=(BlockConfig(mixer=attention("causal"), cross=attention("full"), ffn=ffn),) * N_LAYERS,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig(bias=True)),
        share_tokens=True,
        context=CONTEXT,
    )
