"""What recurrent networks cost: against the built model, torch's counter and what is really held, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.costs.flops import sequential_steps
from clearhead.costs.live import Live
from clearhead.costs.overhead import narrow_model, step_overhead
from clearhead.costs.shape import shape
from clearhead.costs.state import StateBytes
from clearhead.costs.time import sequential_steps as waits
from clearhead.model.build import build
from clearhead.training.data.batches import Batch
from clearhead.training.objectives import MaskedTokens

CELLS: Any = ("simple", "lstm", "lstm_1997", "gru")
KINDS = ("alone", "alone, narrow", "last", "additive")
EVERY = pytest.mark.parametrize(("cell", "kind"), [(cell, kind) for cell in CELLS for kind in KINDS])
WORDS, B, T, S = 30, 3, 9, 7


def stack(op: RecurrentConfig, n: int) -> StackConfig:
    block = BlockConfig(mixer=SublayerConfig(op=op, residual=False))
    return StackConfig(embed=EmbedConfig(front=TokensConfig(vocab_size=WORDS)), blocks=(block,) * n)


def config_of(cell: Any, kind: str, d_model: int = 24, d_attention: int = 10) -> TransformerConfig:
    source: Any = {"last": "last", "additive": AdditiveAttentionConfig(d_attention=d_attention)}.get(kind)
    d_hidden = 2 * d_model // 3 if kind == "alone, narrow" else d_model
    reader = RecurrentConfig(cell=cell, d_hidden=d_model // 3, both_ways=kind == "additive")
    return TransformerConfig(
        d_model=d_model,
        encoder=None if source is None else stack(reader, 1),
        decoder=stack(RecurrentConfig(cell=cell, d_hidden=d_hidden, source=source), 2),
        heads=HeadsConfig(tokens=TokenHeadConfig(tie=False)),
    )


def sizes(config: TransformerConfig, n_tokens: int = T, n_source: int = S) -> dict[str, Any]:
    return {"batch": B, "tokens": n_tokens} | ({} if config.encoder is None else {"source": n_source})


def inputs(config: TransformerConfig, n_source: int = S) -> dict[str, Any]:
    return {} if config.encoder is None else {"source": torch.randint(WORDS, (B, n_source))}


@EVERY
def test_parameters_operations_and_state(cell: Any, kind: str) -> None:
    """Exactly, in float64, where torch's kernel is made of products that its counter knows."""
    config = config_of(cell, kind)
    model, tokens, rest = build(config).double(), torch.randint(WORDS, (B, T)), inputs(config)
    told = counts(config)
    assert told.parameters.total == sum(p.numel() for p in model.parameters())
    with torch.no_grad():
        assert told.flops(**sizes(config)).total == count_flops(lambda: model(tokens, **rest))
    counted = count_flops(lambda: model(tokens, **rest).sum().backward())
    assert told.flops(**sizes(config), training=True).total == counted
    state = model.new_state()
    with torch.no_grad():
        model(tokens[:, :4], state=state, **rest)
        counted = count_flops(lambda: model(tokens[:, 4:5], state=state))
    assert told.flops(**sizes(config, 1), context=4).total == counted
    for dtype in (torch.float64, torch.bfloat16):
        state = model.to(dtype).new_state()
        model(tokens, state=state, **rest)
        source = {} if config.encoder is None else {"source": S}
        assert told.state(B, T, dtype.itemsize, **source).total == state.nbytes


def test_the_kernel_of_onednn_is_counted() -> None:
    """An LSTM in float32 runs as one operation, of which each product is counted, that of the first vector too."""
    config = config_of("lstm", "alone")
    model, tokens = build(config), torch.randint(WORDS, (B, T))
    with torch.no_grad():
        assert counts(config).flops(B, T).total == count_flops(lambda: model(tokens))
    counted = count_flops(lambda: model(tokens).sum().backward())
    assert counts(config).flops(B, T, training=True).total == counted - 2 * 2 * B * 24 * 96


@EVERY
def test_the_peak_of_a_step(cell: Any, kind: str) -> None:
    """Within a quarter of what is measured: how torch's kernels copy what they read is not followed to the end."""
    torch.manual_seed(0)
    config = config_of(cell, kind, d_model=48, d_attention=24)
    model, rest = build(config).train(), inputs(config, 60)
    tokens = torch.randint(WORDS, (B, 200))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    known = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None), tokens, *rest.values()]
    with Live(known) as live:
        MaskedTokens().loss(model, Batch({"tokens_BT": tokens, **rest}, tokens))[0].backward()
    told = counts(config).activations(**sizes(config, 200, 60))
    assert abs(told.total / live.peak - 1) <= 0.25


def test_a_gru_worked_by_hand() -> None:
    """Width 8, 3 tokens: two products with 24 x 8 of each, and two biases of 24. A text of 3 waits for 3 steps."""
    op = RecurrentConfig(cell="gru", d_hidden=8)
    config = TransformerConfig(d_model=8, decoder=stack(op, 1))
    told = counts(config)
    assert told.parameters.parts["recurrence"] == 2 * (24 * 8 + 24)
    assert told.flops(1, 3).parts["recurrence"].linear == 2 * 2 * 3 * 192
    assert told.state(1, 3).kinds == {"recurrent": 8 * 4}
    assert told.state(1, 3) == StateBytes(
        total=32, per_token=0, growth=0, kinds={"recurrent": 32}, multi_head_total=2 * 8 * 2 * 3
    )
    assert (sequential_steps(op, 3), waits(told, 3)) == (3, 3)
    assert told.attention_traffic(3, 1024).standard == 0


def test_a_source_worked_by_hand() -> None:
    """RNNsearch: 5 numbers for a query and 5 for each word of the source, 7 x (5 + 8) products a token, and a vector of
    8 beside each step's 8.
    """
    op = RecurrentConfig(cell="simple", d_hidden=8, source=AdditiveAttentionConfig(d_attention=5))
    config = TransformerConfig(
        d_model=8, encoder=stack(RecurrentConfig(cell="simple", d_hidden=8), 1), decoder=stack(op, 1)
    )
    part = counts(config).flops(1, 3, source=7).parts["attention"]
    assert part.linear == 2 * 3 * 8 * 5 + 2 * 7 * 8 * 5
    assert part.quadratic == part.needed == 2 * 3 * 7 * (5 + 8)
    assert counts(config).state(1, 3, source=7).kinds == {"recurrent": 32, "cross": 7 * (8 + 5) * 4}


def test_in_words_and_in_seconds() -> None:
    assert shape(config_of("lstm", "alone")) == "2 layers, LSTM of 24, width 24"
    assert "GRU of 8 each way in the encoder" in shape(config_of("gru", "additive"))
    assert narrow_model(config_of("gru", "additive")).encoder is None
    assert 0 < step_overhead(config_of("gru", "last"), torch.float32, 1) < 1
