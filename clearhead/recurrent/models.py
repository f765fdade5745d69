"""Ready-made recurrent networks: language models, and the two translators that attention was first measured with."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from clearhead.config import (
    AdditiveAttentionConfig,
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    RecurrentConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TokensConfig,
    TransformerConfig,
)
from clearhead.costs import counts
from clearhead.errors import ClearheadError

NO_IDS = TokenIds()
CellName = Literal["simple", "lstm", "lstm_1997", "gru"]


def language_model(
    cell: CellName,
    *,
    vocab_size: int,
    d_model: int,
    n_layers: int = 1,
    forget_bias: float = 1.0,
    gain: float = 1.0,
    tie: bool = False,
    ids: TokenIds = NO_IDS,
) -> TransformerConfig:
    """A decoder that reads token by token: its layers' hidden vectors are the stream."""
    op = RecurrentConfig(cell=cell, d_hidden=d_model, forget_bias=forget_bias, gain=gain)
    return TransformerConfig(
        d_model=d_model,
        decoder=_stack(op, vocab_size, n_layers),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=tie)),
        ids=ids,
    )


def rnn_search(
    *,
    vocab_size: int,
    d_model: int,
    source_vocab_size: int | None = None,
    d_attention: int | None = None,
    cell: CellName = "gru",
    ids: TokenIds = NO_IDS,
) -> TransformerConfig:
    """A translator that looks back (Bahdanau 2014, RNNsearch): an encoder that reads both ways, each with half the
    width, and a decoder whose every step weighs all of what it made of the source. `source_vocab_size`: that of the
    source where it has words of its own.
    """
    if d_model % 2:
        raise ClearheadError(f"d_model is {d_model}; it must be even, for each way has half of it")
    source = AdditiveAttentionConfig(d_attention=d_model if d_attention is None else d_attention)
    encoder = RecurrentConfig(cell=cell, d_hidden=d_model // 2, both_ways=True)
    decoder = RecurrentConfig(cell=cell, d_hidden=d_model, source=source)
    return _translator(encoder, decoder, vocab_size, source_vocab_size, d_model, ids)


def rnn_enc(
    *,
    vocab_size: int,
    d_model: int,
    source_vocab_size: int | None = None,
    d_hidden: int | None = None,
    cell: CellName = "gru",
    ids: TokenIds = NO_IDS,
) -> TransformerConfig:
    """A translator whose source is one vector (Cho 2014, RNNenc): the encoder's last, which starts the decoder and is
    given to it at every step. Where `d_hidden` is None it is chosen for as many parameters as `rnn_search` has at this
    width, as nearly as a whole number allows.
    """
    if d_hidden is None:
        search = rnn_search(vocab_size=vocab_size, d_model=d_model, source_vocab_size=source_vocab_size, cell=cell)
        return replace(_as_large(search, vocab_size, source_vocab_size, cell), ids=ids)
    encoder = RecurrentConfig(cell=cell, d_hidden=d_hidden)
    decoder = RecurrentConfig(cell=cell, d_hidden=d_hidden, source="last")
    return _translator(encoder, decoder, vocab_size, source_vocab_size, d_model, ids)


def _as_large(
    search: TransformerConfig, vocab_size: int, source_vocab_size: int | None, cell: CellName
) -> TransformerConfig:
    """The RNNenc whose number of parameters is nearest to that of `search`."""
    d_model, wanted = search.d_model, counts(search).parameters.total
    candidates = (
        rnn_enc(
            vocab_size=vocab_size, d_model=d_model, source_vocab_size=source_vocab_size, d_hidden=d_hidden, cell=cell
        )
        for d_hidden in range(d_model // 2, 2 * d_model)
    )
    return min(candidates, key=lambda config: abs(counts(config).parameters.total - wanted))


def _translator(
    encoder: RecurrentConfig,
    decoder: RecurrentConfig,
    vocab_size: int,
    source_vocab_size: int | None,
    d_model: int,
    ids: TokenIds,
) -> TransformerConfig:
    return TransformerConfig(
        d_model=d_model,
        encoder=_stack(encoder, vocab_size if source_vocab_size is None else source_vocab_size, 1),
        decoder=_stack(decoder, vocab_size, 1),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=False)),
        share_tokens=source_vocab_size is None,
        ids=ids,
    )


def _stack(op: RecurrentConfig, vocab_size: int, n_layers: int) -> StackConfig:
    """Layers that take the place of the stream, and no norm: the networks that there were before."""
    block = BlockConfig(mixer=SublayerConfig(op=op, residual=False))
    return StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=vocab_size)), blocks=(block,) * n_layers)
