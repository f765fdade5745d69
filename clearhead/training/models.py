"""The model that a run begins with: from random weights, or from a checkpoint's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clearhead.checkpoints.load import blueprint, load_tokenizer
from clearhead.checkpoints.source import open_checkpoint
from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    InitConfig,
    NormConfig,
    QKNormConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.families import family_of
from clearhead.families.first_weights import FIRST_WEIGHTS
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.build import build
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer
from clearhead.training.config import DecoderConfig, ModelConfig, StartConfig, TrainConfig
from clearhead.training.start import loaded, newest


def start_model(config: TrainConfig, tokenizer: Tokenizer | None, labels: Sequence[str] = ()) -> Transformer:
    """The model of a run, with the weights it begins with. `labels` are what the data knows, for a new head."""
    if isinstance(config.model, StartConfig):
        return loaded(config.model, ("value",) if config.objective.name == "regress" else labels)
    made = model_config(config, tokenizer)
    # It must have words for all of the config: better known now than at the first checkpoint.
    family_of({"model_type": config.model.family}, "model.family").write(made, {})
    model: Transformer = build(made)
    own = config.model.init if isinstance(config.model, ModelConfig) else None
    how = own or FIRST_WEIGHTS[config.model.family]
    if how != InitConfig():
        initialise(model, how)
    model.tokenizer = tokenizer
    return model


def start_tokenizer(model: ModelConfig | DecoderConfig | StartConfig) -> Tokenizer | None:
    """The tokenizer that comes with the model a run begins with; None where one is made of the texts, or none read."""
    if not isinstance(model, StartConfig):
        return None
    return load_tokenizer(newest(model.source), architecture=model.architecture)


def model_config(config: TrainConfig, tokenizer: Tokenizer | None) -> TransformerConfig:
    """The config of a model from random weights. Its vocabulary and marks are the tokenizer's."""
    assert not isinstance(config.model, StartConfig)
    if tokenizer is None:
        assert isinstance(config.model, ModelConfig)
        return config.model.config
    ids = TokenIds(bos=tokenizer.bos_id, eos=tuple(tokenizer.eos_ids), pad=tokenizer.pad_id)
    if isinstance(config.model, DecoderConfig):
        return decoder(config.model, tokenizer.vocab_size, config.batch.length, ids)
    if config.model.config.encoder is not None and config.model.config.decoder is not None:
        # Marian's begins with padding, having no begin mark.
        ids = replace(ids, decoder_start=ids.bos if ids.bos is not None else ids.pad)
    return with_vocabulary(config.model.config, tokenizer.vocab_size, ids)


def decoder_start(config: TrainConfig, tokenizer: Tokenizer) -> int | None:
    """What a decoder beside an encoder begins with, in the model of a run; None where it does not say."""
    if isinstance(config.model, StartConfig):
        with open_checkpoint(newest(config.model.source)) as opened:
            ids = blueprint(opened, architecture=config.model.architecture, new_head=True).model.config.ids
            start: int | None = (opened.generation_config or {}).get("decoder_start_token_id", ids.decoder_start)
            return start
    return model_config(config, tokenizer).ids.decoder_start


def with_vocabulary(config: TransformerConfig, vocab_size: int, ids: TokenIds) -> TransformerConfig:
    """`config` with so many token ids wherever it reads tokens, and these marks where it names none."""

    def resized(stack: StackConfig | None) -> StackConfig | None:
        if stack is None or not isinstance(front := stack.embed.front, TokensConfig):
            return stack
        return replace(stack, embed=replace(stack.embed, front=replace(front, vocab_size=vocab_size)))

    own = config.ids
    marks = TokenIds(
        bos=own.bos if own.bos is not None else ids.bos,
        eos=own.eos or ids.eos,
        pad=own.pad if own.pad is not None else ids.pad,
        mask=own.mask if own.mask is not None else ids.mask,
        decoder_start=own.decoder_start if own.decoder_start is not None else ids.decoder_start,
    )
    return replace(config, encoder=resized(config.encoder), decoder=resized(config.decoder), ids=marks)


def decoder(sizes: DecoderConfig, vocab_size: int, context: int, ids: TokenIds | None = None) -> TransformerConfig:
    """The config that a few sizes stand for."""
    if sizes.d_model % sizes.n_heads:
        raise ClearheadError(
            f"model.d_model is {sizes.d_model}, which {sizes.n_heads} heads can't share (model.n_heads)"
        )
    norm = NormConfig()
    attention = AttentionConfig(
        n_heads=sizes.n_heads,
        n_kv_heads=sizes.n_kv_heads,
        d_head=sizes.d_model // sizes.n_heads,
        scores=ScoresConfig(dropout=sizes.dropout),
        positions=RotaryConfig(),
        qk_norm=QKNormConfig(norm=norm) if sizes.qk_norm else None,
    )
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm),
        ffn=SublayerConfig(op=FeedForwardConfig(d_ff=sizes.d_ff), pre=norm),
    )
    return TransformerConfig(
        d_model=sizes.d_model,
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=vocab_size)),
            blocks=(block,) * sizes.n_layers,
            norm=norm,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig()),
        context=context,
        ids=ids or TokenIds(),
    )
