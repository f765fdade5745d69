"""A small Whisper that writes down numbers spoken by machines (Radford 2022)."""

from __future__ import annotations

from typing import Literal

from clearhead.config import (
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    FramesConfig,
    HeadsConfig,
    InitConfig,
    LearnedPositions,
    MaskConfig,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.training.config import (
    AugmentConfig,
    BatchConfig,
    EveryConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    SoundsConfig,
    SpectrogramConfig,
    TrainConfig,
)

D_MODEL, N_HEADS, D_FF = 128, 4, 512
N_ENCODER, N_DECODER = 3, 2
N_MELS = 40
HEARD = SpectrogramConfig(hop=320, seconds=3)
"""Three seconds in 150 frames, of which two become a token: so 40 ms each, as is usual where words are written."""
POSITIONS = HEARD.rate * HEARD.seconds // HEARD.hop // 2
CONTEXT = 32


def speech_numbers() -> TrainConfig:
    """1.2 million parameters, 2,000 steps of 32 sounds."""
    return TrainConfig(
        model=ModelConfig(family="whisper", config=listener(), init=InitConfig()),
        objective=ObjectiveConfig(name="source_to_target", label_smoothing=0.1),
        data=SoundsConfig(
            path="corpus:spoken_numbers",
            spectrogram=HEARD,
            augment=AugmentConfig(shift=0.4, masks=1, bands=6, frames=12),
            tokenizer="wordpiece",
            held_out=0.15,
        ),
        batch=BatchConfig(rows=32, length=CONTEXT, pack="rows"),
        optim=OptimConfig(name="muon", lr=4e-3, weight_decay=0.1, clip=1.0),
        schedule=ScheduleConfig(kind="linear", warmup=100, floor=0.02),
        run=RunConfig(steps=2000),
        every=EveryConfig(log=20, evaluate=400, save=400),
    )


def listener() -> TransformerConfig:
    """Norms before the sub-layers; keys are made without a bias. The vocabulary of a run is its tokenizer's."""
    norm = NormConfig(kind="layer", eps=1e-5, bias=True)

    def attention(kind: Literal["causal", "full"]) -> SublayerConfig:
        op = AttentionConfig(
            n_heads=N_HEADS,
            n_kv_heads=N_HEADS,
            d_head=D_MODEL // N_HEADS,
            bias=BiasConfig(q=True, k=False, v=True, o=True),
            mask=MaskConfig(kind=kind),
        )
        return SublayerConfig(op=op, pre=norm)

    ffn = SublayerConfig(op=FeedForwardConfig(d_ff=D_FF, activation="gelu", gated=False, bias=True), pre=norm)
    return TransformerConfig(
        d_model=D_MODEL,
        encoder=StackConfig(
            embed=EmbedConfig(front=FramesConfig(n_mels=N_MELS), positions=LearnedPositions(n=POSITIONS)),
            blocks=(BlockConfig(mixer=attention("full"), ffn=ffn),) * N_ENCODER,
            norm=norm,
        ),
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=1), positions=LearnedPositions(n=CONTEXT)),
            blocks=(BlockConfig(mixer=attention("causal"), cross=attention("full"), ffn=ffn),) * N_DECODER,
            norm=norm,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig()),
        context=CONTEXT,
    )
