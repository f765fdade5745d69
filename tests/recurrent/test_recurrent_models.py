"""Ready-made recurrent networks: sizes, what they are made of, and that they learn by the library's trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

import clearhead
from clearhead.config import RecurrentConfig
from clearhead.costs import counts
from clearhead.errors import ClearheadError
from clearhead.model.build import build
from clearhead.recurrent import language_model, rnn_enc, rnn_search
from clearhead.training.config import (
    BatchConfig,
    DataConfig,
    EveryConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
)
from clearhead.training.data.documents import Corpus


@pytest.mark.parametrize("d_model", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("words", [(30, None), (400, 250)])
def test_the_two_translators_are_as_large(d_model: int, cell: str, words: tuple[int, int | None]) -> None:
    size = {"vocab_size": words[0], "source_vocab_size": words[1], "d_model": d_model, "cell": cell}
    a, b = (counts(maker(**size)).parameters.total for maker in (rnn_enc, rnn_search))  # type: ignore[arg-type]
    assert abs(a / b - 1) < 0.01
    assert a == sum(p.numel() for p in build(rnn_enc(**size)).parameters())  # type: ignore[arg-type]


def test_what_they_are_made_of() -> None:
    search, enc = rnn_search(vocab_size=9, d_model=8), rnn_enc(vocab_size=9, d_model=8, d_hidden=8)
    assert search.encoder is not None and enc.encoder is not None
    looks = search.stack.blocks[0].mixer.op
    assert isinstance(looks, RecurrentConfig) and looks.source is not None and looks.source != "last"
    assert search.encoder.blocks[0].mixer.op == RecurrentConfig(cell="gru", d_hidden=4, both_ways=True)
    assert enc.encoder.blocks[0].mixer.op == RecurrentConfig(cell="gru", d_hidden=8)
    assert enc.stack.blocks[0].mixer.op == RecurrentConfig(cell="gru", d_hidden=8, source="last")
    assert all(not block.mixer.residual for block in (*search.encoder.blocks, *enc.stack.blocks))
    with pytest.raises(ClearheadError, match="d_model is 7; it must be even"):
        rnn_search(vocab_size=9, d_model=7)


@pytest.mark.parametrize("cell", ["simple", "lstm", "gru"])
def test_the_trainer_trains_them(cell: str, tmp_path: Path) -> None:
    """Documents packed side by side, as every other decoder is trained; what comes out loads and has learned."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(40):
        (texts / f"{i}.txt").write_text("abcdefghij" * 8)
    config = TrainConfig(
        model=ModelConfig(family="clearhead_recurrent", config=language_model(cell, vocab_size=1, d_model=32)),  # type: ignore[arg-type]
        data=DataConfig(corpus=Corpus(path=str(texts)), tokenizer="bytes"),
        batch=BatchConfig(rows=4, length=24),
        optim=OptimConfig(lr=1e-2),
        schedule=ScheduleConfig(warmup=5),
        run=RunConfig(steps=60),
        every=EveryConfig(evaluate=0, save=0),
    )
    clearhead.train(config, out=tmp_path / "run", quiet=True)
    model = clearhead.load(tmp_path / "run" / "step-000060")
    assert isinstance(model.config.stack.blocks[0].mixer.op, RecurrentConfig)
    assert clearhead.generate(model, "abcdefgh", max_new_tokens=6, temperature=0).text == "ijabcd"
