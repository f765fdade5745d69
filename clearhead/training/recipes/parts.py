"""What the recipes' decoders have in common beside their blocks."""

from __future__ import annotations

from clearhead.config import (
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    NormConfig,
    StackConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)


def decoder_of(
    blocks: tuple[BlockConfig, ...], *, d_model: int, context: int | None, norm: NormConfig, tie: bool = True
) -> TransformerConfig:
    """Token vectors, blocks, a norm and scores. `tie`: the scores are made with the token vectors.

    The vocabulary of a run is its tokenizer's, so the one here says nothing.
    """
    return TransformerConfig(
        d_model=d_model,
        decoder=StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=1)), blocks=blocks, norm=norm),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=tie)),
        context=context,
    )
