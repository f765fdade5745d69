"""Recurrent networks of our own: language models of simple cells, LSTMs and GRUs (Mikolov 2010, Sundermeyer 2012), and
the translators RNNenc (Cho 2014) and RNNsearch (Bahdanau 2014). No class of the `transformers` package builds them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    AdditiveAttentionConfig,
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    RecurrentConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import a, write_ids
from clearhead.families.fairseq import read_start
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED, rows
from clearhead.families.weights import Layout, Row

WRITER, TRANSLATOR, BARE = "RecurrentForCausalLM", "RecurrentForTranslation", "RecurrentModel"


def read(r: Reader) -> TransformerConfig:
    d_model, n_layers = r.get("hidden_size", 256), r.get("num_hidden_layers", 1)
    d_hidden, vocab_size = r.get("state_size", d_model), r.get("vocab_size", 1024)
    cell = RecurrentConfig(
        cell=r.choose("cell_type", {name: name for name in CELLS}, "lstm"),
        d_hidden=d_hidden,
        forget_bias=r.get("forget_bias", 1.0),
        gain=r.get("recurrent_gain", 1.0),
    )

    def stack(op: RecurrentConfig, size: int, n: int) -> StackConfig:
        sublayer = SublayerConfig(op=op, residual=r.get("residual", False), dropout=r.get("dropout", 0.0))
        return StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=size), dropout=r.get("embedding_dropout", 0.0)),
            blocks=(BlockConfig(mixer=sublayer),) * n,
        )

    encoder, own_words = None, None
    if r.architecture == TRANSLATOR:
        r.expect("is_encoder_decoder", True)
        width, own_words = r.get("attention_size"), r.get("source_vocab_size")
        encoder = stack(
            replace(cell, d_hidden=r.get("encoder_state_size", d_hidden), both_ways=r.get("encoder_both_ways", False)),
            vocab_size if own_words is None else own_words,
            r.get("encoder_layers", 1),
        )
        cell = replace(cell, source="last" if width is None else AdditiveAttentionConfig(d_attention=width))
    head = TokenHeadConfig(tie=r.get("tie_word_embeddings", False))
    return TransformerConfig(
        d_model=d_model,
        encoder=encoder,
        decoder=stack(cell, vocab_size, n_layers),
        heads=HeadsConfig(tokens=None if r.architecture == BARE else head),
        share_tokens=own_words is None,
        context=r.get("max_length_trained"),
        ids=read_start(r, (None, None, None), None),
    )


CELLS = ("simple", "lstm", "lstm_1997", "gru")


def write(config: TransformerConfig) -> dict[str, Any]:
    decoder, encoder = a(StackConfig, config.decoder), config.encoder
    sublayer = decoder.blocks[0].mixer
    cell, head = a(RecurrentConfig, sublayer.op), config.heads.tokens
    return {
        "architectures": [TRANSLATOR if encoder is not None else BARE if head is None else WRITER],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(decoder.blocks),
        "cell_type": cell.cell,
        "state_size": cell.d_hidden,
        "forget_bias": cell.forget_bias,
        "recurrent_gain": cell.gain,
        "residual": sublayer.residual,
        "dropout": sublayer.dropout,
        "embedding_dropout": decoder.embed.dropout,
        "tie_word_embeddings": head is not None and head.tie,
        "max_length_trained": config.context,
        "decoder_start_token_id": config.ids.decoder_start,
        **write_ids(config.ids),
        **({} if encoder is None else _write_encoder(encoder, cell, config.share_tokens)),
    }


def _write_encoder(encoder: StackConfig, cell: RecurrentConfig, shares: bool) -> dict[str, Any]:
    op, look = a(RecurrentConfig, encoder.blocks[0].mixer.op), cell.source
    return {
        "is_encoder_decoder": True,
        "encoder_layers": len(encoder.blocks),
        "encoder_state_size": op.d_hidden,
        "encoder_both_ways": op.both_ways,
        "source_vocab_size": None if shares else a(TokensConfig, encoder.embed.front).vocab_size,
        "attention_size": look.d_attention if isinstance(look, AdditiveAttentionConfig) else None,
    }


PROJECTIONS = (*(f"{cell}.{x}_proj" for cell in ("cell", "back") for x in "xh"), "out_proj")
LOOKING = tuple(f"source.{name}_proj" for name in ("start", "query", "key"))


def _stack_rows(theirs: str, ours: str, *names: str) -> tuple[Row, ...]:
    return rows(f"{theirs}.layers.{{l}}.", {name: f"mixer.{name}" for name in names}, ours=f"{ours}layers.{{l}}.")


FAMILY = Family(
    model_type="clearhead_recurrent",
    architectures=(WRITER, TRANSLATOR, BARE),
    config=read,
    to_hf=write,
    weights=Layout(
        (
            Row("decoder.embed_tokens.weight", "embed.tokens.weight"),
            Row("encoder.embed_tokens.weight", "encoder.embed.tokens.weight", TIED),
            *_stack_rows("decoder", "", *PROJECTIONS, *LOOKING),
            *_stack_rows("encoder", "encoder.", *PROJECTIONS),
            Row("decoder.layers.{l}.source.v", "layers.{l}.mixer.source.v"),
            Row("lm_head.weight", "head.weight", TIED),
        )
    ),
)
