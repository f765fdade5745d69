"""Exact match, BLEU and chrF, against counts by hand and `sacrebleu` itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.evaluate import evaluate
from clearhead.training.measures import pairs as module
from clearhead.training.measures.pairs import PairScores, measure_pairs

SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
}
PAIRS = [("one two", "eins zwei drei vier"), ("three", "drei"), ("a b c d e f", "x")]


def translator() -> Any:
    """A random model that turns bytes into bytes."""
    tokenizer = train_tokenizer([], TokenizerConfig(kind="bytes"))
    ids = {
        "vocab_size": 257,
        "decoder_start_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": 256,
        "bos_token_id": 256,
    }
    raw = {"model_type": "marian", "architectures": ["MarianMTModel"], **SIZES, **ids}
    model = build(FAMILIES["marian"].read(raw, "here")).eval()
    for p in model.parameters():
        p.data.mul_(5)
    model.tokenizer = tokenizer
    return model


def test_the_numbers_are_those_of_the_texts_that_were_written() -> None:
    written = ("eins zwei drei fünf", "drei", "y")
    scores = PairScores(tuple(s for s, _ in PAIRS), tuple(t for _, t in PAIRS), written, ("a", "a", "b"))
    assert scores.exact == 1 / 3
    assert scores.bleu == sacrebleu.corpus_bleu(list(written), [[t for _, t in PAIRS]]).score
    assert scores.chrf == sacrebleu.CHRF().corpus_score(list(written), [[t for _, t in PAIRS]]).score
    found = scores.summary()
    assert (found["pairs"], found["exact_a"], found["exact_b"]) == (3, 0.5, 0.0)
    assert list(found)[-2:] == ["bleu", "chrf"]


def test_without_sacrebleu_only_exact_match_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_sacrebleu", lambda: False)
    scores = PairScores(("a",), ("b",), ("b",))
    assert scores.summary() == {"pairs": 1, "exact": 1.0}
    with pytest.raises(ClearheadError, match=r'pip install "clearhead\[train\]"'):
        _ = scores.bleu


@pytest.mark.parametrize("n_beams", [1, 3])
def test_what_is_written_is_what_generate_writes_alone(n_beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator()
    monkeypatch.setattr(module, "ROWS", 2)
    monkeypatch.setattr(module, "ROOM", -12)
    told: list[int] = []
    found = measure_pairs(model, PAIRS, n_beams=n_beams, progress=told.append)
    alone = [
        clearhead.generate(model, source, max_new_tokens=7, temperature=0, n_beams=n_beams).text for source, _ in PAIRS
    ]
    assert list(found.written) == alone
    assert told == [2, 1]


def test_tables_of_pairs(tmp_path: Path) -> None:
    model, path = translator(), tmp_path / "pairs.tsv"
    path.write_text("en\tde\n" + "".join(f"{source}\t{target}\n" for source, target in PAIRS))
    found = evaluate(model, path, columns=("en", "de"))
    assert found == measure_pairs(model, PAIRS, files=["pairs.tsv"] * 3)
    with pytest.raises(ClearheadError, match="has no 'fr'"):
        evaluate(model, path, columns=("en", "fr"))
    with pytest.raises(ClearheadError, match="name the two columns"):
        evaluate(model, path)
    with pytest.raises(UsageError, match="window and stride are of texts"):
        evaluate(model, path, columns=("en", "de"), window=4)
    with pytest.raises(UsageError, match="3 columns can't be evaluated"):
        evaluate(model, path, columns=("en", "de", "fr"))
    path.write_text("en\tde\n")
    with pytest.raises(ClearheadError, match="have no rows"):
        evaluate(model, path, columns=("en", "de"))
    with pytest.raises(ClearheadError, match="no pairs"):
        measure_pairs(model, [])
